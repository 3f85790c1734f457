"""The control client: calls that are not measured, such as listing models or counting tokens."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from loadkit.call.choose import proxy_for, speaks_tls
from loadkit.call.faults import connecting
from loadkit.call.tls import shared_context
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.plan.errors import TargetError
from loadkit.protocol import PROTOCOLS, classify
from loadkit.record.names import Outcome
from loadkit.target.bounded import AnswerUnfinished, BoundedTransport

MAX_BOS = 16  # special tokens in front of a text; what states more is no such count
MAX_WINDOW = 10**9
LISTING = {"ollama": "/api/tags", "anthropic": "/v1/models"}
# Faults that leave no server to ask anything else of.
_UNREACHABLE = (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError, httpx.InvalidURL, UnicodeError)
_NO_ANSWER = (httpx.HTTPError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model a server lists, with the window in tokens where it states one."""

    id: str
    window: int | None = None
    bos_tokens: int | None = None


def open_client(
    endpoint: Endpoint, key: str | None, environ: Mapping[str, str], *, now: Callable[[], float] = time.monotonic
) -> httpx.Client:
    """A client with the endpoint's headers and key, each of its exchanges bounded as a whole (`bounded`).

    ConfigError where the proxy or the certificates that the environment names cannot be used.
    """
    headers = PROTOCOLS[endpoint.protocol].headers(key, endpoint.auth)
    headers |= {"Accept": "application/json", "Accept-Encoding": "identity"}
    proxy = proxy_for(endpoint.base_url, environ)
    tls = shared_context() if speaks_tls(endpoint.base_url, proxy) else None
    transport = BoundedTransport(tls, proxy, endpoint.timeouts.connect, now)
    return httpx.Client(headers=headers | endpoint.headers, timeout=None, transport=transport, trust_env=False)


def list_models(client: httpx.Client, endpoint: Endpoint) -> list[ModelFacts] | None:
    """What GET /models lists; None where the server gives no list, which says nothing about its other routes.

    Raises TargetError when the server cannot be reached or refuses the key: no later step could succeed.
    Raises AnswerUnfinished when the list has no end.
    """
    try:
        answer = client.get(url_for(endpoint, LISTING.get(endpoint.protocol, "/models")))
    except AnswerUnfinished:
        raise
    except _UNREACHABLE as error:
        end = connecting(error, 0)
        message = f"{endpoint.host} cannot be reached: {one_line(end.detail)}; check the base URL"
        raise TargetError(message, end.outcome or Outcome.CONNECT_ERROR) from None
    except _NO_ANSWER:
        return None
    status = answer.status_code
    if status == 200:
        return _models(answer.content)
    failure = classify(status, answer.headers.multi_items(), answer.content[:65536])
    if failure.outcome is Outcome.AUTH:
        raise TargetError(f"{endpoint.host} refuses {_asked_with(endpoint)}: HTTP {status}", failure.outcome)
    return None


def one_line(text: str, limit: int = 800) -> str:
    """Text from a server or a program as part of a line of ours: printable characters only, clipped."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _asked_with(endpoint: Endpoint) -> str:
    if endpoint.key_place:
        return f"the key in {endpoint.key_place}"
    return "a request without a key (set LOADKIT_API_KEY, or key_env in endpoints.toml)"


def _models(body: bytes) -> list[ModelFacts] | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    rows = document.get("data") or document.get("models") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        return None
    return [facts for row in rows if isinstance(row, dict) and (facts := _facts(row))]


def _facts(row: dict[str, Any]) -> ModelFacts | None:
    name = row.get("id") or row.get("name")
    if not isinstance(name, str) or not name:
        return None
    stated = row.get("meta")
    meta = stated if isinstance(stated, dict) else {}
    windows = (row.get("max_model_len"), meta.get("n_ctx"), row.get("context_length"), row.get("context_window"))
    window = next((value for value in windows if type(value) is int and 0 < value <= MAX_WINDOW), None)
    bos = row.get("bos_tokens")
    return ModelFacts(name, window, bos if type(bos) is int and 0 <= bos <= MAX_BOS else None)

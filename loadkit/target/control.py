"""The control client: calls that are not measured, such as listing models or counting tokens."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from loadkit.call.choose import proxy_for
from loadkit.call.faults import connecting
from loadkit.call.tls import shared_context
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.plan.errors import TargetError
from loadkit.protocol import PROTOCOLS, classify
from loadkit.record.names import Outcome

ANSWER_S = 30.0  # for one answer of the control client, whole
MAX_LISTING = 8 * 1024 * 1024  # bytes read of a list of models; a gateway with every model there is sends one
LISTING = {"ollama": "/api/tags", "anthropic": "/v1/models"}
# Faults that leave no server to ask anything else of.
_UNREACHABLE = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError, httpx.InvalidURL, UnicodeError)


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model a server lists, with the window in tokens where it states one."""

    id: str
    window: int | None = None
    bos_tokens: int | None = None


def open_client(endpoint: Endpoint, key: str | None, environ: Mapping[str, str]) -> httpx.Client:
    """A client with the endpoint's headers and key. Connecting is tried twice more; nothing else is repeated."""
    headers = PROTOCOLS[endpoint.protocol].headers(key, endpoint.auth) | {"Accept": "application/json"}
    proxy = proxy_for(endpoint.base_url, environ)
    transport = httpx.HTTPTransport(verify=shared_context(), retries=2, proxy=proxy)
    timeout = httpx.Timeout(ANSWER_S, connect=endpoint.timeouts.connect)
    return httpx.Client(headers=headers | endpoint.headers, timeout=timeout, transport=transport, trust_env=False)


def list_models(
    client: httpx.Client, endpoint: Endpoint, *, now: Callable[[], float] = time.monotonic
) -> list[ModelFacts] | None:
    """What GET /models lists; None where the server gives no list, which says nothing about its other routes.

    Raises TargetError when the server cannot be reached or refuses the key: no later step could succeed.
    """
    try:
        status, headers, body = _get(client, url_for(endpoint, LISTING.get(endpoint.protocol, "/models")), now)
    except _UNREACHABLE as error:
        end = connecting(error, 0)
        message = f"{endpoint.host} cannot be reached: {one_line(end.detail)}; check the base URL"
        raise TargetError(message, end.outcome or Outcome.CONNECT_ERROR) from None
    except httpx.HTTPError:
        return None
    if status == 200:
        return _models(body)
    failure = classify(status, headers, body[:65536])
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


def _get(client: httpx.Client, url: str, now: Callable[[], float]) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body, both size and time bounded: what is beyond is not read."""
    until, body = now() + ANSWER_S, bytearray()
    with client.stream("GET", url) as response:
        for piece in response.iter_bytes():
            body += piece
            if len(body) > MAX_LISTING or now() > until:
                break
        return response.status_code, response.headers.multi_items(), bytes(body)


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
    window = next((value for value in windows if type(value) is int and value > 0), None)
    bos = row.get("bos_tokens")
    return ModelFacts(name, window, bos if type(bos) is int else None)

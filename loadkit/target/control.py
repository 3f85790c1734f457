"""The control client: calls that are not measured, such as listing models or counting tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from loadkit.call.choose import proxy_for
from loadkit.call.faults import connecting
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.plan.errors import TargetError
from loadkit.protocol import PROTOCOLS, classify
from loadkit.record.names import Outcome

TIMEOUT = httpx.Timeout(30.0, connect=10.0)
LISTING = {"ollama": "/api/tags", "anthropic": "/v1/models"}
# A server that lists no models answers so; it may still generate.
UNLISTED = frozenset({404, 405, 501})


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
    transport = httpx.HTTPTransport(retries=2, proxy=proxy)
    return httpx.Client(headers=headers | endpoint.headers, timeout=TIMEOUT, transport=transport, trust_env=False)


def list_models(client: httpx.Client, endpoint: Endpoint) -> list[ModelFacts] | None:
    """What GET /models lists; None where the server has no such route.

    Raises TargetError when the server cannot be reached or refuses the key: no later step could succeed.
    """
    url = url_for(endpoint, LISTING.get(endpoint.protocol, "/models"))
    try:
        response = client.get(url)
    except httpx.HTTPError as error:
        outcome = connecting(error, 0).outcome or Outcome.CONNECT_ERROR
        raise TargetError(f"{endpoint.host} cannot be reached: {_said(error)}; check the base URL", outcome) from None
    if response.status_code in UNLISTED:
        return None
    if response.status_code != 200:
        failure = classify(response.status_code, list(response.headers.items()), response.content[:65536])
        if failure.outcome in (Outcome.AUTH, Outcome.FORBIDDEN):
            key = f"the key in {endpoint.key_env}" if endpoint.key_env else "a request without a key (set key_env)"
            raise TargetError(f"{endpoint.host} refuses {key}: HTTP {response.status_code}", failure.outcome)
        return None
    return _models(response)


def _models(response: httpx.Response) -> list[ModelFacts] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    rows = body.get("data") or body.get("models") if isinstance(body, dict) else None
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


def _said(error: httpx.HTTPError) -> str:
    """The reason in a few words; httpx wraps the operating system's own."""
    return str(error) or type(error).__name__

"""From a base URL to the final URL of an operation: one table of rules, pure, and never a doubled /v1."""

import re
from urllib.parse import SplitResult, urlsplit

from loadkit.plan.errors import ConfigError

# A base URL may already name the operation; what comes after the version is what protocols append.
_OPERATIONS = {
    "openai-chat": ("/chat/completions", "/completions"),
    "openai-completions": ("/chat/completions", "/completions"),
    "anthropic": ("/messages",),
    "ollama": ("/api/chat",),
}


def clean_base_url(text: str) -> tuple[str, tuple[str, ...]]:
    """The base URL without blanks, query, fragment and closing slashes, and one warning for each thing dropped."""
    warnings = []
    trimmed = text.strip()
    if trimmed != text:
        warnings.append("the base URL had blanks around it; they were dropped")
    parts = _split(trimmed)
    if parts.query or parts.fragment:
        warnings.append("the base URL had a query or fragment; it was dropped")
    if re.search(r"/(v\d+)/\1(?:/|$)", parts.path):
        raise ConfigError(f"the base URL of {parts.netloc} has its version twice in {parts.path}: keep one")
    return f"{parts.scheme.lower()}://{parts.netloc}{parts.path.rstrip('/')}", tuple(warnings)


def _split(url: str) -> SplitResult:
    shown = repr(re.split(r"[?#]", url)[0][:80]) if "@" not in url else "given"
    if not url:
        raise ConfigError("the base URL is empty: write one such as http://127.0.0.1:8000")
    if not url.isprintable() or " " in url or "\\" in url:
        raise ConfigError("the base URL has blanks or control characters inside: write it again")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # what no name server could be asked for is a fault of the URL
    except ValueError:
        raise ConfigError(
            f"the base URL {shown} has a host or port that cannot be read: write http://HOST:PORT"
        ) from None
    if parts.scheme.lower() not in ("http", "https"):
        raise ConfigError(f"the base URL {shown} must begin with http:// or https://")
    if not host:
        raise ConfigError(f"the base URL {shown} names no host: write http://HOST:PORT")
    if "@" in parts.netloc:
        raise ConfigError(f"the base URL of {host} holds a user or password: an endpoint takes its key from `key_env`")
    return parts


def join(base_url: str, protocol: str, path: str) -> str:
    """Final URL of `path` (as the protocol names it, '/chat/completions' or '/v1/messages').

    A base that ends in the operation is kept. `/v1` is put in only for OpenAI styles, and only where the base has no
    path at all: any path ('/api', '/openai/v1') is taken as meant.
    """
    origin, given, base = _without_operation(base_url, protocol)
    operation = given[len(base) :]
    if operation and operation in (path, path.removeprefix("/v1")):
        return origin + given
    first = path.split("/")[1]
    if first in ("v1", "api") and base.endswith(f"/{first}"):
        base = base.removesuffix(f"/{first}")
    elif not given and protocol.startswith("openai") and first != "v1":
        base = "/v1"
    return origin + base + path


def join_root(base_url: str, protocol: str, path: str) -> str:
    """Final URL of a route beside the API, such as /tokenize, /metrics or /health: no version before it."""
    origin, _, base = _without_operation(base_url, protocol)
    return origin + base.removesuffix("/v1") + path


def _without_operation(base_url: str, protocol: str) -> tuple[str, str, str]:
    """Origin, path as given, and the path without an operation of the protocol at its end."""
    clean, _ = clean_base_url(base_url)
    parts = urlsplit(clean)
    ending = next((op for op in _OPERATIONS[protocol] if parts.path.endswith(op)), "")
    return f"{parts.scheme}://{parts.netloc}", parts.path, parts.path.removesuffix(ending)

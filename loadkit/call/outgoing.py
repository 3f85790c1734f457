"""The sending half of HTTP/1.1, sans-IO: where a URL points, the bytes of a request head, a body in bounded slices."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from loadkit.call.transport import SLICE_BYTES, WireRequest

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BREAKS = re.compile(r"[\r\n\x00]")
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """The server a URL names. `host` is ASCII without brackets; `authority` is what a Host header says."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """host, or host:port where the port is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


@lru_cache(maxsize=64)
def split_url(url: str) -> tuple[Origin, str]:
    """Origin and request target (path and query) of an absolute http or https URL; ValueError otherwise."""
    if _UNSAFE.search(url):
        raise ValueError("URL holds a blank or a control character")
    parts = urlsplit(url)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise ValueError("URL must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("URL must not hold a user name or password")
    target = parts.path or "/"
    if parts.query:
        target += f"?{parts.query}"
    host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
    return Origin(parts.scheme, host, parts.port or _DEFAULT_PORTS[parts.scheme]), target


def head_bytes(request: WireRequest, origin: Origin, target: str) -> bytes:
    """The request head; Host and Content-Length are added. ValueError on a header that could break the framing."""
    if not target.isascii():
        raise ValueError("URL path must be percent-encoded ASCII")
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {origin.authority}"]
    for name, value in request.headers:
        check_header(name, value)
        lines.append(f"{name}: {value}")
    lines.append(f"Content-Length: {request.body_bytes}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def check_header(name: str, value: str) -> None:
    """ValueError when a header cannot be sent as it is; the value is never repeated, it may be a key."""
    if not _TOKEN.fullmatch(name) or name.lower() in ("host", "content-length", "transfer-encoding"):
        raise ValueError(f"header name {name!r} cannot be used")
    if _BREAKS.search(value) or value != value.strip():
        raise ValueError(f"header {name} holds a line break or blanks at an end")
    if not value.isascii() and any(ord(ch) > 255 for ch in value):
        raise ValueError(f"header {name} holds a character outside Latin-1")


def slices(parts: Iterable[bytes | memoryview], size: int = SLICE_BYTES) -> Iterator[bytes | memoryview]:
    """The joined parts in slices of at most `size` bytes: small parts are joined, large ones are not copied."""
    pending: list[bytes | memoryview] = []
    held = 0
    for part in parts:
        if held + len(part) <= size:
            pending.append(part)
            held += len(part)
            continue
        if pending:
            yield b"".join(pending)
            pending, held = [], 0
        view = memoryview(part)
        for at in range(0, len(part), size):
            yield view[at : at + size]
    if held:
        yield b"".join(pending)

"""HTTP/1.1 on one connection, without threads: frames requests, bounds what they may hold, writes answers.

A connection that waits costs a few kilobytes, so thousands may be held open. `Hall` knows them all: it bounds their
number and the bytes of bodies that are still coming in, and closes those that have been silent for too long.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from loadkit.engine.errors import ApiError
from loadkit.engine.response import dump

MAX_HEAD = 64 * 1024  # bytes of a request line with its headers
MAX_PIPELINED = 64 * 1024  # bytes that may come in while an answer is under way
MAX_PENDING = 256 * 2**20  # bytes of unfinished bodies over all connections
MAX_UNSENT = 4 * 2**20  # bytes of an answer that its client has not taken
IDLE_S = 60.0  # a connection that waits for bytes of a request for so long is closed
DRAIN = 2**20  # bytes of a refused request that are read, so that its client sees the answer and not a reset
DRAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Head:
    """A request without its body."""

    method: str
    path: str  # without query and trailing slash
    length: int  # bytes of the body
    keep_alive: bool
    chunked: bool  # the client understands chunked answers
    waits: bool  # the client waits for 100 Continue before it sends the body


def parse_head(raw: bytes, max_body: int) -> Head:
    """The request of a head without its blank line. Raises ApiError for anything out of order."""
    line, *rest = raw.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise ApiError(400, "invalid_request", "the request line is malformed, or not of HTTP/1.1 or 1.0")
    headers: dict[str, str] = {}
    for text in rest:
        name, colon, value = text.partition(":")
        if not colon or not name or name != name.strip() or "\n" in text or "\0" in text:
            raise ApiError(400, "invalid_request", "a header line is malformed")
        if headers.setdefault(name.lower(), value.strip()) != value.strip() and name.lower() == "content-length":
            raise ApiError(400, "invalid_length", "two different Content-Lengths")
    try:
        path = urlsplit(words[1]).path.rstrip("/")
    except ValueError:
        raise ApiError(400, "invalid_request", "the request target is no URL") from None
    new = words[2] == "HTTP/1.1"
    return Head(
        method=words[0],
        path=path,
        length=_length(words[0], headers, max_body),
        keep_alive=new and headers.get("connection", "").lower() != "close",
        chunked=new,
        waits=new and headers.get("expect", "").lower() == "100-continue",
    )


def _length(method: str, headers: dict[str, str], max_body: int) -> int:
    length = headers.get("content-length")
    if "transfer-encoding" in headers or (length is None and method == "POST"):
        raise ApiError(411, "length_required", "the request needs a Content-Length and no Transfer-Encoding")
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit()):
        raise ApiError(400, "invalid_length", "Content-Length must be a number")
    if len(length) > 15 or int(length) > max_body:
        raise ApiError(413, "payload_too_large", f"the body is above {max_body} bytes")
    return int(length)


class Hall:
    """All connections: the waiting ones in the order in which they began to wait."""

    def __init__(self, limit: int, now: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.now = now
        self.pending = 0  # bytes of bodies that are not complete
        self.open: set[Connection] = set()
        self._waiting: OrderedDict[Connection, float] = OrderedDict()

    def enter(self, connection: Connection) -> bool:
        """Take a new connection in; the longest waiting one makes room when there is none. False when all are busy."""
        if len(self.open) >= self.limit:
            if not self._waiting:
                return False
            next(iter(self._waiting)).abort()
        self.open.add(connection)
        self.waits(connection)
        return True

    def waits(self, connection: Connection) -> None:
        """The connection waits for bytes from now on."""
        self._waiting[connection] = self.now()
        self._waiting.move_to_end(connection)

    def works(self, connection: Connection) -> None:
        """The connection's request is being answered."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
        self.open.discard(connection)

    def sweep(self) -> None:
        """Close what has waited for IDLE_S seconds."""
        oldest = self.now() - IDLE_S
        while self._waiting:
            connection, since = next(iter(self._waiting.items()))
            if since > oldest:
                return
            connection.abort()


class Connection(asyncio.Protocol):
    """Reads one request after the other; the next one is looked at when the answer to the last has ended."""

    transport: asyncio.Transport

    def __init__(self, hall: Hall, max_body: int, handle: Callable[[Connection, Head, bytes], None]) -> None:
        self._hall = hall
        self._max_body = max_body
        self._handle = handle
        self._held = b""  # bytes of a head, or of requests that came before their turn
        self._head: Head | None = None
        self._body = bytearray()
        self._busy = False
        self._draining: int | None = None  # bytes of a refused request that are still taken
        self.keep_alive = True
        self.lost = False
        self.on_lost: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if not self._hall.enter(self):
            self.keep_alive = False
            self.refuse(ApiError(503, "overloaded", "too many connections; try again later", retry_after_s=1))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._hall.leave(self)
        self._forget_body()
        callback, self.on_lost = self.on_lost, None
        if callback is not None:
            callback()

    def abort(self) -> None:
        """End the connection without a word."""
        self._hall.leave(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._draining is not None:
            self._draining -= len(data)
            if self._draining < 0:
                self.abort()
        elif self._busy:
            self._held += data
            if len(self._held) > MAX_PIPELINED:
                self.abort()
        elif self._head is None:
            self._take_head(self._held + data)
        else:
            self._take_body(data)

    def _take_head(self, data: bytes) -> None:
        data = data.lstrip(b"\r\n")
        raw, end, rest = data.partition(b"\r\n\r\n")
        self._held = b"" if end else data
        if len(raw) > MAX_HEAD:
            self.refuse(ApiError(431, "header_too_large", f"a request's head ends at {MAX_HEAD} bytes"), last=True)
        elif end:
            try:
                self._head = parse_head(raw, self._max_body)
            except ApiError as error:
                self.refuse(error, last=True)
                return
            self.keep_alive = self._head.keep_alive
            if self._head.waits and self._head.length and not rest:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._take_body(rest)

    def _take_body(self, data: bytes) -> None:
        assert self._head is not None
        head, left = self._head, self._head.length - len(self._body)
        self._body += data[:left]
        self._hall.pending += len(data[:left])
        if len(self._body) < head.length:
            if self._hall.pending > MAX_PENDING:
                self.refuse(
                    ApiError(503, "overloaded", "too many bodies at once; try again later", retry_after_s=1), last=True
                )
            else:
                self._hall.waits(self)
            return
        self._held = data[left:]
        body = bytes(self._body)
        self._forget_body()
        self._head = None
        self._busy = True
        self._hall.works(self)
        self._handle(self, head, body)

    def _forget_body(self) -> None:
        self._hall.pending -= len(self._body)
        self._body = bytearray()

    def respond(self, status: int, content_type: str, body: bytes, extra: str = "") -> None:
        """A whole answer with its length."""
        self.begin(status, content_type, f"Content-Length: {len(body)}\r\n{extra}", body)
        self.end()

    def begin(self, status: int, content_type: str, extra: str = "", body: bytes = b"") -> None:
        """The head of an answer; `extra` are whole header lines."""
        close = "" if self.keep_alive else "Connection: close\r\n"
        line = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nServer: loadkit-engine\r\n"
        self.write(f"{line}Content-Type: {content_type}\r\n{extra}{close}\r\n".encode("latin-1") + body)

    def write(self, data: bytes) -> None:
        """Send bytes; a client that lets too many of them lie is cut off."""
        if self.lost:
            return
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > MAX_UNSENT:
            self.abort()

    def end(self) -> None:
        """The answer is out: close, or look at the next request."""
        self.on_lost = None
        if self.lost or self.transport.is_closing():
            return
        if not self.keep_alive:
            self.transport.close()
            return
        self._hall.waits(self)
        # A turn of the loop for each pipelined request: a call inside the other would nest as deep as there are some.
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Go on with the bytes that came before their turn."""
        self._busy = False
        held, self._held = self._held, b""
        if held and not self.lost:
            self.data_received(held)

    def refuse(self, error: ApiError, *, last: bool = False) -> None:
        """Answer with an error; with `last` the rest of the connection makes no sense, and it ends."""
        extra = "" if error.retry_after_s is None else f"Retry-After: {error.retry_after_s}\r\n"
        body = dump(error.body())
        if not last:
            self.respond(error.status, "application/json", body, extra)
            return
        self.keep_alive = False
        self.begin(error.status, "application/json", f"Content-Length: {len(body)}\r\n{extra}", body)
        self._forget_body()
        self._draining = DRAIN
        if not self.lost and self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(DRAIN_S, self.transport.abort)

"""HTTP/1.1 on one connection: frames requests, scans their bodies as they arrive, stamps the last body byte."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from loadkit.sim.count import KEEP, BodyScan
from loadkit.sim.wire import chunk

log = logging.getLogger("loadkit.sim")

MAX_HEAD = 64 * 1024
MAX_BODY = 64 * 1024 * 1024
MAX_UNSENT = 64 * 1024 * 1024
MAX_HELD = 1024 * 1024
# A text to be turned into tokens must be at hand; these are never timed.
KEEP_TOKENIZE = 64 * 1024
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
           411: "Length Required", 413: "Content Too Large", 429: "Too Many Requests", 431: "Header Fields Too Large",
           500: "Internal Server Error", 503: "Service Unavailable", 505: "HTTP Version Not Supported"}  # fmt: skip


_CONTROL = frozenset("\r\n\0")


class Refused(Exception):
    """A request that is answered with `status` and a message; after a framing fault the connection closes."""

    def __init__(self, status: int, message: str, code: str = "invalid_request") -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass(slots=True)
class Request:
    """One request; `received_ns` is stamped when the read that completed the body returned."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    scan: BodyScan
    body_bytes: int
    received_ns: int = 0


def parse_head(head: bytes) -> Request:
    """The request of a head without its blank line; Refused for anything out of order."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[1].startswith("/"):
        raise Refused(400, "malformed request line")
    if parts[2] != "HTTP/1.1":
        raise Refused(505, "only HTTP/1.1 is spoken here")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or not _CONTROL.isdisjoint(value):
            raise Refused(400, "malformed header line")
        if headers.setdefault(name.lower(), value.strip()) != value.strip() and name.lower() == "content-length":
            raise Refused(400, "two different content-lengths")
    if "transfer-encoding" in headers:
        raise Refused(411, "send a content-length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise Refused(400, "malformed content-length")
    if int(length) > MAX_BODY:
        raise Refused(413, f"bodies end at {MAX_BODY} bytes")
    try:
        target = urlsplit(parts[1])
    except ValueError:
        raise Refused(400, "malformed request target") from None
    query = {name: values[-1] for name, values in parse_qs(target.query).items()}
    keep = KEEP_TOKENIZE if target.path == "/tokenize" else KEEP
    return Request(parts[0], target.path, query, headers, BodyScan(keep), int(length))


class Connection(asyncio.BufferedProtocol):
    """Reads one request after the other; the next one is looked at when the answer to the last has ended."""

    def __init__(self, scratch: memoryview, handle: Callable[[Connection, Request], None]) -> None:
        # One read buffer for all connections: what is in it is taken before the next read can happen.
        self._scratch = scratch
        self._handle = handle
        self._head = b""
        self._request: Request | None = None
        self._left = 0
        self._busy = False
        self._held = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self.on_lost: Callable[[], None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        now = time.perf_counter_ns()
        self._take(bytes(self._scratch[:nbytes]), now)

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _take(self, data: bytes, now_ns: int) -> None:
        try:
            while data and not self._busy and not self.transport.is_closing():
                data = self._read(data, now_ns)
        except Refused as refused:
            # The rest of this connection cannot be understood.
            self.plain(refused.status, refused.message)
            self.transport.close()
            return
        if data:
            self._held += data
            if len(self._held) > MAX_HELD:
                self.transport.abort()

    def _read(self, data: bytes, now_ns: int) -> bytes:
        """Use some of `data`, give back the rest."""
        if self._request is None:
            data = self._read_head(self._head + data)
            if self._request is None:
                return b""
        part, rest = data[: self._left], data[self._left :]
        self._left -= len(part)
        self._request.scan.feed(part)
        if not self._left:
            request, self._request = self._request, None
            request.received_ns = now_ns
            self._busy = True
            self._answer(request)
        return rest

    def _read_head(self, data: bytes) -> bytes:
        data = data.lstrip(b"\r\n")
        head, end, rest = data.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD:
            raise Refused(431, f"request heads end at {MAX_HEAD} bytes")
        if not end:
            self._head = data
            return b""
        self._head = b""
        self._request = parse_head(head)
        self._left = self._request.body_bytes
        if self._left and not rest and self._request.headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return rest

    def _answer(self, request: Request) -> None:
        try:
            self._handle(self, request)
        except Exception as error:  # noqa: BLE001 one request's bug must not end the others' streams
            log.error("%s %s: %s: %s", request.method, request.path[:80], type(error).__name__, str(error)[:200])
            self.plain(500, "internal error, see the log of the server")

    def write(self, data: bytes) -> bool:
        """Hand `data` to the socket; False when some of it had to wait for the client."""
        self.transport.write(data)
        unsent = self.transport.get_write_buffer_size()
        if unsent > MAX_UNSENT:
            self.transport.abort()
        return unsent == 0

    def respond(self, status: int, body: bytes, content_type: str, headers: str = "") -> int:
        """A whole answer with a length; the connection stays open. Returns its size in bytes."""
        data = response_head(status, content_type, f"Content-Length: {len(body)}\r\n{headers}") + body
        self.write(data)
        self.ended()
        return len(data)

    def plain(self, status: int, message: str) -> None:
        self.respond(status, message.encode("utf-8", "replace") + b"\n", "text/plain; charset=utf-8")

    async def send_pieces(self, pieces: list[Callable[[], bytes]], content_type: str) -> None:
        """A chunked answer made piece by piece, so that a long one delays no stream by more than a piece."""
        self.write(response_head(200, content_type, "Transfer-Encoding: chunked\r\n"))
        for piece in pieces:
            await self._writable.wait()
            if self.transport.is_closing():
                return
            self.write(chunk(piece()))
            await asyncio.sleep(0)
        self.write(b"0\r\n\r\n")
        self.ended()

    def ended(self) -> None:
        """The answer is out: go on to the next request."""
        self._busy = False
        self.on_lost = None
        held, self._held = self._held, b""
        if held:
            # At once, not in a later turn: new bytes must not overtake the ones that waited.
            self._take(held, time.perf_counter_ns())

    def reset(self) -> None:
        """End the connection by a TCP reset."""
        raw = self.transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


def response_head(status: int, content_type: str, headers: str) -> bytes:
    """Status line and headers; `headers` are whole lines."""
    line = f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\nContent-Type: {content_type}\r\n{headers}\r\n"
    return line.encode("latin-1", "replace")

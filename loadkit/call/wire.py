"""HTTP/1.1 responses, sans-IO: bytes of one response in, body bytes out, split wherever the network likes.

Framings: chunked (trailers read and dropped), Content-Length, until the connection closes. 1xx heads are skipped,
redirects are an ordinary response. Rules follow RFC 9112; where servers are sloppy (bare LF in heads, no reason
phrase, folded lines) the reader is as lenient as h11, and as strict about framing.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_STATUS_LINE = re.compile(rb"HTTP/(1\.[0-9]) ([0-9]{3})(?: [^\x00\r\n]*)?")
_HEADER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00\r\n]*?)[ \t]*")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[^\r\n]*)?[ \t]*\r\n")
_HEAD_END = re.compile(rb"\n\r?\n")
_OPENING = b"HTTP/1."
_SIZES_KEPT = 64


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What a response may cost in memory outside its body, in bytes and lines."""

    head_bytes: int = 64 * 1024  # all heads of one response (1xx too), and again its trailers
    headers: int = 200
    line_bytes: int = 16 * 1024


class ResponseReader:
    """Reads one response. `feed` never raises: a response that breaks the rules sets `error` and yields no more.

    `status` and `headers` are set once the final head is complete, `finished` once the body is; `excess` says that
    bytes came after the end. Time is linear in the bytes fed.
    """

    __slots__ = (
        "_carry",
        "_chunk_end",
        "_head_bytes",
        "_left",
        "_limits",
        "_method",
        "_minor",
        "_scan",
        "_sizes",
        "_step",
        "_trailer",
        "_whole",
        "error",
        "excess",
        "finished",
        "headers",
        "received",
        "reusable",
        "status",
    )

    def __init__(self, method: str = "POST", limits: WireLimits | None = None) -> None:
        self.status: int | None = None
        self.headers: list[tuple[str, str]] = []
        self.finished = False
        self.error: str | None = None
        self.excess = False
        self.received = False  # any byte at all
        self.reusable = False  # keep-alive by the head's word; only meaningful once finished
        self._method = method
        self._limits = limits or WireLimits()
        # A function and not a bound method, which would tie the reader to itself: while streams are measured nothing
        # looks for such garbage, and it would grow with every request.
        self._step: Callable[[ResponseReader, bytes], bytes] = ResponseReader._head
        self._carry = bytearray()  # an incomplete head or line
        self._scan = 0  # carry bytes already searched for the end of the head
        self._head_bytes = 0
        self._minor = b"1.1"
        self._left = 0  # body or chunk bytes to come
        self._chunk_end = False  # the CRLF after a chunk's data is due
        self._trailer = False
        self._whole = False  # the last read ended where a chunk did
        self._sizes: dict[bytes, int] = {}  # size lines of chunks that were a read of their own

    def feed(self, data: bytes) -> bytes:
        """Take one network read; return the body bytes it held."""
        if not data or self.error is not None:
            return b""
        self.received = True
        return self._step(self, data)

    @property
    def open_ended(self) -> bool:
        """The body ends when the connection does, so a clean FIN is its proper end."""
        return self._step is ResponseReader._until_close

    @property
    def after_body(self) -> bytes:
        """What follows the body bytes of a read that ends where a chunk does."""
        return b"\r\n" if self._step is ResponseReader._chunked else b""

    # -- head -----------------------------------------------------------------------------------------------------

    def _head(self, data: bytes) -> bytes:
        carry = self._carry
        carry += data
        while True:
            opening = min(len(carry), len(_OPENING))
            if carry[:opening] != _OPENING[:opening]:
                return self._fail("not an HTTP/1.1 response")
            end = _HEAD_END.search(carry, max(0, self._scan - 2))
            if end is None:
                self._scan = len(carry)
                if self._head_bytes + len(carry) > self._limits.head_bytes:
                    return self._fail(f"response head longer than {self._limits.head_bytes} bytes")
                return b""
            self._head_bytes += end.end()
            if self._head_bytes > self._limits.head_bytes:
                return self._fail(f"response head longer than {self._limits.head_bytes} bytes")
            head, self._scan = bytes(carry[: end.start()]), 0
            del carry[: end.end()]
            if not self._parse_head(head):
                return b""
            if self.status is not None:
                rest = bytes(carry)
                carry.clear()
                return self._step(self, rest) if rest else b""
            if not carry:
                return b""

    def _parse_head(self, head: bytes) -> bool:
        lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
        found = _STATUS_LINE.fullmatch(lines[0])
        if found is None:
            self._fail("illegal status line")
            return False
        headers = self._parse_headers(lines[1:])
        if headers is None:
            return False
        self._minor, status = found[1], int(found[2])
        if status == 101 or status < 100:
            self._fail(f"unexpected status {status}")
            return False
        if status >= 200:
            return self._begin_body(status, headers)
        return True

    def _parse_headers(self, lines: list[bytes]) -> list[tuple[str, str]] | None:
        if len(lines) > self._limits.headers:
            self._fail(f"more than {self._limits.headers} header lines")
            return None
        headers: list[tuple[str, str]] = []
        for line in lines:
            if len(line) > self._limits.line_bytes:
                self._fail(f"header line longer than {self._limits.line_bytes} bytes")
                return None
            if line[:1] in b" \t" and line and headers:  # a folded line continues the one before
                name, value = headers[-1]
                headers[-1] = (name, f"{value} {line.strip().decode('latin-1')}")
                continue
            found = _HEADER.fullmatch(line)
            if found is None:
                self._fail("illegal header line")
                return None
            headers.append((found[1].decode("latin-1"), found[2].decode("latin-1")))
        return headers

    # -- framing --------------------------------------------------------------------------------------------------

    def _begin_body(self, status: int, headers: list[tuple[str, str]]) -> bool:
        codings = _values(headers, "transfer-encoding")
        lengths = set(_values(headers, "content-length"))
        if codings not in ([], ["chunked"]):
            self._fail("transfer-encoding other than chunked")
            return False
        if len(lengths) > 1 or any(not (n.isascii() and n.isdigit() and len(n) <= 16) for n in lengths):
            self._fail("illegal content-length")
            return False
        # A head with both framings may be smuggling: read it, but do not trust the connection afterwards.
        closing = "close" in _values(headers, "connection") or (bool(codings) and bool(lengths))
        self.reusable = self._minor == b"1.1" and not closing
        self.status, self.headers = status, headers
        if status in (204, 304) or self._method == "HEAD":
            self._finish()
        elif codings:
            self._step = ResponseReader._chunked
        elif lengths:
            self._left = int(lengths.pop())
            self._step = ResponseReader._counted
            if self._left == 0:
                self._finish()
        else:
            self.reusable = False
            self._step = ResponseReader._until_close
        return True

    def _until_close(self, data: bytes) -> bytes:
        return data

    def _counted(self, data: bytes) -> bytes:
        if len(data) < self._left:
            self._left -= len(data)
            return data
        body, self.excess = data[: self._left], len(data) > self._left
        self._finish()
        return body

    def _chunked(self, data: bytes) -> bytes:
        if self._whole:  # one chunk is one read, as a server sends that flushes every token
            line = data[: data.find(b"\n", 0, 20) + 1]
            if len(line) + self._sizes.get(line, len(data)) + 2 == len(data) and data.endswith(b"\r\n"):
                return data[len(line) : -2]
        body = self._chunks(data)
        self._whole = not (self._left or self._carry or self._chunk_end or self._trailer)
        return body

    def _chunks(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        at, size = 0, len(data)
        while at < size:
            whole = self._whole_chunk(data, at)
            if whole is not None:
                start, stop = whole
                pieces.append(data[start:stop])
                if len(self._sizes) < _SIZES_KEPT:
                    self._sizes[data[at:start]] = stop - start
                at = stop + 2
                continue
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._chunk_end = not self._left
                continue
            at = self._framing_line(data, at)
            if self.error is not None:
                break
            if self.finished:
                self.excess = at < size
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _whole_chunk(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Where the data of a chunk stands that begins and ends in `data[at:]`: the usual case, without its lines."""
        if self._left or self._carry or self._chunk_end or self._trailer:
            return None
        found = _CHUNK_SIZE.match(data, at)
        if found is None or found.end() - at > self._limits.line_bytes:
            return None
        start = found.end()
        stop = start + int(found[1], 16)
        return (start, stop) if stop > start and data.startswith(b"\r\n", stop) else None

    def _framing_line(self, data: bytes, at: int) -> int:
        """Take one line of chunk framing, or what there is of it, from `data[at:]`; return where it stopped."""
        end = data.find(b"\n", at) + 1
        line = data[at : end or len(data)]
        if self._carry:
            self._carry += line
            line = bytes(self._carry)
            self._carry.clear()
        if self._chunk_end and line != b"\r\n"[: len(line)]:
            self._fail("chunk data not followed by CRLF")
        elif len(line) > self._limits.line_bytes:
            self._fail(f"chunk line longer than {self._limits.line_bytes} bytes")
        elif not end:
            self._carry += line
        elif self._chunk_end:
            self._chunk_end = False
        elif self._trailer:
            self._take_trailer(line)
        else:
            self._take_size(line)
        return end or len(data)

    def _take_size(self, line: bytes) -> None:
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            self._fail("illegal chunk size")
            return
        self._left = int(found[1], 16)
        if self._left == 0:
            self._trailer, self._head_bytes = True, 0

    def _take_trailer(self, line: bytes) -> None:
        if line in (b"\r\n", b"\n"):
            self._finish()
            return
        self._head_bytes += len(line)
        if self._head_bytes > self._limits.head_bytes:
            self._fail(f"trailers longer than {self._limits.head_bytes} bytes")
        elif _HEADER.fullmatch(line.removesuffix(b"\n").removesuffix(b"\r")) is None:
            self._fail("illegal trailer line")

    # -- ends -----------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self.finished = True
        self._step = ResponseReader._after_end

    def _after_end(self, data: bytes) -> bytes:
        self.excess = True
        return b""

    def _fail(self, reason: str) -> bytes:
        self.error = reason
        self._carry.clear()
        return b""


def _values(headers: list[tuple[str, str]], name: str) -> list[str]:
    """The comma-separated values of all headers of this name, lower case."""
    found = [value for key, value in headers if key.lower() == name]
    return [part.strip().lower() for value in found for part in value.split(",") if part.strip()]

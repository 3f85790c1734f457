"""Bytes to lines: LF, CRLF and bare CR end a line, also when a pair is split across reads; nothing else does."""

MAX_LINE_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class LineSplitter:
    """Collects reads and hands out complete lines without their ends.

    Time is linear in the bytes fed: the pieces of an unfinished line are joined once, when it ends. A line above
    `limit` bytes sets `overflow`; from then on nothing more is handed out and nothing is kept.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.overflow = False
        self._limit = limit
        self._pieces: list[bytes] = []
        self._pending = 0
        self._after_cr = False
        self._start: bytes | None = b""  # bytes held while they may still become a BOM; None once decided

    def feed(self, data: bytes) -> list[bytes]:
        """The lines this read completes."""
        if self._start is not None:
            data = self._without_bom(data)
        if not data or self.overflow:
            return []
        if self._after_cr:
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        cut = data.rfind(b"\n")
        if cut < 0:
            self._keep(data)
            return []
        lines = data[:cut].split(b"\n")
        if self._pieces:
            lines[0] = b"".join([*self._pieces, lines[0]])
            self._pieces.clear()
            self._pending = 0
        if len(lines[0]) > self._limit or len(data) > self._limit:
            lines = self._within_limit(lines)
        self._keep(data[cut + 1 :])
        return lines

    @property
    def idle(self) -> bool:
        """Nothing of an earlier read is left: the next read is understood by itself."""
        return self._start is None and not (self._pieces or self._after_cr or self.overflow)

    def tail(self, most: int) -> bytes:
        """The unfinished line if it has at most `most` bytes, else nothing."""
        return b"".join(self._pieces) if 0 < self._pending <= most else b""

    def rest(self) -> bytes:
        """The unfinished line at the end of the stream; it is given away."""
        held, self._start = self._start or b"", None
        line = b"".join([held, *self._pieces])
        self._pieces.clear()
        self._pending = 0
        return line

    def _without_bom(self, data: bytes) -> bytes:
        held = (self._start or b"") + data
        if len(held) < len(_BOM) and _BOM.startswith(held):
            self._start = held
            return b""
        self._start = None
        return held.removeprefix(_BOM)

    def _keep(self, piece: bytes) -> None:
        if not piece or self.overflow:
            return
        self._pieces.append(piece)
        self._pending += len(piece)
        if self._pending > self._limit:
            self._overflowed()

    def _within_limit(self, lines: list[bytes]) -> list[bytes]:
        for index, line in enumerate(lines):
            if len(line) > self._limit:
                self._overflowed()
                return lines[:index]
        return lines

    def _overflowed(self) -> None:
        self.overflow = True
        self._pieces.clear()
        self._pending = 0

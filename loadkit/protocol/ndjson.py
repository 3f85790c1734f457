"""Newline-delimited JSON from bytes: one event per line that is not blank."""

from loadkit.protocol.lines import MAX_LINE_BYTES, LineSplitter
from loadkit.protocol.sse import Event


class NdjsonDecoder:
    """Reads to lines. There is no terminal marker in the framing: `done` stays False, the objects say when it ends."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.done = False
        self._lines = LineSplitter(limit)

    @property
    def overflow(self) -> bool:
        """A line above the limit was met; nothing more is handed out."""
        return self._lines.overflow

    @property
    def idle(self) -> bool:
        """Nothing of an earlier read is left: the next read is understood by itself."""
        return self._lines.idle

    def feed(self, data: bytes) -> list[Event]:
        """The lines this read completes, in order."""
        return [(None, line) for line in self._lines.feed(data) if line.strip()]

    def flush(self) -> list[Event]:
        """The last line where it has no line end; possibly cut."""
        rest = self._lines.rest()
        return [(None, rest)] if rest.strip() and not self.overflow else []

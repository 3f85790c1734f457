"""Server-sent events from bytes, by the rules of the WHATWG event-stream format, with two readings servers need.

A line that starts with `data:` and `[DONE]` ends the stream at once, without waiting for a blank line or a line end:
some servers send neither and keep the socket open. An event still open at the end of the stream is handed out.
"""

from loadkit.protocol.lines import MAX_LINE_BYTES, LineSplitter

Event = tuple[bytes | None, bytes]
"""Event name (None when the stream gave none) and the data lines joined with a newline."""

_IGNORED = (b"", b"id", b"retry")  # comments, and fields that mean nothing here
_DONE = b"[DONE]"
_DONE_TAIL = 64  # an unfinished line longer than this is no [DONE] line, and looking at it each read would cost


class SseDecoder:
    """Reads to events. `done` is set by [DONE], `overflow` by an event above `limit` bytes; both end the decoding.

    `stray` tells that a line was no field of the format: an HTML page or a bare JSON body has such lines.
    """

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self.done = False
        self.overflow = False
        self.stray = False
        self._limit = limit
        self._lines = LineSplitter(limit)
        self._name: bytes | None = None
        self._data: list[bytes] = []
        self._size = 0

    @property
    def idle(self) -> bool:
        """Nothing of an earlier read is left: the next read is understood by itself."""
        return self._lines.idle and self._name is None and not (self._data or self.done or self.overflow)

    def feed(self, data: bytes) -> list[Event]:
        """The events this read completes, in order."""
        events: list[Event] = []
        if self.done or self.overflow:
            return events
        for line in self._lines.feed(data):
            if line:
                self._field(line, events)
                if self.done or self.overflow:
                    return events
            else:
                self._dispatch(events)
        self.overflow = self._lines.overflow
        tail = self._lines.tail(_DONE_TAIL)
        if tail and _is_done(tail):
            self._finish(events)
        return events

    def flush(self) -> list[Event]:
        """What is left at the end of the stream: the open event, its last line possibly cut."""
        events: list[Event] = []
        if self.done or self.overflow:
            return events
        rest = self._lines.rest()
        if rest:
            self._field(rest, events)
        if not self.done:
            self._dispatch(events)
        return events

    def _field(self, line: bytes, events: list[Event]) -> None:
        if line.startswith(b"data:"):
            if _DONE in line and _is_done(line):
                self._finish(events)
                return
            self._add(line[6:] if line[5:6] == b" " else line[5:])
            return
        name, _, value = line.partition(b":")
        if name == b"event":
            self._name = value.removeprefix(b" ")
        elif name == b"data":
            self._add(b"")
        elif name not in _IGNORED:
            self.stray = True

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data)
        if self._size > self._limit:
            self.overflow = True
            self._data.clear()

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            events.append((self._name, self._data[0] if len(self._data) == 1 else b"\n".join(self._data)))
            self._data = []
            self._size = 0
        self._name = None

    def _finish(self, events: list[Event]) -> None:
        self._dispatch(events)
        self.done = True


def _is_done(line: bytes) -> bool:
    return line.startswith(b"data:") and line[5:].lstrip(b" \t").startswith(_DONE)

"""One attempt at a request: the sink that turns what a transport tells into marks and feeds the protocol's parser."""

from collections.abc import Callable

from loadkit.call.deadlines import Marks, next_deadline
from loadkit.call.transport import ClockNs, End
from loadkit.plan.endpoint import Timeouts
from loadkit.protocol.contract import Protocol
from loadkit.protocol.parser import Parser
from loadkit.protocol.retry_after import header
from loadkit.record.names import Outcome

MAX_BODY_BYTES = 256 * 1024 * 1024
REASONING_EVENTS = 65_536  # some servers do not count reasoning against the limit of output tokens


def most_events(max_tokens: int) -> int:
    """Token events after which an answer is no answer to a request for this many tokens: it may have no end."""
    return 4 * max_tokens + 64


class Attempt:
    """A sink of one exchange. Everything it holds may be read at any time, also when it was stopped half-way.

    `at_t0` is called at t0 (and again when a stale connection is redone): it takes the labels of that moment.
    """

    def __init__(
        self,
        protocol: Protocol,
        timeouts: Timeouts,
        started_ns: int,
        at_t0: Callable[[], None],
        max_events: int | None = None,
    ) -> None:
        """`timeouts` are those of the tier, `started_ns` the moment the transport is called. Beyond `max_events` token
        events the answer is not read on."""
        self.marks = Marks(started_ns)
        self.parser: Parser = protocol.parser(None, None)
        self.headers: list[tuple[str, str]] = []
        self.connect_ns: int | None = None  # time to open the connection; None on a reused one
        self._protocol = protocol
        self._timeouts = timeouts
        self._at_t0 = at_t0
        self._max_events = max_events
        self._events = 0
        self.settled = False
        self.alike = (b"", b"")
        self._flood = ""

    def connecting(self, ns: int) -> None:
        self.marks = Marks(ns)
        self.settled = False
        self.alike = (b"", b"")

    def connected(self, started_ns: int, ended_ns: int) -> None:
        self.connect_ns = ended_ns - started_ns

    def sending(self, ns: int) -> None:
        self.marks.t0 = ns
        self._at_t0()

    def sent(self, ns: int) -> None:
        self.marks.sent = ns

    def head(self, ns: int, status: int, headers: list[tuple[str, str]]) -> None:
        self.marks.head, self.marks.status = ns, status
        self.headers = headers
        self.parser = self._protocol.parser(header(headers, "content-type"), status)

    def read(self, ns: int, data: bytes) -> bool:
        parser, marks = self.parser, self.marks
        alike = parser.feed(ns, data)
        answer = parser.answer
        if alike and self.settled and answer.bytes_received <= MAX_BODY_BYTES:
            self._events += 1
            marks.last_event = ns
            return self._max_events is not None and self._events > self._max_events and self._too_long(self._max_events)
        if answer.data_events != self._events:
            self._events, marks.last_event = answer.data_events, ns
        if marks.first_token is None:
            marks.first_token = parser.first_token_at
        marks.finish = answer.finish_at
        self.settled = marks.first_token is not None and marks.finish is None
        self.alike = parser.alike if self.settled else (b"", b"")
        if answer.bytes_received > MAX_BODY_BYTES:
            self._flood = f"answer larger than {MAX_BODY_BYTES} bytes"
            return True
        if self._max_events is not None and self._events > self._max_events and not parser.done:
            return self._too_long(self._max_events)
        return parser.done

    def _too_long(self, limit: int) -> bool:
        answer = self.parser.answer
        if len(answer.event_times) <= limit + (REASONING_EVENTS if answer.reasoning_chars else 0):
            return False
        self._flood = f"stopped by us after {len(answer.event_times)} token events, far more than max_tokens allows"
        return True

    def deadline(self, now_ns: int) -> tuple[int, Outcome]:
        return next_deadline(self._timeouts, self.marks)

    def ending(self, end: End) -> End:
        """The transport's end, corrected by what only the sink knows."""
        if self._flood and not self.parser.done:
            return End("fault", Outcome.PROTOCOL_ERROR, self._flood, end.at_ns)
        return end

    @property
    def compression(self) -> str | None:
        """The content coding of an answer that did not keep to identity: its events cannot be read, nor timed."""
        coding = (header(self.headers, "content-encoding") or "identity").strip().lower()
        return None if coding == "identity" else coding[:40]


def stopped(clock: ClockNs, detail: str = "stopped by us") -> End:
    """The end of an attempt that we stopped."""
    return End("stopped", Outcome.ABORTED, detail, clock())

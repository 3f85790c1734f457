"""The contract of a transport: one HTTP exchange, told to a sink as it happens.

A transport knows sockets and HTTP/1.1 framing and nothing of tokens. It stamps `time.perf_counter_ns` itself, before
any parsing, and tells the sink. Another transport is one class with `name`, `exchange` and `close`, one line in
`choose.TRANSPORTS`, and the contract test in `tests/call`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from loadkit.record.names import Outcome

How = Literal["eof", "stopped", "truncated", "reset", "fault"]
ClockNs = Callable[[], int]

# After the sink has had enough, the body may still end properly within this time; else the connection is given up.
DRAIN_NS = 50_000_000
DRAIN_BYTES = 1 << 20
SLICE_BYTES = 128 * 1024  # about 0.1 ms of loop time, TLS included


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request, ready to send: the body is its parts joined. Host and Content-Length are the transport's work."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: tuple[bytes | memoryview, ...]

    @property
    def body_bytes(self) -> int:
        """Length of the body in bytes."""
        return sum(map(len, self.body))


@dataclass(frozen=True, slots=True)
class End:
    """How an exchange ended.

    `how`: eof = the body ended as its framing says (or a clean FIN where the connection delimits it); stopped = the
    sink had enough; truncated = a framed body was cut; reset = the connection broke; fault = anything else, deadlines
    included. `outcome` is set where the transport alone knows the name of it: before the response head, deadlines,
    broken HTTP. None leaves the name to the protocol. `at_ns` is the stamp of the read (or timer) that ended it.
    """

    how: How
    outcome: Outcome | None
    detail: str
    at_ns: int


class Sink(Protocol):
    """What a transport tells, in this order; it begins again at `connecting` when a stale connection is replaced.

    Stamps are `perf_counter_ns` of this process. Methods must be quick: they run in the event loop's callback.
    """

    @property
    def settled(self) -> bool:
        """The deadline can only move later now, so a timer that is set to it need not be set anew after each read."""

    @property
    def alike(self) -> tuple[bytes, bytes]:
        """How body bytes begin and end that may be told late, with those that come next: token events like the last.

        Empty while all must be told at once, and always while not settled.
        """

    def connecting(self, ns: int) -> None:
        """A new connection is about to be opened. Not called when one is reused."""

    def connected(self, started_ns: int, ended_ns: int) -> None:
        """It was opened: name lookup, TCP and TLS."""

    def sending(self, ns: int) -> None:
        """t0: the first byte of the request head is about to be handed to the socket."""

    def sent(self, ns: int) -> None:
        """The last byte of the body has been handed over. Not called when the server answered or broke before."""

    def head(self, ns: int, status: int, headers: list[tuple[str, str]]) -> None:
        """The read at `ns` completed the final response head; 1xx heads are not told."""

    def read(self, ns: int, data: bytes) -> bool:
        """Body bytes of one network read, framing removed. True = enough: the rest is not wanted."""

    def deadline(self, now_ns: int) -> tuple[int, Outcome] | None:
        """Next moment (ns) at which the exchange must end, and as what; OK ends it as `stopped`. None = no limit."""


class Transport(Protocol):
    """One user's way to a server: at most one connection, reused while the server keeps it.

    A reused connection that breaks before any byte of an answer (the server closed it while it was idle) is replaced
    once by a new one and the request sent again: t0 starts anew and nothing counts as a failure.
    """

    @property
    def name(self) -> str:
        """Goes into Record.transport."""

    @property
    def proxied(self) -> bool:
        """Whether it goes through a proxy; goes into Record.proxied."""

    def exchange(self, request: WireRequest, sink: Sink) -> End:
        """Send and read until an end. Never raises for network reasons; every wait is bounded by `sink.deadline`."""

    def close(self) -> None:
        """Close the connection, if any. The transport may be used again."""


class Overdue(Exception):
    """A deadline of the sink has passed; `outcome` is what the exchange must end as."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


def remaining_s(sink: Sink, now_ns: int) -> float | None:
    """Seconds until the sink's next deadline, None without one; raises Overdue when it has passed."""
    due = sink.deadline(now_ns)
    if due is None:
        return None
    if due[0] <= now_ns:
        raise Overdue(due[1])
    return (due[0] - now_ns) / 1e9


def overdue_end(outcome: Outcome, now_ns: int) -> End:
    """The end of an exchange whose deadline has passed."""
    if outcome is Outcome.OK:
        return End("stopped", None, "nothing more came after the finish", now_ns)
    return End("fault", outcome, f"deadline passed: {outcome.value}", now_ns)

"""One visit of an open loop: which of the free streams sends what is due, and what is dropped. Pure state, no clock.

Warm-up comes first. Then whoever keeps the time calls `arrive` for each arrival of the schedule as it is due; one that
finds no stream free is dropped, because a request that waited here would be the client's queue and not the server's.
The stream that became free last is the first to be taken, so that as few connections as possible are used and those
stay warm.
"""

from collections.abc import Sequence

from loadkit.plan.arrivals import Arrival, share
from loadkit.plan.stages import Ticket
from loadkit.record.names import Phase


class OpenStage:
    """The state of one visit, or of one worker's part of it: every `workers`-th arrival and warm-up request from
    `index` on. `arrivals` are those of the whole visit."""

    def __init__(
        self, streams: int, warmup: int, arrivals: Sequence[Arrival], index: int = 0, workers: int = 1
    ) -> None:
        self.streams = streams
        self.workers = workers
        self.arrivals = share(arrivals, index, workers)
        self.measured = 0  # measured requests that have ended, whatever their outcome
        self.offered = 0  # arrivals that came due before the stage was stopped
        self.dropped = 0
        self.stopped = False
        self._warmups = [Ticket(Phase.WARMUP, 0, 0, turn) for turn in range(1, warmup + 1)][index::workers][::-1]
        self._idle: list[int] = []  # streams that wait, the last one to come at the end
        self._in_flight: set[Ticket] = set()

    @property
    def warm(self) -> bool:
        """Every warm-up request has ended, or none will be sent any more."""
        return self.stopped or not (self._warmups or self._in_flight or self.offered)

    @property
    def planned(self) -> int:
        """Measured requests: every arrival but those that were dropped."""
        return len(self.arrivals) - self.dropped

    @property
    def exhausted(self) -> bool:
        """No further request will start."""
        return self.stopped or not (self._warmups or self.offered < len(self.arrivals))

    @property
    def finished(self) -> bool:
        """Nothing is in flight and nothing more will be."""
        return self.exhausted and not self._in_flight

    def come(self, stream: int) -> Ticket | None:
        """A stream is free: it gets a warm-up request, or waits."""
        if self._warmups and not self.stopped:
            return self._give(self._warmups.pop())
        self._idle.append(stream)
        return None

    def go(self, stream: int) -> None:
        """A stream that waited waits no longer."""
        if stream in self._idle:
            self._idle.remove(stream)

    def arrive(self, arrival: Arrival, start_ns: int) -> tuple[int, Ticket] | None:
        """An arrival is due, by a schedule that began at `start_ns`: the stream that sends it, or None, dropped."""
        self.offered += 1
        if not self._idle:
            self.dropped += 1
            return None
        # The same bytes for the same number, whichever stream and worker send it.
        ticket = Ticket(Phase.MEASURE, 1, 0, arrival.number, start_ns + arrival.due_ns)
        return self._idle.pop(), self._give(ticket)

    def done(self, ticket: Ticket) -> None:
        """A request has ended, however it ended."""
        self._in_flight.remove(ticket)
        self.measured += ticket.phase is Phase.MEASURE

    def withdraw(self, ticket: Ticket) -> None:
        """A request was not sent after all; it stays missing in what was measured."""
        self._in_flight.remove(ticket)

    def stop(self) -> None:
        """Start nothing more; finished when those in flight are done."""
        self.stopped = True

    def _give(self, ticket: Ticket) -> Ticket:
        self._in_flight.add(ticket)
        return ticket

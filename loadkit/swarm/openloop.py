"""The course of one visit of an open loop: keeps the time, and hands each arrival to a stream that waits for it.

The decisions are `plan.open_stage.OpenStage`. The schedule is absolute: where this process was held up, all arrivals
that are overdue go out at once, each with the time it was planned for, and no later one moves.
"""

import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from loadkit.plan.arrivals import schedule
from loadkit.plan.ladder import Plan, Visit
from loadkit.plan.open_stage import OpenStage
from loadkit.plan.stages import Ticket

LEAD_NS = 20_000_000  # from the end of warm-up to the start of the schedule
Arrived = Callable[[Visit, dict[str, int]], None]
"""Told what became of the arrivals of a visit, once all of them are sent or dropped: {planned, offered, dropped}."""
Came = Callable[[Visit, bool], None]
"""Told of each arrival as it comes due, and whether it was dropped."""


class Arrivals:
    """What came due since it was last asked, for the rows of telemetry: they add up to the counts of the schedule."""

    def __init__(self) -> None:
        self._cells: dict[str, list[int]] = {}

    def came(self, visit: Visit, dropped: bool) -> None:
        """An arrival came due."""
        counts = self._cells.setdefault(visit.cell.id, [0, 0])
        counts[0] += 1
        counts[1] += dropped

    def take(self) -> dict[str, dict[str, list[int]]]:
        """{"arrivals": {cell: [came due, of these dropped]}}, or nothing where none came."""
        found, self._cells = self._cells, {}
        return {"arrivals": found} if found else {}


def labels(ticket: Ticket) -> dict[str, Any]:
    """Record fields of a request of an open loop that is about to be built: its number, and how late it is by now."""
    if ticket.due_ns is None:
        return {}
    return {"arrival": ticket.turn, "queue_ms": max(0.0, (time.perf_counter_ns() - ticket.due_ns) / 1e6)}


def stage_of(plan: Plan, visit: Visit, streams: int, index: int = 0, workers: int = 1) -> OpenStage:
    """The stage of a visit with `streams` streams here; of every `workers`-th arrival where workers share it.

    A repeat of a visit has the schedule of the first try, and every rate a schedule of its own.
    """
    cell = visit.cell
    assert cell.rate is not None
    seconds = plan.seconds_of(cell)
    assert seconds is not None
    arrivals = schedule(plan.arrivals, cell.rate, seconds, f"{plan.seed}/{cell.id}")
    return OpenStage(streams, plan.warmup_of(visit), arrivals, index, workers)


class OpenLoop:
    """A course as `visits.Course` wants it. Its `next_request` blocks until there is something to send.

    `changed` is called when the last arrival is sent or dropped, `arrived` with the counts before that, and `came` at
    each of them. Where workers
    share the visit it begins when all of them are warm, as far as it is told (`others_started`).
    """

    opened = True
    others_full = others_measured = True  # nothing here waits for either

    def __init__(
        self,
        visit: Visit,
        stage: OpenStage,
        *,
        changed: Callable[[], None],
        arrived: Arrived,
        came: Came,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.stage = stage
        self._visit = visit
        self._changed = changed
        self._arrived = arrived
        self._came = came
        self._clock = clock
        self.counts: dict[str, int] | None = None  # when the schedule is through
        self._alone = stage.workers == 1
        self._waiting: dict[int, AsyncResult] = {}
        self._go = Event()  # the schedule may begin
        self._stop = Event()
        self._keeper = gevent.spawn(self._keep_time)
        self._look()

    @property
    def planned(self) -> int:
        return self.stage.planned

    @property
    def streams(self) -> int:
        return self.stage.streams

    @property
    def measured(self) -> int:
        return self.stage.measured

    @property
    def finished(self) -> bool:
        return self.stage.finished and self._keeper.dead

    @property
    def started(self) -> bool:
        """Warm-up is over here."""
        return self.stage.warm

    full = started

    @property
    def all_measured(self) -> bool:
        """Every measured request here has ended."""
        return self.finished

    @property
    def others_started(self) -> bool:
        return self._alone

    @others_started.setter
    def others_started(self, value: bool) -> None:
        self._alone = value
        self._look()

    def next_request(self, stream: int) -> Ticket | None:
        """The next request of a free stream, when its time has come; None when there will be none."""
        if self.stage.exhausted:
            return None
        ticket = self.stage.come(stream)
        if ticket is not None:
            return ticket
        handed = self._waiting[stream] = AsyncResult()
        try:
            return handed.get()
        except BaseException:  # the user is killed, perhaps with a request that it was handed and will not send
            if handed.value is not None:
                self.stage.withdraw(handed.value)
            raise
        finally:
            del self._waiting[stream]
            self.stage.go(stream)

    def done(self, ticket: Ticket) -> None:
        """A request has ended."""
        self.stage.done(ticket)
        self._look()

    def withdraw(self, ticket: Ticket) -> None:
        """A request was not sent after all."""
        self.stage.withdraw(ticket)
        self._look()

    def enough(self) -> None:
        """It ends with its schedule, by itself."""

    def stop(self) -> None:
        """Start nothing more."""
        self.stage.stop()
        self._stop.set()
        self._look()

    def _look(self) -> None:
        if self.stage.stopped or (self.stage.warm and self.others_started):
            self._go.set()

    def _keep_time(self) -> None:
        self._go.wait()
        start_ns = self._clock() + LEAD_NS
        for arrival in self.stage.arrivals:
            self._until(start_ns + arrival.due_ns)
            if self.stage.stopped:
                break
            handed = self.stage.arrive(arrival, start_ns)
            self._came(self._visit, handed is None)
            if handed is not None:
                stream, ticket = handed
                self._waiting[stream].set(ticket)
        stage = self.stage
        self.counts = {"planned": len(stage.arrivals), "offered": stage.offered, "dropped": stage.dropped}
        self._arrived(self._visit, self.counts)
        for waiting in self._waiting.values():
            if not waiting.ready():
                waiting.set(None)
        gevent.spawn(self._changed)  # when this greenlet is dead, which `finished` waits for

    def _until(self, due_ns: int) -> None:
        """Wait until then; a stop cuts it short."""
        while (left_ns := due_ns - self._clock()) > 0 and not self._stop.wait(left_ns / 1e9):
            pass


def courses(plan: Plan, changed: Callable[[], None], arrived: Arrived, came: Came) -> Callable[[Plan, Visit], OpenLoop]:
    """What makes the course of each visit where all streams are in this process."""

    def course(_: Plan, visit: Visit) -> OpenLoop:
        stage = stage_of(plan, visit, visit.cell.concurrency)
        return OpenLoop(visit, stage, changed=changed, arrived=arrived, came=came)

    return course

"""The visits of a run, one after another: which is open, who may send next, and when it is over.

The decisions are `plan.stages.Stage`; this adds what makes streams wait for one another on the event loop.
"""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from gevent import Greenlet, sleep, spawn
from gevent.event import Event

from loadkit.plan.ladder import Plan, Visit
from loadkit.plan.stages import WAIT, Answer, Ticket, stage_for


class Course(Protocol):
    """How a visit goes on: `plan.stages.Stage` where its streams are here, `sharing.SharedStage` where workers do."""

    opened: bool

    @property
    def planned(self) -> int:
        """Measured requests in all."""

    @property
    def streams(self) -> int:
        """Streams of it in this process."""

    @property
    def measured(self) -> int:
        """Measured requests that have ended."""

    @property
    def finished(self) -> bool:
        """Nothing is in flight and nothing more will be."""

    def next_request(self, stream: int) -> Ticket | Answer | None:
        """What a free stream does now."""

    def done(self, ticket: Ticket) -> None:
        """A request has ended."""

    def withdraw(self, ticket: Ticket) -> None:
        """A request was not sent after all."""

    def enough(self) -> None:
        """The time of an endless visit is over."""

    def stop(self) -> None:
        """Give no more tickets."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Leave to send one request of a visit."""

    visit: Visit
    ticket: Ticket


class Visits:
    """Hands out turns. `announce(visit, state)` is told when a visit opens ("open") and closes: "done", "ended" (before
    its time, see `why_ended`) or "stopped" (with the run)."""

    def __init__(self, plan: Plan, visits: tuple[Visit, ...], announce: Callable[[Visit, str], None]) -> None:
        self._plan = plan
        self._left = list(visits)
        self._announce = announce
        self._changed = Event()
        self._stop = Event()
        self._pause = Event()  # set when waiting streams should wait no longer
        self._stage: Course | None = None
        self.course_of: Callable[[Plan, Visit], Course] = stage_for
        self.when_changed: Callable[[], None] = lambda: None  # called at every change of the open visit; must not block
        self.why_ended: str | None = None  # of the open visit
        # Called when a visit has closed, with the reason where it was ended: now visits may be added and dropped.
        self.between: Callable[[Visit, str | None], None] = lambda visit, why: None
        # Called before a request is sent, and may block; False = it is not to be sent, and nothing more is.
        self.before: Callable[[Visit, Ticket], bool] = lambda visit, ticket: True
        self._timer: Greenlet | None = None  # ends an endless visit
        self.current: Visit | None = None
        self.over = False

    @property
    def stopped(self) -> bool:
        """Nothing more is started."""
        return self._stop.is_set()

    @property
    def next_concurrency(self) -> int | None:
        """Streams the next visit needs, None when there is none to come."""
        return self._left[0].cell.concurrency if self._left and not self.stopped else None

    @property
    def ending(self) -> bool:
        """The open visit gives no more turns, while the run goes on."""
        return self.why_ended is not None

    @property
    def streams(self) -> int:
        """Streams of the open visit in this process; 0 while none is open."""
        return 0 if self._stage is None else self._stage.streams

    @property
    def measured(self) -> int | None:
        """Measured requests of the open visit that have ended; None while none is open."""
        return None if self._stage is None else self._stage.measured

    @property
    def left(self) -> tuple[Visit, ...]:
        """The visits to come, in order."""
        return tuple(self._left)

    def add(self, visit: Visit) -> None:
        """One more visit, the next one."""
        self._left.insert(0, visit)

    def drop(self, cell_id: str) -> list[Visit]:
        """Leave out all visits of a cell that are still to come; returns them."""
        dropped = [visit for visit in self._left if visit.cell.id == cell_id]
        self._left = [visit for visit in self._left if visit.cell.id != cell_id]
        return dropped

    def end_current(self, why: str) -> None:
        """End the open visit: nothing more of it is started, streams that wait to try again give up."""
        if self._stage is not None:
            self.why_ended = why
            self._stage.stop()
            self._pause.set()
            self._notify()

    def run_next(self) -> None:
        """Open the next visit and wait until it is finished; returns at once when there is none."""
        if self.next_concurrency is None:
            return
        visit = self._left.pop(0)
        self.run(visit, self.course_of(self._plan, visit))

    def run(self, visit: Visit, stage: Course) -> None:
        """Open this visit and wait until it is finished."""
        self.current, self._stage = visit, stage
        self.why_ended = None
        self._pause.clear()
        if self.stopped:  # since it was chosen
            self.stop()
        try:
            self._announce(visit, "open")
            self._notify()
            while not stage.finished:
                self._wait()
        finally:  # also where the greenlet that waits is killed, to abort the run
            why = self.why_ended if stage.measured < stage.planned and not self.stopped else None
            self._announce(visit, "done" if stage.measured == stage.planned else "ended" if why else "stopped")
            self._stage = self.current = None
            if self._timer is not None:
                self._timer.kill(block=False)
                self._timer = None
        self.between(visit, why)

    def turns(self, slot: int) -> Generator[Turn]:
        """Every turn of one stream, in order; blocks while there is none, ends when the run is over."""
        while not self.over:
            stage, visit = self._stage, self.current
            was_opened = stage is not None and stage.opened
            ticket = stage.next_request(slot) if stage and visit and slot < stage.streams else None
            if stage is None or visit is None or ticket is None or ticket is WAIT:
                self.when_changed()  # a stream that waits has arrived
                if self._stage is stage:  # not where it has waited in there, for its turn in an open loop
                    self._wait()
                continue
            assert isinstance(ticket, Ticket)
            # Giving a ticket can open the measured window that other streams wait for. Later on nobody waits for what
            # one stream does, but to be done; waking hundreds at every request would cost more than they do.
            self._notify(wake=not was_opened)
            if self._plan.soak and stage.opened and self._timer is None:
                self._timer = spawn(self._time, stage, self._plan.seconds_of(visit.cell))
            sent = False
            try:
                if sent := self.before(visit, ticket):
                    yield Turn(visit, ticket)
            finally:
                (stage.done if sent else stage.withdraw)(ticket)
                self._notify(wake=stage.finished)

    def pause(self, seconds: float) -> bool:
        """Wait; true when nothing more is to be started, at once when that comes to be so meanwhile. The end of the
        visit cuts the wait short too."""
        self._pause.wait(seconds)
        return self.stopped

    def stop(self) -> None:
        """Start nothing more; what is in flight goes on to its end."""
        self._stop.set()
        self._pause.set()
        if self._stage is not None:
            self._stage.stop()
        self._notify()

    def close(self) -> None:
        """Let every waiting stream go home."""
        self.stop()
        self.over = True
        self._notify()

    def changed(self) -> None:
        """Something of the open visit has changed: who waits looks again."""
        self._notify()

    def _time(self, stage: Course, seconds: float) -> None:
        due = time.monotonic() + seconds
        while (left := due - time.monotonic()) > 0:  # a timer that is set while the loop is late comes early
            sleep(left)
        stage.enough()
        self._notify()

    def _wait(self) -> None:
        self._changed.wait()

    def _notify(self, wake: bool = True) -> None:
        self.when_changed()
        if not wake:
            return
        # A new event for later ones to wait for. Setting and clearing a single one would lose the change that a stream
        # makes while gevent is still waking the others.
        changed, self._changed = self._changed, Event()
        changed.set()

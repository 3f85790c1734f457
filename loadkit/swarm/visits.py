"""The visits of a run, one after another: which is open, who may send next, and when it is over.

The decisions are `plan.stages.Stage`; this adds what makes streams wait for one another on the event loop.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from gevent.event import Event

from loadkit.plan.ladder import Plan, Visit
from loadkit.plan.stages import WAIT, Stage, Ticket, stage_for


@dataclass(frozen=True, slots=True)
class Turn:
    """Leave to send one request of a visit."""

    visit: Visit
    ticket: Ticket


class Visits:
    """Hands out turns. `announce(visit, state)` is told when a visit opens ("open") and closes ("done", "stopped")."""

    def __init__(self, plan: Plan, visits: tuple[Visit, ...], announce: Callable[[Visit, str], None]) -> None:
        self._plan = plan
        self._left = list(visits)
        self._announce = announce
        self._changed = Event()
        self._stop = Event()
        self._stage: Stage | None = None
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

    def run_next(self) -> None:
        """Open the next visit and wait until it is finished; returns at once when there is none."""
        if self.next_concurrency is None:
            return
        visit = self.current = self._left.pop(0)
        stage = self._stage = stage_for(self._plan, visit)
        try:
            self._announce(visit, "open")
            self._notify()
            while not stage.finished:
                self._wait()
        finally:  # also where the greenlet that waits is killed, to abort the run
            self._announce(visit, "done" if stage.measured == stage.planned else "stopped")
            self._stage = self.current = None

    def turns(self, slot: int) -> Generator[Turn]:
        """Every turn of one stream, in order; blocks while there is none, ends when the run is over."""
        while not self.over:
            stage, visit = self._stage, self.current
            ticket = stage.next_request(slot) if stage and visit and slot < visit.cell.concurrency else None
            if stage is None or visit is None or ticket is None or ticket is WAIT:
                self._wait()
                continue
            assert isinstance(ticket, Ticket)
            # Giving a ticket can open the measured window that other streams wait for.
            self._notify()
            try:
                yield Turn(visit, ticket)
            finally:
                stage.done(ticket)
                self._notify()

    def pause(self, seconds: float) -> bool:
        """Wait; true when nothing more is to be started, at once when that comes to be so meanwhile."""
        return self._stop.wait(seconds)

    def stop(self) -> None:
        """Start nothing more; what is in flight goes on to its end."""
        self._stop.set()
        if self._stage is not None:
            self._stage.stop()
        self._notify()

    def close(self) -> None:
        """Let every waiting stream go home."""
        self.stop()
        self.over = True
        self._notify()

    def _wait(self) -> None:
        self._changed.wait()

    def _notify(self) -> None:
        # A new event for later ones to wait for. Setting and clearing a single one would lose the change that a stream
        # makes while gevent is still waking the others.
        changed, self._changed = self._changed, Event()
        changed.set()

"""Before a request is sent: the pause of its stream, and whether the budgets of the run leave room for it."""

import time
from collections.abc import Callable
from typing import Any

from loadkit.plan.budget import Budget, Ledger, Spent
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.pace import think_s
from loadkit.plan.stages import Ticket
from loadkit.swarm.allowance import Allowance
from loadkit.swarm.visits import Visits


class Pacing:
    """Of one process. `spent` is what earlier starts of the run took; `limit(why)` ends the run at a budget."""

    def __init__(
        self,
        plan: Plan,
        visits: Callable[[], Visits],
        budget: Budget,
        limit: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._visits = visits
        self._limit = limit
        self._now = now
        self.ledger = Ledger(budget)
        self.allowance: Allowance | None = None  # where other processes spend of the same budgets
        self._began: float | None = None
        self._last: dict[int, int] = {}  # slot -> visit of its last request

    def begin(self) -> None:
        """The run begins: its time counts from now."""
        self._began = self._now()

    def remember(self, spent: Spent) -> None:
        """What earlier starts of the run took."""
        self.ledger.spent = spent

    def before(self, visit: Visit, ticket: Ticket) -> bool:
        """Pause where the stream has sent before in this visit; False where nothing more is to be sent."""
        visits = self._visits()
        if self._last.get(ticket.slot) == visit.index and (pause := think_s(self._plan, visit, ticket)):
            visits.pause(pause)
        self._last[ticket.slot] = visit.index
        return not (visits.stopped or visits.ending) and self.admits(visit.cell)

    def admits(self, cell: Cell) -> bool:
        """Whether the budgets leave room for a request of the cell; where they do not, the run ends."""
        most = self._most(cell)
        if (name := self.ledger.refuse(most)) is None:
            if self.allowance is not None:
                self.allowance.ahead()
            return True
        if self.allowance is not None:
            return self.allowance.more(name, most)
        self.tell(name)
        return False

    def started(self, request_id: str, cell: Cell) -> None:
        """A request is about to be sent."""
        self.ledger.start(request_id, self._most(cell))

    def on_record(self, *, record: dict[str, Any], **_: object) -> None:
        """It has ended."""
        self.ledger.end(record)

    def every_second(self) -> None:
        """Look at the time, and at what is spent; a share that is used up ends nothing."""
        if self.allowance is not None:
            return
        if name := self.ledger.budget.exhausted(self.ledger.spent, self._seconds()):
            self.tell(name)

    def _most(self, cell: Cell) -> Spent:
        """The most tokens that one request of a cell takes."""
        return Spent(cell.target_tokens, self._plan.max_tokens)

    def _seconds(self) -> float:
        return 0.0 if self._began is None else self._now() - self._began

    def tell(self, name: str) -> None:
        """The run ends at the budget of this name."""
        self._limit(self.ledger.budget.sentence(name, self.ledger.spent, self._seconds()))

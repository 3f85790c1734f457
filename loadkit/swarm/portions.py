"""The budgets of a run, portioned out to its workers by their master.

All shares together are never more than the whole, so no run passes its budget however late anything is told. A piece is
a small part of what is left. Where there is none that a worker could go on with, the others give back what they do not
need; if it still cannot, one process could not either, and the run ends. `allowance.py` is the other side.
"""

from collections.abc import Callable, Container
from typing import Any

PIECES = 4  # a piece is this part of what each worker could have of what is left
ROUNDING = 1e-12  # of the whole: sums of shares are not exact, and what fits exactly must fit


class Portions:
    """`left`: the share of the whole that is left, for `workers` in all. `tell(worker, what, data)` tells a worker,
    `there()` are those that are there, `end(name)` ends the run at the limit of this name."""

    def __init__(
        self,
        left: float,
        workers: int,
        there: Callable[[], Container[str]],
        tell: Callable[[str, str, dict[str, Any]], None],
        end: Callable[[str], None],
    ) -> None:
        self._left = left
        self._pieces = PIECES * max(1, workers)
        self._there = there
        self._tell = tell
        self._end = end
        self._given: dict[str, float] = {}
        self._short: dict[str, tuple[float, str]] = {}  # worker -> what it needs, and for want of what
        self._back: set[str] = set()  # those that have yet to give back
        self._number = 0

    def ask(self, worker: str, have: float, need: float, name: str) -> None:
        """A worker has the share `have` and cannot go on below `need`. An answer that was lost is given again."""
        if worker in self._back:  # what it has is not known
            if need > have:
                self._short[worker] = need, name
        elif self._give(worker, need, self._left / self._pieces if have >= self._given.get(worker, 0.0) else 0.0):
            return
        else:
            self._short[worker] = need, name
            if not self._back:
                self._number += 1
                self._back = {other for other in self._given if other != worker}
        self._ask_back()

    def returned(self, worker: str, number: int, have: float) -> None:
        """A worker has given back all but `have`."""
        if worker in self._back and number == self._number:
            self._back.remove(worker)
            self._left += self._given[worker] - have
            self._given[worker] = have
            self._settle()

    def _give(self, worker: str, need: float, piece: float) -> bool:
        """Give what is needed, and a piece if it is more; whether there was enough."""
        given = self._given.get(worker, 0.0)
        more = max(need - given, piece)
        if more > self._left + ROUNDING:
            return False
        self._left -= more
        self._given[worker] = max(need, given + more)
        self._short.pop(worker, None)
        self._tell(worker, "budget", {"share": self._given[worker]})
        return True

    def _ask_back(self) -> None:
        there = self._there()
        self._back = {worker for worker in self._back if worker in there}
        for worker in sorted(self._back):
            self._tell(worker, "reclaim", {"number": self._number})
        self._settle()

    def _settle(self) -> None:
        """All have given back: who was short gets what it needs, or the run ends."""
        if self._back:
            return
        short, self._short = self._short, {}
        for worker, (need, name) in short.items():
            if not self._give(worker, need, 0.0):
                self._end(name)

"""How much of the budgets of a run this worker may spend: it asks its master for room, piece by piece.

A master hears of a request when it has ended, and streams go on meanwhile. So a worker spends within a share of the
budgets that is its own, by what its requests took and what those in flight may yet take. `portions.py` is the other
side.
"""

from collections.abc import Callable

from gevent.event import Event

from loadkit.plan.budget import Budget, Ledger, Spent
from loadkit.swarm.channel import Data

AGAIN_S = 0.25  # a worker asks again so often: a message may be lost, and the run may end meanwhile


class Allowance:
    """A worker's share. `ask` sends a question to the master; `over` = nothing more is to be started here."""

    def __init__(self, whole: Budget, ledger: Ledger, ask: Callable[[Data], None], over: Callable[[], bool]) -> None:
        self._whole = whole
        self._ledger = ledger
        self._ask = ask
        self._over = over
        self._share = 0.0
        self._low = 0.0  # from here on more is asked for ahead, so that no stream has to wait
        self._asked = False
        self._dry = False  # there is nothing to be had ahead
        self._number: int | None = None  # of the last time it was asked for what it does not need
        self._answer = Event()
        ledger.budget = whole.part(0.0)

    def ahead(self) -> None:
        """Ask for another piece if half of the last one is used."""
        if not (self._asked or self._dry) and self._whole.share_of(self._ledger.with_next(Spent())) >= self._low:
            self._send(self._share, None)

    def more(self, name: str, most: Spent) -> bool:
        """Wait for room for a request of up to `most`, which the limit `name` leaves none for; False = there is none to
        be had, or none is needed any more."""
        while not self._over():
            if self._ledger.refuse(most) is None:
                return True
            answer = self._answer  # it may come while the question is sent
            if not self._asked:
                self._send(self._whole.share_of(self._ledger.with_next(most)), name)
            if not answer.wait(AGAIN_S):
                self._asked = False
        return False

    def given(self, share: float) -> None:
        """The master's answer: the share as it is now."""
        self._asked, self._dry = False, share <= self._share
        if share > self._share:
            self._low = (self._share + share) / 2
            self._share = share
            self._ledger.budget = self._whole.part(share)
        answer, self._answer = self._answer, Event()
        answer.set()

    def give_back(self, number: int) -> float:
        """The share as it is without what is not needed yet, which another worker may get."""
        if number != self._number:  # asked twice it is given back once
            self._number, self._dry, self._asked = number, True, False
            self._share = min(self._share, self._whole.share_of(self._ledger.with_next(Spent())))
            self._ledger.budget = self._whole.part(self._share)
        return self._share

    def _send(self, need: float, name: str | None) -> None:
        self._asked = True
        self._ask({"have": self._share, "need": need, "name": name})

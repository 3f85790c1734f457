"""How many requests of a visit this worker may begin: its part of what the budgets of the run have room for.

A master hears of a request when it has ended, and streams go on meanwhile. So it gives each worker a number of requests
with the visit, in all not more than there is room for, and no run passes its budget however late anything is told.
"""

from collections.abc import Callable

from loadkit.plan.ladder import Visit
from loadkit.plan.stages import Ticket

Before = Callable[[Visit, Ticket], bool]


class Grant:
    """Goes before what is asked before every request (`Visits.before`). `used_up` is told when there is none left."""

    def __init__(self, before: Before, used_up: Callable[[], None]) -> None:
        self._before = before
        self._used_up = used_up
        self._left: int | None = None
        self.over = False  # a request was asked for that the budget had no room for

    def give(self, requests: int | None) -> None:
        """A visit begins; None = nothing is limited."""
        self._left, self.over = requests, False

    def before(self, visit: Visit, ticket: Ticket) -> bool:
        """Whether the request may be sent; it may be paused for before it is."""
        if self._left is None:
            return self._before(visit, ticket)
        if not self._left:
            self.over = True
            self._used_up()
            return False
        self._left -= 1
        sent = self._before(visit, ticket)
        self._left += not sent
        return sent

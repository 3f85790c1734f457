"""The workers of a run and which of them are there: one that is not heard of is lost until it is heard again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import gevent

LOST_S = 4.0  # a worker says something every second
WATCH_S = 0.25


@dataclass(slots=True)
class Member:
    """One worker: `id` is Locust's, `name` the one in records."""

    id: str
    name: str
    heard: float
    live: int = 0  # streams that are there
    visit: int | None = None  # the visit it still has something in flight of
    lost: bool = False
    left: bool = False  # by its own decision: its last rows still come, and nothing else
    complete: bool = False  # all its rows are here


class Roster:
    """The workers of a run by Locust's id. `on_lost(member, why)` is called once for each that goes."""

    def __init__(self, on_lost: Callable[[Member, str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._on_lost = on_lost
        self._now = now
        self._members: dict[str, Member] = {}
        self._looked = now()
        self._greenlet = gevent.spawn(self._run)

    def __getitem__(self, worker: str) -> Member:
        return self._members[worker]

    def get(self, worker: str) -> Member | None:
        """The worker with this id, lost or not."""
        return self._members.get(worker)

    @property
    def there(self) -> list[Member]:
        """The workers that are not lost, in the order in which they joined."""
        return [member for member in self._members.values() if not member.lost]

    @property
    def names(self) -> list[str]:
        """Every worker there was, lost or not."""
        return [member.name for member in self._members.values()]

    def join(self, worker: str, name: str) -> Member:
        """A worker is ready."""
        self._members[worker] = Member(worker, name, self._now())
        return self._members[worker]

    def heard(self, worker: str) -> None:
        """A worker said something, if only a heartbeat."""
        if member := self._members.get(worker):
            member.heard = self._now()

    def lose(self, member: Member, why: str) -> None:
        """A worker is gone."""
        if not member.lost:
            member.lost = True
            self._on_lost(member, why)

    def look(self) -> None:
        """Lose those that are not heard of. Time in which this process stood still and heard nobody is left out."""
        now = self._now()
        stalled = max(0.0, now - self._looked - 2 * WATCH_S)
        self._looked = now
        for member in self.there:
            member.heard += stalled
            if now - member.heard > LOST_S:
                self.lose(member, f"said nothing for {LOST_S:.0f} s")

    def stop(self) -> None:
        """Look no more."""
        self._greenlet.kill()

    def _run(self) -> None:
        while True:
            gevent.sleep(WATCH_S)
            self.look()

"""One visit shared out over several workers: who has which slots, and what each must know of the others.

Pure state, kept by the master. Every worker runs a `stages.Stage` for its slots and reports how far it is; `news` says
what of it the others have to be told. Reports and news may take any time and the rule of the stage holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Others(NamedTuple):
    """What a worker is told about all other shares; see `stages.Stage`."""

    started: bool
    full: bool
    measured: bool


UNTOLD = Others(False, False, False)


@dataclass(slots=True)
class _Share:
    slots: tuple[int, ...]
    planned: int = 0
    measured: int = 0
    told: Others = UNTOLD


def deal(concurrency: int, live: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    """The slots 0 .. concurrency-1 given out in turn to workers with `live` streams; None where those are too few."""
    if sum(live.values()) < concurrency:
        return None
    given: dict[str, list[int]] = {worker: [] for worker in live}
    slot = 0
    while slot < concurrency:
        for worker, most in live.items():
            if slot < concurrency and len(given[worker]) < most:
                given[worker].append(slot)
                slot += 1
    return {worker: tuple(slots) for worker, slots in given.items() if slots}


class Shares:
    """The shares of one visit, by worker. A report costs the same however many workers there are, but for the few after
    which all of them have news."""

    def __init__(self, slots: Mapping[str, tuple[int, ...]], rounds: int) -> None:
        """slots: those of each worker, at least one each; `rounds` measured requests per slot."""
        self._shares = {worker: _Share(mine, planned=rounds * len(mine)) for worker, mine in slots.items()}
        self._missing = [set(slots) for _ in Others._fields]  # for each: workers of which it is not so yet
        self._unfinished = set(slots)
        self._fresh = True  # there may be news
        self.planned = sum(share.planned for share in self._shares.values())
        """Measured requests in all; an endless visit has more than it was planned with."""
        self.measured = 0
        """Measured requests that have ended, as far as the reports tell."""

    def __contains__(self, worker: str) -> bool:
        return worker in self._shares

    @property
    def slots(self) -> dict[str, tuple[int, ...]]:
        """Worker -> its slots."""
        return {worker: share.slots for worker, share in self._shares.items()}

    @property
    def finished(self) -> bool:
        """No share has anything in flight or to come."""
        return not self._unfinished

    def report(
        self, worker: str, *, started: bool, full: bool, measured: int, planned: int, all_measured: bool, finished: bool
    ) -> None:
        """How far a worker is: facts of its stage, none of which is ever taken back."""
        for missing, fact in zip(self._missing, (started, full, all_measured), strict=True):
            if fact and worker in missing:
                missing.remove(worker)
                self._fresh = True
        if finished:
            self._unfinished.discard(worker)
        share = self._shares[worker]
        if measured > share.measured:
            self.measured += measured - share.measured
            share.measured = measured
        if planned:  # 0 while the worker still prepares
            self.planned += planned - share.planned
            share.planned = planned

    def lose(self, worker: str) -> None:
        """A worker is gone: nothing more is heard of its share, and nobody waits for it."""
        self._unfinished.discard(worker)

    def news(self) -> dict[str, Others]:
        """What each worker does not know yet; taken as told."""
        fresh: dict[str, Others] = {}
        if not self._fresh:
            return fresh
        self._fresh = False
        for worker, share in self._shares.items():
            now = self.others(worker)
            if now != share.told:
                share.told = fresh[worker] = now
        return fresh

    def others(self, worker: str) -> Others:
        """What a worker should know by now."""
        return Others(*(not missing or missing == {worker} for missing in self._missing))

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
    started: bool = False
    full: bool = False
    all_measured: bool = False
    finished: bool = False
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
    """The shares of one visit, by worker."""

    def __init__(self, slots: Mapping[str, tuple[int, ...]], rounds: int) -> None:
        """slots: those of each worker, at least one each; `rounds` measured requests per slot."""
        self._shares = {worker: _Share(mine, planned=rounds * len(mine)) for worker, mine in slots.items()}

    def __contains__(self, worker: str) -> bool:
        return worker in self._shares

    @property
    def slots(self) -> dict[str, tuple[int, ...]]:
        """Worker -> its slots."""
        return {worker: share.slots for worker, share in self._shares.items()}

    @property
    def planned(self) -> int:
        """Measured requests in all; an endless visit has more than it was planned with."""
        return sum(share.planned for share in self._shares.values())

    @property
    def measured(self) -> int:
        """Measured requests that have ended, as far as the reports tell."""
        return sum(share.measured for share in self._shares.values())

    @property
    def finished(self) -> bool:
        """No share has anything in flight or to come."""
        return all(share.finished for share in self._shares.values())

    def report(
        self, worker: str, *, started: bool, full: bool, measured: int, planned: int, all_measured: bool, finished: bool
    ) -> None:
        """How far a worker is: facts of its stage, none of which is ever taken back."""
        share = self._shares[worker]
        share.started |= started
        share.full |= full
        share.all_measured |= all_measured
        share.finished |= finished
        share.measured = max(share.measured, measured)
        share.planned = planned or share.planned  # 0 while the worker still prepares

    def lose(self, worker: str) -> None:
        """A worker is gone: nothing more is heard of its share, and nobody waits for it."""
        self._shares[worker].finished = True

    def news(self) -> dict[str, Others]:
        """What each worker does not know yet; taken as told."""
        fresh = {}
        for worker, share in self._shares.items():
            now = self.others(worker)
            if now != share.told:
                share.told = fresh[worker] = now
        return fresh

    def others(self, worker: str) -> Others:
        """What a worker should know by now."""
        others = [other for name, other in self._shares.items() if name != worker]
        return Others(
            all(other.started for other in others),
            all(other.full for other in others),
            all(other.all_measured for other in others),
        )

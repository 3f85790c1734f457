"""Threads that work on one pass together and meet in the middle of it.

BLAS's own threads are not used: they spin while they wait, so when another process takes a core, a token costs several
times as much. Here a thread that waits sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from queue import SimpleQueue


class Abandoned(Exception):
    """Another thread of the team failed, so this one cannot go on."""


class Team:
    """The calling thread, which has rank 0, and `size` - 1 more. One pass at a time."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(max(size - 1, 1), "engine")
        self._signals = self._fresh()

    def run(self, work: Callable[[int], None]) -> None:
        """Call work(rank) once in every thread and wait for all; raises what the first of them to fail raised."""
        others = [self._pool.submit(self._part, work, rank) for rank in range(1, self.size)]
        errors: list[BaseException] = []
        try:
            self._part(work, 0)
        except Exception as error:  # noqa: BLE001 (raised below, when nobody works any more)
            errors.append(error)
        finally:
            wait(others)
        errors += [raised for other in others if (raised := other.exception()) is not None]
        if errors:
            self._signals = self._fresh()  # the old ones hold what nobody has taken
            raise next((raised for raised in errors if not isinstance(raised, Abandoned)), errors[0])

    def meet(self, rank: int) -> None:
        """Wait until every thread has come here; Abandoned when one will not come."""
        others = [other for other in range(self.size) if other != rank]
        for other in others:
            self._signals[rank][other].put(True)
        for other in others:
            if not self._signals[other][rank].get():
                raise Abandoned

    def _part(self, work: Callable[[int], None], rank: int) -> None:
        try:
            work(rank)
        except BaseException:
            for signal in self._signals[rank]:
                signal.put(False)
            raise

    def _fresh(self) -> list[list[SimpleQueue[bool]]]:
        """signals[i][j]: what thread i tells thread j, True for each time it has come to a meeting."""
        return [[SimpleQueue() for _ in range(self.size)] for _ in range(self.size)]

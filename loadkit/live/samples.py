"""The raw values of one cell, so that its quantiles are exact ones while the run goes on.

A soak has millions of gaps, and sorting them would stop the event loop for a second. So values are sorted in runs of
CHUNK as they come (0.1 ms each), and a quantile is found by narrowing all runs down around a pivot, with a pause after
every ROWS of them. Eight bytes a value; of more than MOST in a cell none is kept, and the report alone has quantiles.
"""

import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loadkit.live.labels import TIMES
from loadkit.measure.quantile import LEVELS, rank
from loadkit.record.names import Flag

WITHHOLDING = frozenset({Flag.BURSTY.value, Flag.TOKENS_PER_EVENT_GT_1.value, Flag.EVENTS_ARE_CHARACTERS.value})
CHUNK = 4096
ROWS = 128  # runs that are looked at before others may have the loop
MOST = 4_000_000  # values of one time in one cell: 32 MB
PAUSE_S = 0.0005


def yielding() -> None:
    """Let other greenlets run; under gevent's patches a sleep is that, and 0 would not look at the sockets."""
    time.sleep(PAUSE_S)


class Values:
    """Many values of one time, in ms. What is not a number is left out."""

    def __init__(self, pause: Callable[[], None] = yielding) -> None:
        self._pause = pause
        self._new = array("d")
        self._runs: list[np.ndarray] = []
        self.count = 0

    def add(self, values: Any) -> None:
        """More of them; beyond MOST all are forgotten, and there is no quantile any more."""
        if self.count > MOST:
            return
        self._new.extend(values)
        self.count += len(values)
        if self.count > MOST:
            self._new, self._runs = array("d"), []
        while len(self._new) >= CHUNK:
            self._runs.append(_sorted(self._new[:CHUNK]))
            self._new = self._new[CHUNK:]

    def summary(self) -> dict[str, float] | None:
        """{p50, p90, p95, p99, n}, by nearest rank; None without values, or where they were too many."""
        runs = [run for run in (*self._runs, _sorted(self._new)) if len(run)]
        n = sum(map(len, runs))
        if not n:
            return None
        return {**{name: self._at(runs, rank(n, q)) for name, q in LEVELS.items()}, "n": n}

    def _at(self, runs: list[np.ndarray], place: int) -> float:
        """The value at a place, from 1, of all runs in order. Each pivot is the middle of the middles, so that at least
        a quarter of what is left falls away."""
        while sum(map(len, runs)) > CHUNK:
            middles = sorted(float(run[len(run) // 2]) for run in runs[:: len(runs) // ROWS + 1])
            pivot = middles[len(middles) // 2]
            below, upto = [], []
            for number, run in enumerate(runs, 1):
                below.append(int(np.searchsorted(run, pivot, "left")))
                upto.append(int(np.searchsorted(run, pivot, "right")))
                if number % ROWS == 0:
                    self._pause()
            if place <= sum(below):
                runs = [run[:end] for run, end in zip(runs, below, strict=True) if end]
            elif place <= sum(upto):
                return pivot
            else:
                place -= sum(upto)
                runs = [run[start:] for run, start in zip(runs, upto, strict=True) if start < len(run)]
            self._pause()
        return float(np.partition(np.concatenate(runs), place - 1)[place - 1])


class Samples:
    """Times of the measured answers of one cell."""

    def __init__(self) -> None:
        self._values = {name: Values() for name in TIMES}
        self._withheld = False

    def add(self, record: Mapping[str, Any]) -> None:
        """A successful request of phase measure."""
        self._withheld |= not WITHHOLDING.isdisjoint(record["flags"])
        for name, values in self._values.items():
            value = record[f"{name}_ms"]
            if value is not None:
                values.add(value if isinstance(value, list) else (value,))

    def summaries(self) -> dict[str, dict[str, float] | None]:
        """Name -> nearest-rank quantiles in ms; of gaps none where they are not gaps between tokens."""
        withheld = {"itl"} if self._withheld else set()
        return {name: None if name in withheld else values.summary() for name, values in self._values.items()}


def _sorted(values: "array[float]") -> np.ndarray:
    found = np.sort(np.array(values, dtype=float))  # NaN comes last
    return found[: len(found) - int(np.isnan(found).sum())]

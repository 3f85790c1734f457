"""Histograms that add up: workers fill them, the master sums them, Prometheus reads them.

Bounds are the Renard series R10 (ratio at most 1.28), so a quantile read back is at most 28 % off and typically 2-6 %.
They are the same for every tier: buckets of different bounds cannot be summed. Values come in as the ms of a record;
bounds and sums are in seconds, the unit of Prometheus.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

R10 = (100, 125, 160, 200, 250, 315, 400, 500, 630, 800)  # one decade, in hundredths


def renard(low: float, high: float) -> tuple[float, ...]:
    """The R10 numbers from low to high, both included when they belong to the series."""
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    series = (float(f"{step}e{decade - 2}") for decade in decades for step in R10)
    return tuple(bound for bound in series if low <= bound <= high)


TTFT_BOUNDS_S = renard(0.01, 2000)  # prefill of a million tokens lasts minutes
ITL_BOUNDS_S = renard(0.001, 10)
TPOT_BOUNDS_S = ITL_BOUNDS_S
E2E_BOUNDS_S = renard(0.05, 4000)
LAG_BOUNDS_S = renard(1e-4, 100)  # of the event loop; the limits of health, 1 and 5 ms, are bounds
UNIT_PRICE_BOUNDS_S = renard(1e-6, 1e-1)  # seconds per prompt token


class Histogram:
    """Counts per bucket, the last one for values above every bound, and the sum in whole nanoseconds.

    Integers make merging exact, whatever the order of the workers.
    """

    __slots__ = ("bounds", "counts", "sum_ns")

    def __init__(self, bounds: Sequence[float]) -> None:
        """bounds: upper bounds in seconds, rising; a value equal to a bound belongs to it."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum_ns = 0

    def add(self, value_ms: float | None, times: int = 1) -> bool:
        """Count a value given in ms; False when it is None, negative or not finite and so was left out."""
        if value_ms is None or not math.isfinite(value_ms) or value_ms < 0:
            return False
        self.counts[bisect_left(self.bounds, value_ms / 1e3)] += times
        self.sum_ns += round(value_ms * 1e6) * times
        return True

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram; ValueError when its bounds differ."""
        if other.bounds != self.bounds:
            raise ValueError("histograms with different bounds cannot be added")
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.sum_ns += other.sum_ns

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    @property
    def sum_s(self) -> float:
        """Sum of the values in seconds."""
        return self.sum_ns / 1e9

    @property
    def overflow_share(self) -> float:
        """Share of the values above the last bound; their quantiles read as that bound, so anything above 0 is news."""
        return self.counts[-1] / self.count if self.count else 0.0

    def cumulative(self) -> Iterator[int]:
        """Counts at or below each bound and, last, of all values: the `le` series of Prometheus."""
        return accumulate(self.counts)

    def quantile(self, q: float) -> float | None:
        """What Prometheus' histogram_quantile answers, in seconds: an estimate only. None when empty."""
        if not self.count:
            return None
        rank = q * self.count
        below = 0
        for upper, lower, inside in zip(self.bounds, (0.0, *self.bounds), self.counts, strict=False):
            if inside and below + inside >= rank:
                return lower + (upper - lower) * (rank - below) / inside
            below += inside
        return self.bounds[-1]

    def to_wire(self) -> list[int]:
        """Builtin integers for the worker channel: sum in ns, then index and count of each bucket that is not empty."""
        wire = [self.sum_ns]
        for index, count in enumerate(self.counts):
            if count:
                wire += (index, count)
        return wire

    @classmethod
    def from_wire(cls, bounds: Sequence[float], wire: Iterable[int]) -> "Histogram":
        """The histogram that `to_wire` described; ValueError for a wire that does not fit the bounds."""
        histogram = cls(bounds)
        sum_ns, *pairs = wire
        if len(pairs) % 2 or sum_ns < 0:
            raise ValueError("a histogram on the wire is a sum and pairs of index and count")
        for index, count in zip(pairs[::2], pairs[1::2], strict=True):
            if not 0 <= index < len(histogram.counts) or count < 1:
                raise ValueError(f"no bucket {index} with {count} values in a histogram of {len(bounds)} bounds")
            histogram.counts[index] += count
        histogram.sum_ns = sum_ns
        return histogram

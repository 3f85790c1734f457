"""Exact quantiles by nearest rank: every value reported is a value that was measured.

Failures stand beside percentiles. The one percentile that counts them, as infinitely late, has its own function.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TypedDict

LEVELS = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


class Summary(TypedDict):
    """One quantity over the requests of a cell; the unit is that of the values, n is how many were measured."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    min: float
    max: float
    n: int


def nearest_rank(values: Iterable[float | None], q: float) -> float | None:
    """The smallest measured value with at least a share q of all values at or below it; None without values.

    q is in (0, 1]. None and NaN are not measurements and are left out. Values need not be sorted.
    """
    ordered = _measured(values)
    return ordered[rank(len(ordered), q) - 1] if ordered else None


def of_sorted(ordered: Sequence[float], q: float) -> float | None:
    """The nearest rank of values that are sorted and all measured, without a look at every one of them."""
    return ordered[rank(len(ordered), q) - 1] if ordered else None


def nearest_rank_with_failures(values: Iterable[float | None], failures: int, q: float) -> float | None:
    """The nearest rank when each failed request counts as infinitely late; None without values and failures."""
    return nearest_rank([*_measured(values), *[math.inf] * failures], q)


def summary(values: Iterable[float | None]) -> Summary | None:
    """Mean, nearest-rank percentiles, extremes and count of the measured values; None when there are none."""
    ordered = _measured(values)
    if not ordered:
        return None
    p50, p90, p95, p99 = (ordered[rank(len(ordered), q) - 1] for q in LEVELS.values())
    return {
        "mean": math.fsum(ordered) / len(ordered),
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "min": ordered[0],
        "max": ordered[-1],
        "n": len(ordered),
    }


def is_low_n(n: int, q: float = 0.99) -> bool:
    """Whether n values are too few for the quantile q to differ from the maximum: under 100 for p99."""
    return n < math.ceil(round(1.0 / (1.0 - q), 6))


def _measured(values: Iterable[float | None]) -> list[float]:
    return sorted(value for value in values if value is not None and not math.isnan(value))


def rank(n: int, q: float) -> int:
    """The place, from 1, of the nearest rank among n values in order: ceil(q * n), at least 1. Rounded first, or
    0.07 * 100 = 7.000000000000001 would give 8."""
    if not 0.0 < q <= 1.0:
        raise ValueError(f"a quantile lies in (0, 1], not {q}")
    return max(1, math.ceil(round(q * n, 9)))

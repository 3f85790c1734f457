"""One quantity in one cell: exact nearest-rank percentiles, a bootstrap interval, failures as infinite times.

The definitions are those of `measure.quantile` (a test holds them equal); here they run on arrays, because a cell can
hold millions of ITL samples.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from loadkit.measure.quantile import LEVELS, is_low_n

FAILED = "failed"  # the name of a failure-inflated percentile that falls on a request without an answer

_DRAWS = 2000
_SEED = 20


def nearest_rank(ordered: np.ndarray, q: float) -> float:
    """The value at rank ceil(q n) of ascending values, n >= 1. q as written: 0.95 of 20 values is rank 19."""
    rank = math.ceil(round(q * len(ordered), 9))
    return float(ordered[max(rank, 1) - 1])


def spread(values: Sequence[float]) -> dict[str, Any] | None:
    """mean, p50, p90, p95, p99, min, max, n and ci (90 % interval of the median) in the unit of the values.

    `low_n`: fewer than 100 values, so that p99 is the largest of them.

    None without values: absent is null, never 0.
    """
    if len(values) == 0:
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    return {
        "mean": float(ordered.mean()),
        **{name: nearest_rank(ordered, q) for name, q in LEVELS.items()},
        "min": float(ordered[0]),
        "max": float(ordered[-1]),
        "n": len(ordered),
        "low_n": is_low_n(len(ordered)),
        "ci": median_interval(ordered),
    }


def median(values: Sequence[float] | np.ndarray) -> float | None:
    """The nearest-rank median, None without values."""
    return nearest_rank(np.sort(np.asarray(values, dtype=float)), 0.5) if len(values) else None


def median_interval(ordered: np.ndarray) -> list[float] | None:
    """Bootstrap 90 % interval of the median of ascending values: [low, high]; None below three values.

    The r-th smallest of n draws with replacement is the value at rank ceil(n B), B ~ Beta(r, n - r + 1), so the
    resamples are drawn as ranks: the same distribution at a cost that does not depend on n. Seeded: the same records
    give the same interval.
    """
    n = len(ordered)
    if n < 3:
        return None
    rank = math.ceil(n / 2)
    draws = np.random.default_rng(_SEED).beta(rank, n - rank + 1, _DRAWS)
    medians = np.sort(ordered[np.ceil(n * draws).astype(int).clip(1, n) - 1])
    return [nearest_rank(medians, 0.05), nearest_rank(medians, 0.95)]


def with_failures(values: Sequence[float], failed: int) -> dict[str, Any] | None:
    """Percentiles over answered and failed requests together, a failure counting as an infinite time.

    A percentile that falls on a failure is the string "failed". None without requests; n counts both.
    """
    n = len(values) + failed
    if n == 0:
        return None
    ordered = np.sort(np.concatenate([np.asarray(values, dtype=float), np.full(failed, np.inf)]))
    ranks = {name: nearest_rank(ordered, q) for name, q in LEVELS.items()}
    return {**{name: v if math.isfinite(v) else FAILED for name, v in ranks.items()}, "n": n}

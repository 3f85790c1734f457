"""Sorts out what callers hand in: ascending distinct tiers with repeats that can be measurements."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from loadkit.analysis.knee.tiers import Array

SMALLEST, GREATEST = 1e-15, 1e15  # beyond these no unit makes sense, and powers of ratios would not fit a float


def ladder(x: Any, samples: Any) -> tuple[Array, list[Array]]:
    """Tiers in ascending order with their repeats, sorted.

    Tiers of the same x are joined. Left out is what `number` does not take, and tiers without any repeat.
    `samples[i]` may be a single number; an x or a sample without its partner is ignored.
    """
    joined: dict[float, list[float]] = {}
    for place, repeats in zip(series(x), series(samples), strict=False):
        tier = number(place)
        values = [value for value in map(number, series(repeats)) if value is not None]
        if tier is not None and values:
            joined.setdefault(tier, []).extend(values)
    tiers = sorted(joined)
    return np.array(tiers), [np.array(sorted(joined[tier])) for tier in tiers]


def series(values: Any) -> Iterable[Any]:
    """The values to go through; what cannot be gone through is one value alone."""
    if isinstance(values, str | bytes):
        return (values,)
    try:
        return iter(values)
    except TypeError:
        return (values,)


def number(value: Any) -> float | None:
    """A number that can be a measurement in some unit, else None."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if SMALLEST <= found <= GREATEST else None

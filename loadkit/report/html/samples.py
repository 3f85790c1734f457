"""Many samples as the few marks a chart can show: the page of a long run stays small."""

from collections.abc import Sequence

import numpy as np

POINTS = 60  # of one cell; beyond them its dots are one blot anyway
BINS = 72
FLOOR = 30.0  # a time this many times below every median stands at the end of its axis


def thinned(values: Sequence[float], limit: int = POINTS) -> list[float]:
    """At most `limit` of the values, ascending, at even ranks: the smallest and the largest stay."""
    ordered = np.sort(np.asarray(values, dtype=float))
    if len(ordered) > limit:
        ordered = ordered[np.linspace(0, len(ordered) - 1, limit).round().astype(int)]
    return [float(value) for value in ordered]


def span(groups: Sequence[Sequence[float]], medians: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis for all groups; values far below all medians, zeros too, do not stretch it.

    `medians` are those of the groups, ms; every group has a value.
    """
    high = max(max(float(np.max(values)) for values in groups), 1e-6)
    low = min(max(min(float(np.min(values)) for values in groups), min(medians) / FLOOR, high / 1e9), high)
    return (low, high) if high > 1.05 * low else (low / 1.5, high * 1.5)


def shares(values: Sequence[float], low: float, high: float, bins: int = BINS) -> list[tuple[float, float, float]]:
    """(from, to, share of the values) of every filled bin, even on a logarithmic axis; the ends take the rest."""
    ends = float(np.log(low)), float(np.log(high))
    places = np.log(np.clip(np.asarray(values, dtype=float), low, high)).clip(*ends)
    counts, bounds = np.histogram(places, bins, ends)
    bounds = np.exp(bounds)
    return [(float(bounds[i]), float(bounds[i + 1]), float(counts[i] / len(values))) for i in np.flatnonzero(counts)]

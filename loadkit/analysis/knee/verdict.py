"""The posterior over all candidates, and the answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadkit.analysis.knee import rates, times
from loadkit.analysis.knee.candidates import Candidates
from loadkit.analysis.knee.read import ladder
from loadkit.analysis.knee.tiers import Array, build

MIN_TIERS = 4
EVEN = 0.5
LEVEL = (0.05, 0.95)


@dataclass(frozen=True)
class Knee:
    """Where a curve leaves its low regime, in the unit of x, or `kind` none and why.

    `kind`: none, smooth (K25 of a + b x + c x^2), hinge, break (K is anywhere in the gap between two tiers),
    saturation (N90 of a throughput), peak (the maximum of a throughput that falls again).
    `reason` with a knee: empty, one_tier_above (only the last tier shows it: measure further out), or
    already_superlinear (it lies below the second tier, so that the low regime was hardly seen).
    `reason` without: too_few_tiers, linear, concave, stairs, excess_below_gate (a bend of less than 25 % at the
    longest tier), still_rising (a throughput that saturates beyond the tiers).
    """

    kind: str
    knee: float | None
    ci: tuple[float, float] | None
    """The 90 % interval; of a break never less than its whole gap; from 0 where the knee may lie below all tiers."""
    probability: float
    """Posterior probability that there is a knee within the tiers."""
    excess: float | None
    """Of the likeliest model: how far the curve is above its low regime at the longest tier (0.25 = 25 %)."""
    last_good: float | None
    """The longest tested x up to the knee."""
    reason: str


def locate(x: Any, samples: Any, *, axis: str = "length", metric: str = "ttft") -> Knee:
    """Finds the knee of a ladder: `samples[i]` are the repeats at `x[i]`, in any order and any unit.

    `axis` is length or concurrency, `metric` ttft, latency or throughput. Rates become times by x / rate. Never
    raises for the data: what is no positive number is left out, and fewer than four tiers are too few.
    """
    tiers_x, repeats = ladder(x, samples)
    if len(tiers_x) < MIN_TIERS:
        return Knee("none", None, None, 0.0, None, None, "too_few_tiers")
    if metric == "throughput":
        repeats = [place / values for place, values in zip(tiers_x, repeats, strict=True)]
    tiers = build(tiers_x, repeats)
    saturates = metric == "throughput" and axis == "concurrency"
    return verdict(tiers_x, rates.candidates(tiers) if saturates else times.candidates(tiers, axis))


def verdict(x: Array, found: Sequence[Candidates]) -> Knee:
    """The answer at even odds: the heaviest kind, the posterior median of log K, and its quantiles."""
    top = max(float(each.weight.max()) for each in found)
    mass = [np.exp(each.weight - top) for each in found]
    total = sum(float(each.sum()) for each in mass)
    knees = [each.kept(each.knee) for each in found]
    by_kind: dict[str, float] = {}
    for each, weights in zip(found, mass, strict=True):
        by_kind[each.kind] = by_kind.get(each.kind, 0.0) + float(weights[each.knee].sum()) / total
    probability = sum(by_kind.values())
    if probability < EVEN:
        reasons: dict[str, float] = {}
        for each, weights in zip(found, mass, strict=True):
            reasons[each.reason] = reasons.get(each.reason, 0.0) + float(weights[~each.knee].sum())
        likeliest = max(found, key=lambda each: float(each.weight.max()))
        excess = float(likeliest.excess[np.argmax(likeliest.weight)])
        return Knee("none", None, None, probability, excess, None, max(reasons, key=lambda r: reasons[r]))
    kind = max(by_kind, key=lambda k: by_kind[k])
    low, middle, high = quantiles(knees, (LEVEL[0], 0.5, LEVEL[1]))
    best = max((each for each in knees if each.kind == kind and len(each.low)), key=lambda each: float(each.weight.max()))
    at = int(np.argmax(best.weight))
    if kind == "break":
        low, high = min(low, best.low[at]), max(high, best.high[at])
    knee = float(np.exp(middle))
    return Knee(
        kind,
        knee,
        (float(np.exp(low)), float(np.exp(high))),
        probability,
        float(best.excess[at]),
        float(x[x <= knee][-1]) if knee >= x[0] else None,
        "",
    )


def quantiles(knees: Sequence[Candidates], shares: Sequence[float]) -> Array:
    """Quantiles of log K over boxes with evenly spread weights."""
    low, high, weight = (
        np.concatenate([getattr(each, name) for each in knees]) for name in ("low", "high", "weight")
    )
    density = np.exp(weight - weight.max()) / (high - low)
    edges = np.unique(np.concatenate([low, high]))
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, low), density)
    np.add.at(change, np.searchsorted(edges, high), -density)
    grown = np.concatenate([[0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(edges))])
    return np.interp(np.asarray(shares) * grown[-1], grown, edges)

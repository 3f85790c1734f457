"""The posterior over all candidates, and the answer."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loadkit.analysis.knee import rates, times
from loadkit.analysis.knee.candidates import Candidates
from loadkit.analysis.knee.read import ladder
from loadkit.analysis.knee.tiers import Array, build

MIN_TIERS = 4
MOST_TIERS = 500  # the work grows with their square
EVEN = 0.5
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Knee:
    """Where a curve leaves its low regime, in the unit of x, or `kind` none and why.

    `kind`: none, smooth (K25: 25 % above the tangent a + b x), hinge (steeper from here on), break (a step somewhere
    between two tiers), saturation (N90: 90 % of the greatest throughput), peak (a throughput that falls again).
    `reason` of none: too_few_tiers, too_many_tiers, linear, concave, stairs (prompts padded to chunks),
    excess_below_gate (a bend of less than 25 % at the longest tier), still_rising (the throughput saturates beyond the
    tiers).
    `reason` of a knee: empty, or already_superlinear, already_saturated (it lies below all tiers), one_tier_below,
    one_tier_above (a single tier shows one of its sides: measure more of them).
    """

    kind: str
    knee: float | None
    ci: tuple[float, float] | None
    """The 90 % interval; of a break never less than the whole gap; from 0 for a knee below all tiers."""
    probability: float
    """Posterior probability that there is a knee within the tiers."""
    excess: float | None
    """How far the likeliest curve is above its low regime at the longest tier: 0.25 is 25 %."""
    last_good: float | None
    """The longest tested x up to the knee."""
    reason: str

    def items(self) -> Iterable[tuple[str, Any]]:
        """Field names and values, for what prints or stores an answer."""
        return asdict(self).items()


def locate(x: Any, samples: Any, *, axis: str = "length", metric: str = "ttft") -> Knee:
    """Finds the knee of a ladder: `samples[i]` are the repeats at `x[i]`, in any order and any unit.

    `axis` is length or concurrency, `metric` ttft, latency or throughput; a rate becomes a time, x / rate. Never raises
    for the data: what is no positive number is left out, and fewer than four tiers are too few.
    """
    places, repeats = ladder(x, samples)
    if len(places) < MIN_TIERS:
        return nothing("too_few_tiers")
    if len(places) > MOST_TIERS:
        return nothing("too_many_tiers")
    if metric == "throughput":
        repeats = [place / values for place, values in zip(places, repeats, strict=True)]
    tiers = build(places, repeats)
    saturates = metric == "throughput" and axis == "concurrency"
    return verdict(places, rates.candidates(tiers) if saturates else times.candidates(tiers, axis))


def nothing(reason: str, probability: float = 0.0, excess: float | None = None) -> Knee:
    return Knee("none", None, None, probability, excess, None, reason)


def verdict(x: Array, found: Sequence[Candidates]) -> Knee:
    """A knee at better than even odds, of the heaviest kind; else none, for the heaviest reason."""
    found = [each for each in found if len(each.low)]
    top = max(float(each.weight.max()) for each in found)
    masses = [np.exp(each.weight - top) for each in found]
    total = sum(float(mass.sum()) for mass in masses)
    kinds: dict[str, float] = {}
    reasons: dict[str, float] = {}
    for each, mass in zip(found, masses, strict=True):
        kinds[each.kind] = kinds.get(each.kind, 0.0) + float(mass[each.knee].sum()) / total
        reasons[each.reason] = reasons.get(each.reason, 0.0) + float(mass[~each.knee].sum())
    probability = min(1.0, sum(kinds.values()))
    if probability < EVEN:
        return nothing(max(reasons, key=reasons.__getitem__), probability, heaviest(found)[1])
    return answer(x, [each.kept(each.knee) for each in found], max(kinds, key=kinds.__getitem__), probability)


def answer(x: Array, knees: Sequence[Candidates], kind: str, probability: float) -> Knee:
    """Posterior median and quantiles of log K over all kinds; a break stands in the middle of its gap."""
    low, middle, high = quantiles(knees)
    box, excess = heaviest([each for each in knees if each.kind == kind])
    if kind == "break":
        low, middle, high = min(low, box[0]), sum(box) / 2, max(high, box[1])
    knee = float(np.exp(middle))
    below = x[x <= knee]
    return Knee(
        kind,
        knee,
        (float(np.exp(low)) if len(below) else 0.0, float(np.exp(high))),
        probability,
        excess,
        float(below[-1]) if len(below) else None,
        thin_side(kind, len(below), len(x)),
    )


def thin_side(kind: str, below: int, tiers: int) -> str:
    """The `reason` of a knee with so many tiers up to it."""
    if below == 0:
        return "already_saturated" if kind in ("saturation", "peak") else "already_superlinear"
    if below == 1:
        return "one_tier_below"
    return "one_tier_above" if below >= tiers - 1 else ""


def heaviest(found: Sequence[Candidates]) -> tuple[tuple[float, float], float]:
    """Box and excess of the candidate with the greatest weight."""
    best = max((each for each in found if len(each.low)), key=lambda each: float(each.weight.max()))
    at = int(np.argmax(best.weight))
    return (float(best.low[at]), float(best.high[at])), float(best.excess[at])


def quantiles(knees: Sequence[Candidates]) -> tuple[float, float, float]:
    """QUANTILES of log K over boxes that hold their weight evenly."""
    low, high, weight = (np.concatenate([getattr(each, side) for each in knees]) for side in ("low", "high", "weight"))
    density = np.exp(weight - weight.max()) / (high - low)
    edges = np.unique(np.concatenate([low, high]))
    change = np.zeros(len(edges))
    np.add.at(change, np.searchsorted(edges, low), density)
    np.add.at(change, np.searchsorted(edges, high), -density)
    grown = np.concatenate([[0.0], np.cumsum(np.cumsum(change)[:-1] * np.diff(edges))])
    first, middle, last = np.interp(np.array(QUANTILES) * grown[-1], grown, edges)
    return float(first), float(middle), float(last)

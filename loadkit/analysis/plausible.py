"""Answers that came sooner than prompts of their length allow: a prefix cache, whether the server owns up to it or not.

A TTFT is implausible if it lies below half of a floor that the rest of the run gives, and 5 ms or more below it:

- at concurrency 1, with three other tiers or more: the median of the other repeats of its own tier, and at most what
  the other tiers allow. They allow the power law through their medians, and no less than the second largest median of
  the shorter tiers. Where most repeats were cached, the repeats cannot show it: then the tier as a whole is held
  against the smaller of that law and that median;
- at higher concurrency, the median TTFT of the same tier at concurrency 1: company never makes an answer come sooner.

Where answers scatter, half is not far: the share is divided by the square of (median / fastest answer), the median of
that ratio over the tiers at concurrency 1, its own tier left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from loadkit.analysis.growth import line
from loadkit.analysis.spread import median
from loadkit.analysis.strata import Stratum

FAR = 0.5  # of the floor
JITTER_MS = 5.0  # of a network, or of a busy client
MIN_OTHERS = 3  # tiers behind a fit
MIN_REPEATS = 2  # other answers of the tier


@dataclass(frozen=True, slots=True)
class Implausible:
    """`count` answers of a cell came in `fastest_ms` or little more, where the rest of the run gives `floor_ms`."""

    count: int
    fastest_ms: float
    floor_ms: float


def implausible(found: Iterable[Stratum]) -> dict[tuple[int, int], Implausible]:
    """The cells with implausible TTFTs, by (tier, concurrency)."""
    strata = list(found)
    single = {s.tier_tokens: points for s in strata if s.concurrency == 1 and (points := _points(s))}
    middles = {tier: median(ttft) or 0.0 for tier, (_, ttft) in single.items()}
    result = {}
    for stratum in strata:
        ttft = np.array(stratum.values["ttft_ms"])
        if not len(ttft):
            continue
        floors = (
            _alone(stratum.tier_tokens, single, middles)
            if stratum.concurrency == 1
            else _in_company(stratum, ttft, single)
        )
        if floors is None:
            continue
        far = FAR / _scatter(stratum, single) ** 2
        early = ttft < np.minimum(far * floors, floors - JITTER_MS)
        if early.any():
            worst = int(np.argmin(np.where(early, ttft, np.inf)))
            result[stratum.tier_tokens, stratum.concurrency] = Implausible(
                int(early.sum()), float(ttft[worst]), float(floors[worst])
            )
    return result


Points = tuple[float, np.ndarray]  # tokens, TTFT of every answer in ms


def _points(stratum: Stratum) -> Points | None:
    """Length and times of a tier; None where they are not those of a prompt that was read."""
    tokens, ttft = median(stratum.values["prompt_tokens"]), stratum.values["ttft_ms"]
    return (tokens, np.array(ttft)) if tokens and tokens > 0 and (median(ttft) or 0.0) > 0 else None


def _scatter(stratum: Stratum, single: Mapping[int, Points]) -> float:
    """How far the fastest answer of a tier lies below its median, as a ratio of 1 or more, in the median tier."""
    own = stratum.tier_tokens if stratum.concurrency == 1 else None
    ratios = [
        (median(ttft) or 0.0) / fastest
        for tier, (_, ttft) in single.items()
        if tier != own and (fastest := float(ttft.min())) > 0
    ]
    return median(ratios) or 1.0


def _in_company(stratum: Stratum, ttft: np.ndarray, single: Mapping[int, Points]) -> np.ndarray | None:
    """The same tier alone gives the floor of every answer."""
    alone = single.get(stratum.tier_tokens)
    return None if alone is None else np.full(len(ttft), median(alone[1]) or 0.0)


def _alone(tier: int, single: Mapping[int, Points], middles: Mapping[int, float]) -> np.ndarray | None:
    """The floor of every answer of a tier at concurrency 1; None where too little is known of the other tiers."""
    if tier not in single:
        return None
    tokens, ttft = single[tier]
    others = [(n, middles[other]) for other, (n, _) in single.items() if other != tier]
    if len(others) < MIN_OTHERS or len({n for n, _ in others}) < 2:
        return None
    # The second largest: one tier alone may have been slow for its own reasons, a cold start for one.
    shorter = sorted((middle for n, middle in others if n < tokens), reverse=True)[1:2]
    floor = shorter[0] if shorter else 0.0
    slope, intercept, *_ = line(np.log([n for n, _ in others]), np.log([middle for _, middle in others]))
    fit = float(np.exp(intercept + slope * np.log(tokens)))
    if (median(ttft) or 0.0) < FAR * min(fit, floor):
        return np.full(len(ttft), min(fit, floor))
    if len(ttft) <= MIN_REPEATS:
        return None
    return np.minimum(max(fit, floor), _of_others(ttft))


def _of_others(ttft: np.ndarray) -> np.ndarray:
    """For every value the nearest-rank median of the others."""
    ordered = np.sort(ttft)
    rank = -(-(len(ttft) - 1) // 2)  # of the others, from 1
    return np.where(ttft <= ordered[rank - 1], ordered[rank], ordered[rank - 1])

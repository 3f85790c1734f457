"""Goodput: the most requests per second one replica completes while every objective holds, from measured loads alone.

DistServe (2024), AIPerf `--goodput` and vLLM's benchmark count what meets all objectives. A load holds when no
objective is missed, none is without its number, and at least 99 % of its requests succeeded. Between the last load that
holds and the first that does not lies the knee: nothing is interpolated across it, and an answer is always a measured
load.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MIN_SUCCESS = 0.99


@dataclass(frozen=True, slots=True)
class Point:
    """One measured load: streams in flight, or requests/s of an open loop. `success` is a share of 1.

    `missed` names objectives that do not hold, `unjudged` those of which the measurement has no number.
    """

    load: float
    requests_per_s: float
    success: float = 1.0
    missed: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether its requests count as goodput."""
        return not self.missed and not self.unjudged and self.success >= MIN_SUCCESS


@dataclass(frozen=True, slots=True)
class Goodput:
    """`best` is the load with the most requests/s of those that hold, None where none does; `above` the lowest load
    beyond it that does not hold, None where nothing higher was measured that fails. `doubtful` are lower loads that do
    not hold: a reader should not trust the curve before they are measured again.

    `ceiling`: no load between `best` and `above` completes more requests/s than this as long as throughput does not
    fall before it rises again; None without `above`, where nothing bounds it.
    """

    best: Point | None
    above: Point | None
    doubtful: tuple[float, ...]
    ceiling: float | None


def goodput(points: Iterable[Point]) -> Goodput:
    """The goodput of one tier from its measured loads, in any order. Of equal rates the lower load is the answer."""
    ordered = sorted(points, key=lambda point: point.load)
    holding = [point for point in ordered if point.holds]
    best = max(holding, key=lambda point: (point.requests_per_s, -point.load), default=None)
    if best is None:
        return Goodput(None, ordered[0] if ordered else None, (), None)
    beyond = [point for point in ordered if point.load > best.load and not point.holds]
    above = beyond[0] if beyond else None
    doubtful = tuple(point.load for point in ordered if point.load < best.load and not point.holds)
    ceiling = max(best.requests_per_s, above.requests_per_s) if above else None
    return Goodput(best, above, doubtful, ceiling)

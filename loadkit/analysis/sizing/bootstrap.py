"""How sure a goodput is: the requests of every cell drawn again with replacement, and everything decided anew.

In each draw a load holds or does not hold by its drawn requests, and completes X R / R* requests/s: with the same
streams in flight the rate goes inversely with the mean time in the system (Little). An open loop completes what
arrives. A request is drawn with all its gaps, so that gaps of one answer do not pass for independent ones.
"""

from collections.abc import Callable, Sequence

import numpy as np

from loadkit.analysis.sizing.judged import RATE, Row
from loadkit.analysis.sizing.samples import CellSamples
from loadkit.capacity.goodput import MIN_SUCCESS
from loadkit.measure.quantile import LEVELS
from loadkit.measure.slo import Slo

DRAWS = 400
SEED = 21
FEWEST = 3  # answered requests of a load, below which nothing is said of its scatter
INTERVAL = (0.05, 0.95)
_WORK = 20_000_000  # entries looked at in one cell; a cell of millions of requests is drawn less often

Array = np.ndarray


def rates(rows: Sequence[tuple[Row, float, CellSamples | None]], objectives: Sequence[Slo]) -> Array | None:
    """Goodput (requests/s) of a tier in DRAWS draws, 0 where no load holds. None where a load that matters has too few
    requests. `rows` are (load, its requests/s, its requests)."""
    drawn = []
    for row, rate, samples in rows:
        if samples is None or sum(samples.ok) < FEWEST:
            if row.point.holds:
                return None
            continue
        holds, factor = _draw(row, samples, objectives)
        drawn.append(np.where(holds, rate * factor, 0.0))
    return np.max(drawn, axis=0) if drawn else None


def interval(values: Array) -> tuple[float, float]:
    """The 90 % interval of draws, by nearest rank."""
    ordered = np.sort(values)
    low, high = (int(np.ceil(round(q * len(ordered), 9))) - 1 for q in INTERVAL)
    return float(ordered[max(low, 0)]), float(ordered[high])


def _draw(row: Row, samples: CellSamples, objectives: Sequence[Slo]) -> tuple[Array, Array]:
    """(whether the load holds, the factor on its requests/s) in every draw."""
    ok = np.array(samples.ok, dtype=float)
    residence = np.array(samples.times["e2e_ms"])
    tests = [test for item in objectives if (test := _test(item, samples, ok)) is not None]
    holds, factor = np.empty(DRAWS, dtype=bool), np.ones(DRAWS)
    known = np.isfinite(residence)
    mean = float(residence[known].mean()) if known.any() else 0.0
    rng = np.random.default_rng([SEED, row.cell["tier_tokens"], row.cell["concurrency"], int(row.point.load * 1000)])
    even = np.full(len(ok), 1 / len(ok))
    distinct = int(min(DRAWS, max(40, _WORK // len(ok))))
    for draw in range(distinct):
        counts = rng.multinomial(len(ok), even).astype(float)
        success = float((counts * ok).sum() / len(ok))
        fixed = set(row.point.missed) - {item.name for item in objectives}
        holds[draw] = success >= MIN_SUCCESS and not fixed and all(test(counts) for test in tests)
        again = float((counts[known] * residence[known]).sum())
        if row.kind != RATE and mean and again:
            factor[draw] = mean / (again / counts[known].sum())
    places = np.arange(DRAWS) % distinct
    return holds[places] & (not row.point.unjudged), factor[places]


def _test(item: Slo, samples: CellSamples, ok: Array) -> Callable[[Array], bool] | None:
    """Whether the objective holds when each request counts so many times; None where it has no numbers."""
    if item.quantile is None:
        return lambda counts: 1 - float((counts * ok).sum() / counts.sum()) <= item.limit
    if item.metric == "itl":
        values, owner, weight = samples.gaps()
    else:
        times = np.array(samples.times[f"{item.metric}_ms"])
        owner = np.argsort(times, kind="stable")[: int(np.isfinite(times).sum())]
        values, weight = times[owner], np.ones(len(owner))
    if not len(values):
        return None
    return lambda counts: _statistic(values, counts[owner] * weight, item.quantile or "") <= item.limit


def _statistic(ordered: Array, weights: Array, name: str) -> float:
    """A statistic of ascending values that count so many times each; infinite where none counts."""
    total = float(weights.sum())
    if not total:
        return float("inf")
    if name == "mean":
        return float((ordered * weights).sum() / total)
    if name == "max":
        return float(ordered[np.flatnonzero(weights)[-1]])
    rank = max(1.0, np.ceil(round(LEVELS[name] * total, 9)))
    return float(ordered[np.searchsorted(np.cumsum(weights), rank)])

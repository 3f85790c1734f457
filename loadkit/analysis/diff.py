"""Two runs side by side: medians with intervals per cell, their ratio, and whether a difference is shown.

The ratio is that of the nearest-rank medians, B over A. Its 95 % interval comes from a bootstrap over rounds: a draw
takes as many rounds as a run has, with replacement, all requests of a round together, because requests of one round
share what the server did at that time; the runs are drawn apart, 2,000 times, seeded. Few rounds cannot show their own
spread, so the deviations of the drawn log ratio from the measured one are stretched by t / z * sqrt(n / (n - 1)), n
the rounds of the smaller run, t and z the 97.5 % quantiles of Student's t with n - 1 degrees of freedom and of the
normal distribution (the expanded interval of Hesterberg, "What Teachers Should Know About the Bootstrap", 2015, applied
to deviations, since no quantile of three values leaves their range). An interval that holds 1 shows no difference.
Where there is none, at most about one comparison in twenty still shows a difference.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from loadkit.analysis.reading import number, whole
from loadkit.analysis.strata import MIN_ROUNDS, outcome_of
from loadkit.plan.ladder import Cell
from loadkit.record.names import Flag, Outcome, Phase

SCHEMA = "loadkit-diff/1"
METRICS = ("ttft_ms", "tpot_ms", "e2e_ms")
LIKE = 1.02  # lengths this near are the same work
FASTER, SLOWER, SAME, MIXED = "faster", "slower", "no difference shown", "mixed"

_DRAWS = 2000
_SEED = 41
_Z = 1.959964  # 97.5 % quantile of the normal distribution
_CHUNK = 4_000_000  # numbers held at once while drawing
_PLACES = 500

Rounds = Sequence[Sequence[float]]


class ByRound:
    """Passes the records of a run on and keeps their values by round; then `cells`.

    `cells()[cell][metric]` are the values of each round, from measured requests that succeeded. Requests without a
    round are taken in turns of `concurrency`, in the order in which they were written.
    """

    def __init__(self) -> None:
        self._cells: dict[str, dict[str, dict[Any, list[float]]]] = {}
        self._unnamed: dict[str, int] = {}

    def watch(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The records as they pass."""
        for record in records:
            if record.get("phase") == Phase.MEASURE and outcome_of(record) == Outcome.OK:
                self._add(record)
            yield record

    def _add(self, record: Mapping[str, Any]) -> None:
        tier, streams = number(record, "tier_tokens"), number(record, "concurrency")
        if tier is None or streams is None:
            return
        name = Cell(int(tier), int(streams), rate=number(record, "rate"), stage=whole(record, "stage")).id
        turn: Any = number(record, "arrival") or number(record, "round") or None
        if turn is None:
            seen = self._unnamed[name] = self._unnamed.get(name, 0) + 1
            turn = ("turn", (seen - 1) // max(int(streams), 1))
        for metric in METRICS:
            if (value := number(record, metric)) is not None:
                self._cells.setdefault(name, {}).setdefault(metric, {}).setdefault(turn, []).append(value)

    def cells(self) -> dict[str, dict[str, list[list[float]]]]:
        """Cell -> metric -> rounds."""
        return {
            name: {metric: list(rounds.values()) for metric, rounds in metrics.items()}
            for name, metrics in self._cells.items()
        }


def diff(
    rounds_a: Mapping[str, Mapping[str, Rounds]],
    summary_a: Mapping[str, Any],
    rounds_b: Mapping[str, Mapping[str, Rounds]],
    summary_b: Mapping[str, Any],
) -> dict[str, Any]:
    """Cells that both runs have, each with its metrics and a verdict on B; and the cells only one run has.

    rounds: what `ByRound` gives. `metrics[name]` is {a, b: {p50, ci, n, rounds}, ratio, ci, verdict, reason}; times are
    ms, ci of a median is the 90 % interval of the summary. A verdict is None with a reason: invalid, no_answer,
    too_few_rounds, prompt_lengths_differ, or output_lengths_differ (E2E only).
    """
    a, b = ({cell["cell"]: cell for cell in summary["cells"]} for summary in (summary_a, summary_b))
    return {
        "schema": SCHEMA,
        "cells": [_cell(a[name], b[name], rounds_a.get(name, {}), rounds_b.get(name, {})) for name in a if name in b],
        "only_a": [name for name in a if name not in b],
        "only_b": [name for name in b if name not in a],
        "damaged_lines": {"a": summary_a["damaged_lines"], "b": summary_b["damaged_lines"]},
    }


def ratio_of_medians(a: Rounds, b: Rounds) -> tuple[float, list[float]]:
    """Median of b over median of a, and its 95 % interval; see the top of this page. Three rounds each, values > 0."""
    if _listed(b) < _listed(a):  # one order of drawing for both, so that A against B is B against A turned over
        ratio, (low, high) = ratio_of_medians(b, a)
        return 1 / ratio, [1 / high, 1 / low]
    rng = np.random.default_rng(_SEED)
    point = math.log(_median(b) / _median(a))
    drawn = np.log(_drawn_medians(b, rng)) - np.log(_drawn_medians(a, rng))
    low, high = np.quantile(drawn - point, [0.025, 0.975]) * _stretch(min(len(a), len(b)))
    return math.exp(point), [math.exp(point + low), math.exp(point + high)]


def verdict(ci: Sequence[float]) -> str:
    """What an interval of the ratio of times says of B."""
    if ci[0] > 1:
        return SLOWER
    return FASTER if ci[1] < 1 else SAME


def _cell(a: Mapping[str, Any], b: Mapping[str, Any], mine: Mapping[str, Rounds], theirs: Mapping[str, Rounds]) -> dict:
    doubts = [f"{status} in {run}" for run, cell in (("A", a), ("B", b)) if (status := _status(cell)) != "valid"]
    invalid = "invalid" in (_status(a), _status(b))
    metrics = {name: _metric(a, b, name, mine.get(name, ()), theirs.get(name, ()), invalid) for name in METRICS}
    found = {row["verdict"] for row in metrics.values()} - {None}
    shown = found - {SAME}
    return {
        "cell": a["cell"],
        "tier_tokens": a["tier_tokens"],
        "concurrency": a["concurrency"],
        "rate": a["rate"],
        "validity": {"status": "invalid" if invalid else "suspect" if doubts else "valid", "reasons": doubts},
        "metrics": metrics,
        "verdict": MIXED if len(shown) > 1 else next(iter(shown or found), None),
    }


def _metric(
    a: Mapping[str, Any], b: Mapping[str, Any], name: str, mine: Rounds, theirs: Rounds, invalid: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "a": _side(a, name, mine),
        "b": _side(b, name, theirs),
        "ratio": None,
        "ci": None,
        "verdict": None,
    }
    reason = "invalid" if invalid else _why_not(a, b, name, mine, theirs)
    if reason is None:
        ratio, ci = ratio_of_medians(mine, theirs)
        row |= {"ratio": ratio, "ci": ci, "verdict": verdict(ci)}
    return {**row, "reason": reason}


def _why_not(a: Mapping[str, Any], b: Mapping[str, Any], name: str, mine: Rounds, theirs: Rounds) -> str | None:
    """Why there is no verdict on a metric, None when there can be one."""
    if not mine or not theirs or min(map(min, (*mine, *theirs))) <= 0:
        return "no_answer"
    if min(len(mine), len(theirs)) < MIN_ROUNDS:
        return Flag.TOO_FEW_ROUNDS.value
    return _unlike(a, b, name)


def _unlike(a: Mapping[str, Any], b: Mapping[str, Any], name: str) -> str | None:
    """Why the times of two cells are not of like work: prompts, or for E2E answers, of other median length."""
    for kind in ("prompt", "output") if name == "e2e_ms" else ("prompt",):
        known = [length for cell in (a, b) if (length := (cell[f"{kind}_tokens"] or {}).get("median"))]
        if len(known) == 2 and max(known) > LIKE * min(known):
            return f"{kind}_lengths_differ"
    return None


def _side(cell: Mapping[str, Any], name: str, rounds: Rounds) -> dict[str, Any]:
    spread = cell[name] or {}
    return {"p50": spread.get("p50"), "ci": spread.get("ci"), "n": spread.get("n", 0), "rounds": len(rounds)}


def _status(cell: Mapping[str, Any]) -> str:
    return cell["validity"]["status"]


def _listed(rounds: Rounds) -> list[list[float]]:
    return [list(values) for values in rounds]


def _median(rounds: Rounds) -> float:
    values = sorted(value for values in rounds for value in values)
    return values[math.ceil(len(values) / 2) - 1]


def _drawn_medians(rounds: Rounds, rng: np.random.Generator) -> np.ndarray:
    """Nearest-rank medians of `_DRAWS` resamples of whole rounds."""
    n, sizes = len(rounds), np.array([len(values) for values in rounds])
    if sizes.max() == 1:  # the median of such a resample is an order statistic: its rank is drawn, see analysis.spread
        rank = math.ceil(n / 2)
        ranks = np.ceil(n * rng.beta(rank, n - rank + 1, _DRAWS)).astype(int).clip(1, n)
        return np.sort(np.concatenate([np.asarray(values, dtype=float) for values in rounds]))[ranks - 1]
    places, below = _counts(rounds, sizes)
    step = max(1, _CHUNK // n)
    taken = (rng.multinomial(n, np.full(n, 1 / n), size=min(step, _DRAWS - at)) for at in range(0, _DRAWS, step))
    return np.concatenate([places[_reached(draws @ below, draws @ sizes)] for draws in taken])


def _counts(rounds: Rounds, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places a median can be at, and how many values of each round lie at or below each place.

    The places are the values themselves, or of more than a few thousand evenly spaced ones among them.
    """
    values = np.concatenate([np.asarray(row, dtype=float) for row in rounds])
    kept = min(4 * _PLACES, max(_PLACES, _CHUNK // len(rounds)))
    places = np.unique(values)
    if len(places) > kept:
        places = places[np.linspace(0, len(places) - 1, kept).astype(int)]
    column = np.searchsorted(places, values)
    below = np.zeros((len(rounds), len(places)))
    np.add.at(below, (np.repeat(np.arange(len(rounds)), sizes), column), 1)
    return places, np.cumsum(below, axis=1)


def _reached(below: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The first place at or below which half of the values of each resample lie: the nearest rank of the median."""
    return (below < np.ceil(total / 2)[:, None]).sum(axis=1)


def _stretch(n: int) -> float:
    """t / z * sqrt(n / (n - 1)), Student's t by its expansion in 1 / df (within 3 % from two degrees of freedom)."""
    z, df = _Z, n - 1
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    t += (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
    return t / z * math.sqrt(n / df)

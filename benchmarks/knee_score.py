"""How good answers of a knee locator are, and the bar.

Verdict: precision, recall, false_alarm (of the curves without a knee), f1. On knees found: median and 90 % quantile of
|log2(knee / true)| in octaves, one_step (within the ladder step that holds the truth), the share of 90 % intervals that
cover the truth, their median width, kind (named right), and the interval score of Winkler, width + 20 x the miss, mean
in octaves. success: the right verdict, and for a knee within one step.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

MISS = 20.0  # 2 / (1 - 0.90)
BAR = {
    False: {
        "precision": (0.97, 1.0),
        "recall": (0.96, 1.0),
        "false_alarm": (0.0, 0.02),
        "median_oct": (0.0, 0.10),
        "p90_oct": (0.0, 0.50),
        "one_step": (0.95, 1.0),
        "cover": (0.85, 0.97),
        "winkler": (0.0, 1.1),
        "success": (0.95, 1.0),
    },
    True: {
        "precision": (0.95, 1.0),
        "recall": (0.82, 1.0),
        "false_alarm": (0.0, 0.04),
        "median_oct": (0.0, 0.25),
        "p90_oct": (0.0, 1.0),
        "one_step": (0.87, 1.0),
        "cover": (0.82, 0.97),
        "winkler": (0.0, 2.6),
        "success": (0.84, 1.0),
    },
}
"""Lowest and highest allowed, by column; True: for the harder curves."""


def score(cases: Sequence[Any], answers: Sequence[Any]) -> dict[str, float]:
    """The row of a batch: `cases` with kind, knee and step_oct, `answers` with kind, knee and ci."""
    pairs = list(zip(cases, answers, strict=True))
    hits = [(case, answer) for case, answer in pairs if case.knee is not None and answer.knee is not None]
    missed = sum(case.knee is not None and answer.knee is None for case, answer in pairs)
    false = sum(case.knee is None and answer.knee is not None for case, answer in pairs)
    silent = len(pairs) - len(hits) - missed - false
    precision, recall = share(len(hits), len(hits) + false), share(len(hits), len(hits) + missed)
    row = {
        "n": len(pairs),
        "precision": precision,
        "recall": recall,
        "false_alarm": share(false, false + silent) if false + silent else 0.0,
        "f1": share(2 * precision * recall, precision + recall),
    }
    return row | located(hits) | {"success": share(silent + sum(near(*hit) for hit in hits), len(pairs))}


def located(hits: Sequence[tuple[Any, Any]]) -> dict[str, float]:
    """The columns about the knees found."""
    off = [abs(math.log2(answer.knee / case.knee)) for case, answer in hits]
    bounds = [(math.log2(max(answer.ci[0], 1e-9)), math.log2(answer.ci[1])) for _, answer in hits]
    miss = [
        max(0.0, low - math.log2(case.knee), math.log2(case.knee) - high)
        for (low, high), (case, _) in zip(bounds, hits, strict=True)
    ]
    widths = [high - low for low, high in bounds]
    return {
        "median_oct": float(np.median(off)) if off else 0.0,
        "p90_oct": float(np.quantile(off, 0.9)) if off else 0.0,
        "one_step": share(sum(near(*hit) for hit in hits), len(hits)),
        "cover": share(sum(m < 1e-9 for m in miss), len(hits)),
        "width_oct": float(np.median(widths)) if widths else 0.0,
        "winkler": float(np.mean([w + MISS * m for w, m in zip(widths, miss, strict=True)])) if widths else 0.0,
        "kind": share(sum(case.kind == answer.kind for case, answer in hits), len(hits)),
    }


def near(case: Any, answer: Any) -> bool:
    """Within one ladder step of the truth."""
    return abs(math.log2(answer.knee / case.knee)) <= case.step_oct + 1e-9


def share(part: float, whole: float) -> float:
    """part / whole, and 1 of nothing."""
    return part / whole if whole else 1.0


def below_bar(row: dict[str, float], hard: bool) -> list[str]:
    """The columns outside the bar, in words."""
    return [
        f"{name} {row[name]:.3f} is not in {low:g}..{high:g}"
        for name, (low, high) in BAR[hard].items()
        if not low <= row[name] <= high
    ]

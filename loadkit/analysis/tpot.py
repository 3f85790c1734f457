"""TPOT across the tiers at concurrency 1: flat, as long as the weights are what decoding reads, or not.

A single tier that stands out is a note and never a knee: knees are looked for in TTFT. A tier stands out when it lies
more than five median absolute deviations and a tenth from the median of the tiers while its neighbours on both sides
do not; the first and the last tier have one neighbour, and there an outlier cannot be told from a trend.
"""

from typing import Any

import numpy as np

from loadkit.analysis.growth import MIN_ROUNDS, MIN_TIERS
from loadkit.record.names import Flag

FLAT = 1.15  # largest TPOT over smallest, outliers left out
DEVIATIONS = 5.0
SHARE = 0.10

Cell = dict[str, Any]


def tpot_across_tiers(cells: list[Cell]) -> dict[str, Any]:
    """The `tpot_across_tiers` of summary.json: TPOT (ms) per tier, spread, outliers, verdict, notes, sentence.

    `verdict` is "flat" or "not flat"; None with a `reason` (too_few_tiers, too_few_rounds) below three tiers of three
    rounds. `ratio` is the largest over the smallest, `ratio_without_outliers` the same of the tiers that are none.
    """
    usable = [c for c in cells if c["concurrency"] == 1 and c["validity"]["status"] != "invalid" and c["tpot_ms"]]
    steady = [cell for cell in usable if cell["rounds"] >= MIN_ROUNDS]
    enough = len(steady) >= MIN_TIERS
    few = Flag.TOO_FEW_ROUNDS.value if len(usable) >= MIN_TIERS else "too_few_tiers"
    tiers = [
        {"tier_tokens": cell["tier_tokens"], "tpot_ms": cell["tpot_ms"]["p50"], "n": cell["tpot_ms"]["n"]}
        for cell in (steady if enough else usable)
    ]
    values = np.array([tier["tpot_ms"] for tier in tiers], dtype=float)
    out = _outliers(values)
    result: dict[str, Any] = {
        "concurrency": 1,
        "tiers": tiers,
        "median_ms": float(np.median(values)) if tiers else None,
        "ratio": _ratio(values),
        "ratio_without_outliers": _ratio(values[~out]),
        "outliers": [tier for tier, stands_out in zip(tiers, out, strict=True) if stands_out],
        "verdict": None,
        "reason": None if enough else few,
    }
    if enough and result["ratio_without_outliers"]:
        result["verdict"] = "flat" if result["ratio_without_outliers"] <= FLAT else "not flat"
    return {**result, "notes": list(_notes(result)), "sentence": sentence(result)}


def _outliers(values: np.ndarray) -> np.ndarray:
    """Which values stand out alone."""
    if len(values) < MIN_TIERS:
        return np.zeros(len(values), dtype=bool)
    away = np.abs(values - np.median(values))
    far = (away > DEVIATIONS * np.median(away)) & (away > SHARE * np.median(values))
    alone = np.zeros(len(values), dtype=bool)
    alone[1:-1] = far[1:-1] & ~far[:-2] & ~far[2:]
    return alone


def _ratio(values: np.ndarray) -> float | None:
    return float(values.max() / values.min()) if len(values) and values.min() > 0 else None


def _notes(result: dict[str, Any]) -> list[str]:
    return [
        f"TPOT {tier['tpot_ms']:.3g} ms at {tier['tier_tokens']} tokens stands out from a median of "
        f"{result['median_ms']:.3g} ms: jitter of one tier, not a knee"
        for tier in result["outliers"]
    ]


def sentence(result: dict[str, Any]) -> str:
    """Flat or not, with the spread, in one plain sentence."""
    if result["verdict"] is None:
        return f"No verdict on TPOT across tiers: {MIN_TIERS} tiers with {MIN_ROUNDS} answered rounds each are needed."
    text = (
        f"TPOT across the tiers is {result['verdict']}: median {result['median_ms']:.3g} ms, "
        f"largest over smallest {result['ratio']:.2f}"
    )
    if result["outliers"]:
        text += f", {result['ratio_without_outliers']:.2f} without what stands out"
    return text + f" (flat is up to {FLAT:.2f})."

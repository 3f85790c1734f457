"""The unit price of prefill along the tiers at concurrency 1: whether it grows, and more than a model card predicts.

Unit price = TTFT / (prompt tokens - BOS - cached), in ms per token, the median of a cell. Every length here is that
divisor. Drift = last price / first price - 1. A card predicts it from operations: the linear layers cost the same for
each token, attention costs a token more the later it comes. Decode stands beside it as prefill parallelism =
TPOT / unit price: how many prompt tokens are read in the time one output token takes; 1 means one by one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from loadkit.analysis.growth import MIN_ROUNDS, MIN_TIERS, line
from loadkit.record.names import Flag

STABLE = 0.15  # a drift up to this size leaves the price stable
LINEAR_FROM, LINEAR_TO = 0.95, 1.10  # exponents of TTFT over tokens that are called near-linear
BENDS = "bends"
NEAR_LINEAR, SUPERLINEAR, SUBLINEAR = "near-linear", "superlinear", "sublinear"
READINGS = {
    NEAR_LINEAR: "linear: no queueing shows",
    SUPERLINEAR: "a rise above linear: KV writes, another attention path, or queueing",
    SUBLINEAR: "slower than linear: a fixed cost is shared by more tokens",
}

Cell = dict[str, Any]
Ratio = Callable[[float, float], float]


def price(cells: list[Cell], predicted_ratio: Ratio | None = None, *, bends: bool = False) -> dict[str, Any]:
    """The `price` of summary.json: tiers with price and growth, two verdicts with their numbers, and a sentence.

    predicted_ratio(a, b): TTFT at b tokens over TTFT at a tokens by the model's card, None where no card is known.
    bends: a knee was found within the tiers, so that neither verdict would be true of all of them (reason bends).
    `verdict` (near-linear, superlinear, sublinear) and `stable` are None with a `reason` (too_few_tiers,
    too_few_rounds) below three tiers of three rounds; invalid cells are left out, and of tiers of one length the first
    counts. `quadratic` is the least squares fit TTFT = a n + b n^2, a in ms per token, and a / b, the length at which
    both parts cost the same.
    """
    by_length = {cell["prefilled_tokens"]: cell for cell in reversed(cells) if _usable(cell)}
    usable = list(by_length.values())
    steady = [cell for cell in usable if cell["rounds"] >= MIN_ROUNDS]
    enough = len(steady) >= MIN_TIERS
    few = Flag.TOO_FEW_ROUNDS.value if len(usable) >= MIN_TIERS else "too_few_tiers"
    chosen = sorted(steady if enough else usable, key=lambda cell: cell["prefilled_tokens"])
    result: dict[str, Any] = {
        "concurrency": 1,
        "tiers": [_tier(cell, chosen[0], predicted_ratio) for cell in chosen],
        "slope": None,
        "slope_se": None,
        "r2_linear": None,
        "drift": None,
        "predicted_drift": None,
        "quadratic": None,
        "local": [],
        "verdict": None,
        "stable": None,
        "reason": None if enough else few,
    }
    if len(chosen) >= 2:
        result |= _fits(chosen, predicted_ratio)
    if enough and bends:
        result["reason"] = BENDS
    elif enough:
        result |= {"verdict": linearity(result["slope"], result["slope_se"]), "stable": abs(result["drift"]) <= STABLE}
    return {**result, "sentence": sentence(result)}


def linearity(exponent: float, se: float | None = None) -> str:
    """The name of an exponent of TTFT over tokens; one within two standard errors of 1 is not told from it."""
    if abs(exponent - 1) <= 2 * (se or 0.0):
        return NEAR_LINEAR
    if exponent > LINEAR_TO:
        return SUPERLINEAR
    return NEAR_LINEAR if exponent >= LINEAR_FROM else SUBLINEAR


def _usable(cell: Cell) -> bool:
    return bool(
        cell["concurrency"] == 1
        and cell["validity"]["status"] != "invalid"
        and (cell["prefilled_tokens"] or 0) > 0
        and (cell["unit_price_ms"] or 0) > 0
    )


def _tier(cell: Cell, first: Cell, predicted_ratio: Ratio | None) -> dict[str, Any]:
    """One row: lengths in tokens, times in ms, growth and prediction as price over the price of the first tier."""
    tokens, start, tpot = cell["prefilled_tokens"], first["prefilled_tokens"], cell["tpot_ms"]
    return {
        "tier_tokens": cell["tier_tokens"],
        "tokens": tokens,
        "price_ms": cell["unit_price_ms"],
        "growth": cell["unit_price_ms"] / first["unit_price_ms"],
        "predicted_growth": predicted_ratio(start, tokens) * start / tokens if predicted_ratio else None,
        "parallelism": tpot["p50"] / cell["unit_price_ms"] if tpot else None,
        "suspect": cell["validity"]["status"] == "suspect",
    }


def _fits(chosen: list[Cell], predicted_ratio: Ratio | None) -> dict[str, Any]:
    """Numbers from two or more tiers of distinct length."""
    tokens = np.array([cell["prefilled_tokens"] for cell in chosen], dtype=float)
    prices = np.array([cell["unit_price_ms"] for cell in chosen], dtype=float)
    ttft = tokens * prices
    slope, _, _, se = line(np.log(tokens), np.log(ttft))
    first, last = float(tokens[0]), float(tokens[-1])
    return {
        "slope": slope,
        "slope_se": se,
        "r2_linear": line(tokens, ttft)[2] if len(chosen) >= MIN_TIERS else None,
        "drift": float(prices[-1] / prices[0] - 1),
        "predicted_drift": predicted_ratio(first, last) * first / last - 1 if predicted_ratio else None,
        "quadratic": _quadratic(tokens, ttft) if len(chosen) >= MIN_TIERS else None,
        "local": _local(tokens, ttft),
    }


def _quadratic(tokens: np.ndarray, ttft: np.ndarray) -> dict[str, float | None]:
    scale = tokens.max()
    a, b = np.linalg.lstsq(np.stack([tokens / scale, (tokens / scale) ** 2], axis=1), ttft, rcond=None)[0]
    a, b = float(a / scale), float(b / scale**2)
    return {"a_ms": a, "b_ms": b, "crossover_tokens": a / b if a > 0 and b > 0 else None}


def _local(tokens: np.ndarray, ttft: np.ndarray) -> list[dict[str, Any]]:
    """Between neighbouring tiers: exponent, slope in ms per token, and what such an exponent is read as."""
    exponents = np.diff(np.log(ttft)) / np.diff(np.log(tokens))
    slopes = np.diff(ttft) / np.diff(tokens)
    return [
        {
            "from_tokens": float(a),
            "to_tokens": float(b),
            "exponent": float(exponent),
            "slope_ms_per_token": float(slope),
            "reading": READINGS[linearity(exponent)],
        }
        for a, b, exponent, slope in zip(tokens, tokens[1:], exponents, slopes, strict=False)
    ]


def sentence(result: dict[str, Any]) -> str:
    """Both verdicts in one plain sentence with their numbers, or why there is none."""
    if result["reason"] == BENDS:
        return (
            f"No one unit price: TTFT bends within the tiers (log-log slope {result['slope']:.3f} over all of them, "
            f"R2 of the straight line {result['r2_linear'] or 0:.4f}); read the price of each tier."
        )
    if result["verdict"] is None:
        need = f"{MIN_TIERS} tiers with {MIN_ROUNDS} answered rounds each at concurrency 1 are needed"
        return f"No verdict on the unit price: {need}."
    steady = "stable" if result["stable"] else "not stable"
    text = (
        f"The unit price is {steady} (drift {100 * result['drift']:+.1f} %, stable up to {100 * STABLE:.0f} %) "
        f"and TTFT is {result['verdict']} in prompt tokens (log-log slope {result['slope']:.3f}; "
        f"near-linear is {LINEAR_FROM:.2f} to {LINEAR_TO:.2f}, or within two standard errors of 1; "
        f"R2 of the straight line {result['r2_linear'] or 0:.4f})"
    )
    if result["predicted_drift"] is not None:
        text += f"; the model card predicts a drift of {100 * result['predicted_drift']:+.1f} %"
    return text + "."

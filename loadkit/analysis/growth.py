"""How TTFT grows with prompt length at concurrency 1, from the cells of `strata` alone.

The exponent is the slope of log(TTFT) on log(prompt tokens), least squares over the medians of the tiers: 1 means that
twice the prompt takes twice the time, 2 that it takes four times. The exponent of the unit price (ms per token) stands
beside it; R2 is that of the straight line TTFT = a + b n.
"""

from typing import Any

import numpy as np

from loadkit.record.names import Flag

MIN_TIERS = 3
MIN_ROUNDS = 3
BAND = 0.05  # an exponent this near to 1, or within two standard errors of it, is called linear

BENDS = "bends"
LINEAR = "linear"
FASTER = "faster than linear"
DIP = 0.97  # a tier in between is named when it is this much cheaper than both ends
SLOWER = "slower than linear"


def growth(cells: list[dict[str, Any]], *, bends: bool = False) -> dict[str, Any]:
    """Exponents, linear fit and verdict, with one sentence for people.

    Uses cells at concurrency 1 that are not invalid and have a median TTFT and real prompt tokens. `verdict` is None
    with a `reason` (too_few_tiers, too_few_rounds) when fewer than three tiers with three answered rounds each are
    there, or where `bends` says that a knee was found within the tiers (bends): one power would not be true of all of
    them. The numbers are still given where two tiers allow them. `dropped` names every tier left out and why.
    """
    points, dropped = _points(cells)
    steady = [p for p in points if p["rounds"] >= MIN_ROUNDS]
    reason = None
    if len(points) < MIN_TIERS:
        reason = "too_few_tiers"
    elif len(steady) < MIN_TIERS:
        reason = Flag.TOO_FEW_ROUNDS.value
    else:
        dropped += [{"tier_tokens": p["tier_tokens"], "reason": _rounds_missing(p)} for p in points if p not in steady]
        points = steady
    result: dict[str, Any] = {
        "concurrency": 1,
        "tiers": len(points),
        "exponent": None,
        "exponent_se": None,
        "price_exponent": None,
        "price_first_ms": None,
        "price_last_ms": None,
        "price_lowest": None,
        "r2_linear": None,
        "intercept_ms": None,
        "slope_ms_per_token": None,
        "local_exponents": [],
        "tokens_first": points[0]["tokens"] if points else None,
        "tokens_last": points[-1]["tokens"] if points else None,
        "verdict": None,
        "reason": reason,
        "suspect": sum(p["suspect"] for p in points),
        "dropped": dropped,
    }
    if len(points) >= 2:
        result.update(_fits(points))
    if reason is None and bends:
        result["reason"] = BENDS
    elif reason is None:
        result["verdict"] = _verdict(result["exponent"], result["exponent_se"])
    result["sentence"] = sentence(result)
    return result


def _rounds_missing(point: dict[str, Any]) -> str:
    """Why a tier stays out of the fit although it answered."""
    return f"{Flag.TOO_FEW_ROUNDS.value}: {point['rounds']} of {MIN_ROUNDS}"


def _points(cells: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """One point per distinct prompt length at concurrency 1, in ascending order, and the tiers that gave none."""
    points: dict[float, dict[str, Any]] = {}
    dropped = []
    for cell in cells:
        if cell["concurrency"] != 1:
            continue
        ttft = (cell["ttft_ms"] or {}).get("p50")
        tokens = (cell["prompt_tokens"] or {}).get("median", 0)
        why = ""
        if cell["validity"]["status"] == "invalid":
            why = "invalid"
        elif not ttft or ttft <= 0:
            why = "no_answer"
        elif not tokens or tokens <= 0:
            why = "no_prompt_tokens"
        elif tokens in points:
            why = "same_length_as_another_tier"
        if why:
            dropped.append({"tier_tokens": cell["tier_tokens"], "reason": why})
            continue
        points[tokens] = {
            "tier_tokens": cell["tier_tokens"],
            "tokens": tokens,
            "ttft_ms": ttft,
            "price_ms": cell["unit_price_ms"],
            "rounds": cell["rounds"],
            "suspect": cell["validity"]["status"] == "suspect",
        }
    return [points[tokens] for tokens in sorted(points)], dropped


def _fits(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Exponents and the straight line through two or more points of distinct length."""
    tokens = np.array([p["tokens"] for p in points], dtype=float)
    ttft = np.array([p["ttft_ms"] for p in points], dtype=float)
    exponent, _, _, se = line(np.log(tokens), np.log(ttft))
    slope, intercept, r2, _ = line(tokens, ttft)
    steps = np.diff(np.log(ttft)) / np.diff(np.log(tokens))
    return {
        "exponent": exponent,
        "exponent_se": se,
        "r2_linear": r2 if len(points) >= MIN_TIERS else None,
        "intercept_ms": intercept,
        "slope_ms_per_token": slope,
        "local_exponents": [
            {"from_tokens": a["tokens"], "to_tokens": b["tokens"], "exponent": float(step)}
            for a, b, step in zip(points, points[1:], steps, strict=False)
        ],
        **_price(points),
    }


def _price(points: list[dict[str, Any]]) -> dict[str, Any]:
    """Exponent of the unit price, and its value at the shortest, the cheapest and the longest tier that has one."""
    priced = [p for p in points if p["price_ms"] and p["price_ms"] > 0]
    if len(priced) < 2:
        return {}
    lowest = min(priced, key=lambda p: p["price_ms"])
    exponent, *_ = line(np.log([p["tokens"] for p in priced]), np.log([p["price_ms"] for p in priced]))
    return {
        "price_exponent": exponent,
        "price_first_ms": priced[0]["price_ms"],
        "price_last_ms": priced[-1]["price_ms"],
        "price_lowest": {"tokens": lowest["tokens"], "price_ms": lowest["price_ms"]},
    }


def line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float | None, float | None]:
    """Least squares y = intercept + slope x: slope, intercept, R2, standard error of the slope.

    R2 is None when y does not vary; the standard error is None for two points, which leave no residual.
    """
    dx, dy = x - x.mean(), y - y.mean()
    sxx, syy = float(dx @ dx), float(dy @ dy)
    slope = float(dx @ dy) / sxx
    rest = dy - slope * dx
    sse = float(rest @ rest)
    r2 = 1 - sse / syy if syy > 0 else None
    se = float(np.sqrt(sse / (len(x) - 2) / sxx)) if len(x) > 2 else None
    return slope, float(y.mean() - slope * x.mean()), r2, se


def _verdict(exponent: float, se: float) -> str:
    away = exponent - 1
    if abs(away) <= max(BAND, 2 * se):
        return LINEAR
    return FASTER if away > 0 else SLOWER


def sentence(result: dict[str, Any]) -> str:
    """The growth in one plain sentence: exponent, verdict and what the unit price does, or why there is no verdict."""
    if result["reason"] == BENDS:
        return f"Over all tiers, the bend among them, {_power(result)}; {_price_words(result)}."
    if result["verdict"] is None:
        return _why_not(result)
    head = f"{_power(result)} ({result['verdict']})"
    doubt = f" {result['suspect']} of the {result['tiers']} tiers are suspect." if result["suspect"] else ""
    return f"{head}; {_price_words(result)}.{doubt}"


def _power(result: dict[str, Any]) -> str:
    return (
        f"TTFT grows with the prompt to the power {result['exponent']:.2f} "
        f"from {result['tokens_first']:.0f} to {result['tokens_last']:.0f} tokens"
    )


def _price_words(result: dict[str, Any]) -> str:
    first, last = result["price_first_ms"], result["price_last_ms"]
    if first is None:
        return "no unit price is known"
    low = result["price_lowest"]
    if low["tokens"] < result["tokens_last"] and low["price_ms"] < DIP * min(first, last):
        rise = 100 * (last / low["price_ms"] - 1)
        return (
            f"the unit price falls from {first:.3g} to {low['price_ms']:.3g} ms per token "
            f"at {low['tokens']:.0f} tokens, a fixed cost shared by more tokens, "
            f"and rises to {last:.3g} from there ({rise:+.1f} %)"
        )
    change = last / first - 1
    if abs(change) < 0.02:
        return f"the unit price stays at {first:.3g} ms per token"
    word = "rises" if change > 0 else "falls"
    shared = change < 0 and (result["intercept_ms"] or 0) > 0
    why = ", a fixed cost shared by more tokens" if shared else ""
    return f"the unit price {word} from {first:.3g} to {last:.3g} ms per token ({100 * change:+.1f} %{why})"


def _why_not(result: dict[str, Any]) -> str:
    if result["reason"] == Flag.TOO_FEW_ROUNDS.value:
        text = f"No verdict on how TTFT grows: {MIN_ROUNDS} answered rounds on {MIN_TIERS} tiers are needed"
    else:
        have = {0: "no tier", 1: "one tier"}.get(result["tiers"], f"{result['tiers']} tiers")
        left_out = f" and {len(result['dropped'])} left out" if result["dropped"] else ""
        text = f"No verdict on how TTFT grows: {have} usable at concurrency 1{left_out}, {MIN_TIERS} are needed"
    if result["exponent"] is not None:
        text += f" (exponent so far {result['exponent']:.2f})"
    return text + "."

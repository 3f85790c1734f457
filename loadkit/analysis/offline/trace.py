"""Every number of a summary back to its formula and its inputs.

A nearest-rank percentile is a value that was measured, so it can be traced to one request; its own formula and inputs
stand beside it. Means, rates of a window and fits are traced to what went into them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from loadkit.analysis.reading import number, numbers, whole
from loadkit.analysis.strata import outcome_of
from loadkit.measure.quantile import LEVELS
from loadkit.plan.ladder import Cell
from loadkit.record.names import Outcome, Phase

_STATED = "as the file states it"
# number of a request -> its formula and the fields in it
FORMULAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ttft_ms": ("first token event - t0", ("ttft_ms",)),
    "ttft_content_ms": ("first answer text - t0", ("ttft_content_ms",)),
    "tpot_ms": (
        "(last_token_ms - ttft_ms) / (output_tokens - tokens of the first event)",
        ("last_token_ms", "ttft_ms", "output_tokens", "first_event_tokens"),
    ),
    "e2e_ms": ("last token event - t0", ("last_token_ms",)),
    "prefill_tokens_per_s": ("1000 * prompt_tokens / ttft_ms", ("prompt_tokens", "ttft_ms")),
    "decode_tokens_per_s": ("1000 / tpot_ms", ("tpot_ms",)),
    "unit_price_ms": (
        "ttft_ms / (prompt_tokens - bos_tokens - cached_tokens)",
        ("ttft_ms", "prompt_tokens", "bos_tokens", "cached_tokens"),
    ),
    "prefill_ms_per_1k": ("1000 * ttft_ms / prompt_tokens", ("ttft_ms", "prompt_tokens")),
    "prefill_share": ("ttft_ms / e2e_ms", ("ttft_ms", "e2e_ms")),
}
_MEDIANS = ("prefill_tokens_per_s", "decode_tokens_per_s", "unit_price_ms", "prefill_ms_per_1k", "prefill_share")
_RATES = {
    "requests_per_s": ("ok / window_s", ("ok", "window_s")),
    "output_tokens_per_s": ("sum of output_tokens / window_s", ("window_s",)),
    "total_tokens_per_s": ("sum of prompt_tokens and output_tokens / window_s", ("window_s",)),
}
_ROUNDING = 1e-9


def trace(records: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{cell, number, statistic, value, formula, inputs, request}: one for each number of the cells, then the fit.

    `request` is the request whose value it is, None where the number is of all of them. One pass over the records.
    """
    wanted = {cell["cell"]: _wanted(cell) for cell in summary["cells"]}
    found: dict[tuple[str, str, str], tuple[Mapping[str, Any], dict[str, Any]]] = {}
    for record in records:
        if record.get("phase") != Phase.MEASURE or outcome_of(record) != Outcome.OK:
            continue
        tier, streams = (int(number(record, name) or 0) for name in ("tier_tokens", "concurrency"))
        cell = Cell(tier, streams, rate=number(record, "rate"), stage=whole(record, "stage")).id
        for name, statistic, value in wanted.get(cell, ()):
            key = (cell, name, statistic)
            if key not in found and _is(_value(record, name), value):
                found[key] = (record, _inputs(record, name))
    rows = [row for cell in summary["cells"] for row in _cell(cell, wanted[cell["cell"]], found)]
    return [*rows, *_fit(summary["growth"])]


def sentence(row: Mapping[str, Any]) -> str:
    """One traced number as a line."""
    inputs = ", ".join(f"{name} {_shown(value)}" for name, value in row["inputs"].items())
    whose = f" [{row['request']}]" if row["request"] else ""
    statistic = f" {row['statistic']}" if row["statistic"] else ""
    return f"{row['cell']} {row['number']}{statistic} = {_shown(row['value'])}: {row['formula']}; {inputs}{whose}"


def _wanted(cell: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """(number, statistic, value) of everything in the cell that is the value of one request."""
    spreads = ("ttft_ms", "ttft_content_ms", "tpot_ms", "e2e_ms")
    found = [(name, stat, cell[name][stat]) for name in spreads if cell[name] for stat in (*LEVELS, "min", "max")]
    return found + [(name, "p50", cell[name]) for name in _MEDIANS if cell[name] is not None]


def _cell(
    cell: Mapping[str, Any],
    wanted: Iterable[tuple[str, str, float]],
    found: Mapping[tuple[str, str, str], tuple[Mapping[str, Any], dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    for name, statistic, value in wanted:
        record, inputs = found.get((cell["cell"], name, statistic), ({}, {}))
        formula = FORMULAS[name][0]
        if record and number(record, "last_token_ms") is None and name in ("ttft_ms", "tpot_ms", "e2e_ms"):
            formula, inputs = _STATED, {}
        n = (cell[name] or {}).get("n") if isinstance(cell[name], Mapping) else cell["ok"]
        rank = {"n": n} if statistic in ("min", "max") else {"n": n, "rank": f"ceil({LEVELS[statistic]:g} n)"}
        whose = None if record.get("request_id") is None else str(record["request_id"])
        yield _row(cell["cell"], name, statistic, value, formula, {**inputs, **rank}, whose)
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "itl_ms"):
        if spread := cell[name]:
            yield _row(cell["cell"], name, "mean", spread["mean"], "sum / n", {"n": spread["n"]})
    if spread := cell["itl_ms"]:
        formula = "nearest rank of all gaps between token events, each spread over its tokens"
        yield _row(cell["cell"], "itl_ms", "p50", spread["p50"], formula, {"n": spread["n"], "rank": "ceil(0.5 n)"})
    for name, (formula, inputs_of) in _RATES.items():
        if cell[name] is not None:
            yield _row(cell["cell"], name, "", cell[name], formula, {key: cell[key] for key in inputs_of})


def _fit(growth: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    points = {"tiers": growth["tiers"], "tokens": f"{growth['tokens_first']} to {growth['tokens_last']}"}
    formulas = {
        "exponent": "slope of log(TTFT p50) on log(prompt tokens), least squares over tiers at concurrency 1",
        "price_exponent": "slope of log(unit price) on log(prompt tokens), least squares over tiers at concurrency 1",
        "slope_ms_per_token": "slope of TTFT p50 on prompt tokens, least squares",
        "r2_linear": "1 - squared residuals / squared deviations of TTFT = a + b n",
    }
    for name, formula in formulas.items():
        if growth[name] is not None:
            yield _row("growth", name, "", growth[name], formula, points)


def _row(
    cell: str, name: str, statistic: str, value: Any, formula: str, inputs: dict[str, Any], request: str | None = None
) -> dict[str, Any]:
    return {
        "cell": cell,
        "number": name,
        "statistic": statistic,
        "value": value,
        "formula": formula,
        "inputs": inputs,
        "request": request,
    }


def _value(record: Mapping[str, Any], name: str) -> float | None:
    """The number of one request; those that no record stores are worked out."""
    ttft, e2e, prompt = (number(record, field) for field in ("ttft_ms", "e2e_ms", "prompt_tokens"))
    if name == "prefill_share":
        return None if ttft is None or not e2e else ttft / e2e
    if name == "prefill_ms_per_1k":
        return None if ttft is None or not prompt else 1000 * ttft / prompt
    return number(record, name)


def _inputs(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    tokens = numbers(record, "event_tokens")
    extended = {**record, "first_event_tokens": int(tokens[0]) if tokens else 1}
    return {field: extended[field] for field in FORMULAS[name][1] if extended.get(field) is not None}


def _is(value: float | None, wanted: float) -> bool:
    return value is not None and abs(value - wanted) <= _ROUNDING * abs(wanted)


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""The cells of a summary as measured loads: which hold every objective, which do not, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadkit.analysis.rate_search import judge as judge_rate
from loadkit.capacity.goodput import MIN_SUCCESS, Point
from loadkit.measure.slo import Slo
from loadkit.record.names import Outcome

STREAMS, RATE = "streams", "requests/s offered"
LIMITED = (Outcome.RATE_LIMITED.value, Outcome.QUOTA_EXHAUSTED.value, Outcome.OVERLOADED.value)
Cell = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured load of a tier: `why` it does not hold, in words, with numbers. Times in seconds, means."""

    cell: Cell
    kind: str  # STREAMS or RATE
    point: Point
    why: tuple[str, ...]
    ttft_s: float
    gap_s: float  # between two tokens, TPOT
    residence_s: float  # of an answered request

    @property
    def streams(self) -> float:
        """Requests in the system: as planned in a closed loop, the most that were seen in an open one."""
        if self.kind == STREAMS:
            return self.point.load
        return float(self.cell.get("peak_in_flight") or self.point.requests_per_s * self.residence_s)


@dataclass(frozen=True, slots=True)
class Curve:
    """One tier: its usable loads, ascending, and the cells left out with the reason. Tokens are medians."""

    tier_tokens: int
    prompt_tokens: float
    output_tokens: float
    rows: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]


def curves(cells: Iterable[Cell], objectives: Sequence[Slo]) -> list[Curve]:
    """One curve for each tier, ascending; invalid cells and those without an answer are left out and named."""
    by_tier: dict[int, list[Cell]] = {}
    for cell in cells:
        by_tier.setdefault(cell["tier_tokens"], []).append(cell)
    return [_curve(tier, by_tier[tier], objectives) for tier in sorted(by_tier)]


def _curve(tier: int, cells: Sequence[Cell], objectives: Sequence[Slo]) -> Curve:
    reasons = {cell["cell"]: reason for cell in cells if (reason := _unusable(cell))}
    usable = [cell for cell in cells if cell["cell"] not in reasons]
    rows = [_row(cell, objectives) for cell in usable]
    rows.sort(key=lambda row: (row.kind, row.point.load))
    answered = [cell for cell in usable if cell["ok"] != 0]
    return Curve(
        tier,
        _median([(cell["prompt_tokens"] or {}).get("median") for cell in answered]) or float(tier),
        _median([(cell["output_tokens"] or {}).get("median") for cell in answered]) or 1.0,
        tuple(rows),
        tuple(reasons.items()),
    )


def _median(values: Iterable[float | None]) -> float | None:
    found = sorted(value for value in values if value)
    return float(found[(len(found) - 1) // 2]) if found else None


def _unusable(cell: Cell) -> str:
    """Why a cell cannot be used, or nothing. One in which every request was refused is usable: it does not hold."""
    if cell["validity"]["status"] == "invalid":
        return "invalid: " + "; ".join(map(str, cell["validity"]["reasons"]))
    if cell["requests_per_s"] is None:
        return "no request was completed in a measured window"
    return ""


def _row(cell: Cell, objectives: Sequence[Slo]) -> Row:
    missed = [item.name for item in objectives if item.holds(cell) is False]
    why = [_missed(item, cell) for item in objectives if item.holds(cell) is False]
    unjudged = [item.name for item in objectives if item.holds(cell) is None] if cell["ok"] != 0 else []
    why += [_unjudged(name, cell) for name in unjudged]
    success = success_of(cell)
    if success < MIN_SUCCESS:
        why.append(f"{success:.1%} of the requests succeeded ({_failures(cell)}); {MIN_SUCCESS:.0%} are needed")
    kind, load, rate = STREAMS, float(cell["concurrency"]), cell["requests_per_s"]
    if cell["rate"] is not None:
        kind, load = RATE, float(cell["rate"])
        rate = cell["arrivals"]["achieved_per_s"] or rate
        more = [text for text in judge_rate(cell, ()).why if cell["ok"]]
        missed += ["schedule"] if more else []
        why += more
    ttft, gap, residence = times_of(cell)
    point = Point(load, rate, success, tuple(missed), tuple(unjudged))
    return Row(cell, kind, point, tuple(why), ttft, gap, residence)


def success_of(cell: Cell) -> float:
    """Answered requests over those that were not stopped by us; 1 where a table does not count them."""
    if not cell["n"]:
        return 1.0
    judged = cell["n"] - cell["outcomes"].get(Outcome.ABORTED.value, 0)
    return cell["ok"] / judged if judged > 0 else 0.0


def times_of(cell: Cell) -> tuple[float, float, float]:
    """Mean TTFT, gap between tokens, and time in the system of an answered request, in seconds."""
    ttft, tpot, e2e = (((cell[name] or {}).get("mean") or 0.0) / 1000 for name in ("ttft_ms", "tpot_ms", "e2e_ms"))
    return ttft, tpot, e2e or ttft


def limited(cell: Cell) -> int:
    """Measured requests that were first answered with a limit: 429, an exhausted quota, 503."""
    first = cell.get("first_attempt_outcomes") or cell["outcomes"]
    return sum(first.get(name, 0) for name in LIMITED)


def _failures(cell: Cell) -> str:
    failed = {name: n for name, n in cell["outcomes"].items() if name not in (Outcome.OK, Outcome.ABORTED)}
    return ", ".join(f"{name} {n}" for name, n in failed.items()) or "all were stopped"


def _missed(item: Slo, cell: Cell) -> str:
    value = item.value(cell)
    assert value is not None
    if item.quantile is None:
        return f"{item.name} {value:.1%} is above {item.limit:.1%}"
    return f"{item.name} {_ms(value)} is above {_ms(item.limit)}"


def _ms(value: float) -> str:
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.4g} ms"


def _unjudged(name: str, cell: Cell) -> str:
    metric = name.partition(".")[0]
    flags = cell.get("itl_withheld") if metric == "itl" else None
    because = f"withheld: {', '.join(flags)}; an objective for tpot can be judged" if flags else "not measured"
    return f"{name} is {because}"

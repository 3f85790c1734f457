"""The highest rate of an open loop that a server sustains, and which rate to try next. Pure.

A rate is sustained when the objectives of the run hold, at most 1 % of the arrivals found no free stream, and at least
97 % of the offered load was achieved (`measure.load`). A search doubles a rate that is sustained and halves one that is
not until it has one of each, then tries their geometric mean until the two lie within 5 %. Rates are those that did
arrive, which for Poisson arrivals scatter about the planned ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from loadkit.measure import slo
from loadkit.measure.quantile import summary
from loadkit.plan.further import Change, Seen
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.rates import HIGHEST_RATE, LEAST_ARRIVALS, MOST_ARRIVALS
from loadkit.plan.tiers import tier_name

DROPPED = 0.01
ACHIEVED = 0.97
NEAR = 1.05  # ratio of the ends of an interval that is narrow enough
POINT = 1.25  # ratio up to which one number may stand for the interval
MOST_RATES = 24  # of one tier


@dataclass(frozen=True, slots=True)
class Point:
    """One measured rate (requests/s) and whether it is sustained; `why` not, in words."""

    rate: float
    sustained: bool
    why: tuple[str, ...] = ()


def judge(cell: Mapping[str, Any], objectives: Sequence[slo.Slo]) -> Point:
    """The verdict on an open-loop cell, which has n, ok, rate, arrivals and the distributions of summary.json."""
    load = cell["arrivals"]
    why = [_broken(item, cell) for item in objectives if item.holds(cell) is False]
    if not cell["ok"]:
        why.append("nothing was answered")
    if load["offered"] and load["dropped"] > DROPPED * load["offered"]:
        why.append(f"{load['dropped']} of {load['offered']} arrivals found no free stream")
    if load["achieved_share"] is not None and load["achieved_share"] < ACHIEVED:
        why.append(f"{load['achieved_share']:.1%} of the offered load was achieved")
    return Point(load["offered_per_s"] or cell["rate"], not why, tuple(why))


def _broken(item: slo.Slo, cell: Mapping[str, Any]) -> str:
    value = item.value(cell)
    assert value is not None
    if item.quantile is None:
        return f"{item.name} {value:.1%} is above {item.limit:.1%}"
    return f"{item.name} {value:,.0f} ms is above {item.limit:,.0f} ms"


def bracket(points: Iterable[Point]) -> tuple[Point | None, Point | None]:
    """(highest rate below which all are sustained, lowest that is not); None where there is none of that kind."""
    failed = min((p for p in points if not p.sustained), key=lambda p: p.rate, default=None)
    below = [p for p in points if p.sustained and (failed is None or p.rate < failed.rate)]
    return max(below, key=lambda p: p.rate, default=None), failed


def next_rate(points: Sequence[Point]) -> tuple[float, str] | None:
    """The rate to try next and why; None when the interval is narrow enough, or nothing was measured."""
    low, high = bracket(points)
    if low is None and high is None:
        return None
    if low is None:
        assert high is not None
        return _rounded(high.rate / 2), f"halves {high.rate:.3g}/s, which is not sustained"
    if high is None:
        return _rounded(low.rate * 2), f"doubles {low.rate:.3g}/s, which is sustained"
    if high.rate <= NEAR * low.rate:
        return None
    return _rounded(sqrt(low.rate * high.rate)), f"{low.rate:.3g}/s is sustained and {high.rate:.3g}/s is not"


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


def further_rates(seen: Mapping[str, Seen], plan: Plan, left: Sequence[Visit]) -> tuple[Change, ...]:
    """The next cell of a search, once the planned ones are through; none where nothing is searched or it has ended."""
    if not plan.rate_search or left:
        return ()
    objectives = slo.parse(plan.slo) if plan.slo else []
    for tier in dict.fromkeys(cell.tier_tokens for cell in plan.cells):
        mine = [found for found in seen.values() if found.cell.tier_tokens == tier and found.outcomes]
        points = [judge(_as_cell(found), objectives) for found in mine if found.unusable is None]
        too_fast = [found.cell.rate or 0.0 for found in mine if found.unusable is not None]
        step = next_rate(points)
        if step is None or stopped_by(step[0], points, too_fast, len(mine), plan.duration_s or 0.0):
            continue
        place, why = mine[0].cell, step[1]
        for rate in _near(step[0], points):
            cell = Cell(tier, place.concurrency, place.target_tokens, rate)
            if cell.id not in seen:
                return (Change(cell, f"rate search: {why}"),)
    return ()


def stopped_by(
    rate: float, points: Iterable[Point], too_fast: Iterable[float], measured: int, seconds: float
) -> str | None:
    """Why a search does not go on to `rate`, or None. too_fast: rates at which the client itself did not keep up."""
    low, _ = bracket(points)
    blocked = [each for each in too_fast if each <= rate * NEAR and (low is None or each > low.rate)]
    if blocked:
        at = f"at {min(blocked):.3g}/s the load generator is not to be believed"
        return f"{at}: use more workers, or a faster machine"
    if measured >= MOST_RATES:
        return f"{MOST_RATES} rates were measured"
    if rate * seconds < LEAST_ARRIVALS:
        return f"{rate:.3g}/s for {seconds:g} s is fewer than {LEAST_ARRIVALS} requests: give it a longer --duration"
    if rate > HIGHEST_RATE or rate * seconds > MOST_ARRIVALS:
        return f"{rate:.3g}/s for {seconds:g} s is more than {MOST_ARRIVALS:,} requests"
    return None


def _near(rate: float, points: Iterable[Point]) -> Iterable[float]:
    """The rate, and others between the ends of the interval: what arrives scatters about what is planned, so that a
    rate may have been planned before and the interval be wide all the same."""
    low, high = bracket(points)
    yield rate
    for factor in (1.01, 0.99, 1.02, 0.98):
        other = _rounded(rate * factor)
        if (low is None or low.rate < other) and (high is None or other < high.rate):
            yield other


def _as_cell(found: Seen) -> dict[str, Any]:
    """What `judge` wants of a cell that is not in a summary yet."""
    times = {name: summary(getattr(found, name)) for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")}
    counts = {"n": found.outcomes.total(), "ok": found.outcomes["ok"], "rate": found.cell.rate}
    return {**counts, **times, "arrivals": found.load.summary(found.counts)}


def rate_search(cells: Iterable[Mapping[str, Any]], manifest: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """What the open-loop cells of a summary say of each tier; None without such cells.

    {tier_tokens, highest, interval, rates: [{cell, rate, sustained, reasons}], sentence}: `interval` is the highest
    rate that was sustained and the lowest that was not, `highest` their geometric mean where they lie within 25 %.
    Invalid cells are left out: `sustained` is None.
    """
    mine = [cell for cell in cells if cell["rate"] is not None]
    if not mine:
        return None
    objectives = _objectives(manifest)
    return [
        _tier(tier, [cell for cell in mine if cell["tier_tokens"] == tier], objectives, manifest)
        for tier in dict.fromkeys(cell["tier_tokens"] for cell in mine)
    ]


def _objectives(manifest: Mapping[str, Any]) -> list[slo.Slo]:
    plan = manifest.get("plan")
    text = plan.get("slo") if isinstance(plan, Mapping) else None
    try:
        return slo.parse(text) if text else []
    except (ValueError, TypeError, AttributeError):  # a damaged manifest, which the report says
        return []


def _tier(
    tier: int, cells: Sequence[Mapping[str, Any]], objectives: Sequence[slo.Slo], manifest: Mapping[str, Any]
) -> dict[str, Any]:
    judged = [(cell, judge(cell, objectives), cell["validity"]["status"] != "invalid") for cell in cells]
    low, high = bracket([point for _, point, usable in judged if usable])
    narrow = low is not None and high is not None and high.rate <= POINT * low.rate
    return {
        "tier_tokens": tier,
        "highest": sqrt(low.rate * high.rate) if low and high and narrow else None,
        "interval": [low and low.rate, high and high.rate],
        "rates": [
            {
                "cell": cell["cell"],
                "rate": point.rate,
                "sustained": point.sustained if usable else None,
                "reasons": list(point.why),
            }
            for cell, point, usable in judged
        ],
        "sentence": f"At {tier_name(tier)} tokens {_said(low, high, narrow)}{_left_out(judged)}."
        f"{_wide(judged, manifest)}",
    }


def _wide(judged: Sequence[tuple[Mapping[str, Any], Point, bool]], manifest: Mapping[str, Any]) -> str:
    """Why a search ended with an interval wider than it looks for; nothing where it did not, or none was made."""
    plan = manifest.get("plan")
    if not isinstance(plan, Mapping) or not plan.get("rate_search"):
        return ""
    points = [point for _, point, usable in judged if usable]
    step = next_rate(points)
    if step is None:
        return ""
    seconds = plan.get("duration_s")
    too_fast = [float(cell["rate"]) for cell, _, usable in judged if not usable]
    why = stopped_by(step[0], points, too_fast, len(judged), seconds if isinstance(seconds, (int, float)) else 0.0)
    if manifest.get("limit") or manifest.get("stopped_by") or manifest.get("fault"):
        why = "the run ended before the search did"
    return f" It is not known to 5 %: {why or 'rates in between were measured already'}."


def _left_out(judged: Sequence[tuple[Mapping[str, Any], Point, bool]]) -> str:
    count = sum(not usable for *_, usable in judged)
    return f"; {count} of {len(judged)} rates are invalid and left out" if count else ""


def _said(low: Point | None, high: Point | None, narrow: bool) -> str:
    if low is None and high is None:
        return "no rate was measured that may be used"
    if high is None:
        assert low is not None
        return f"{low.rate:.3g} requests/s are sustained, and no higher rate was measured"
    because = f"at {high.rate:.3g}: {'; '.join(high.why)}"
    if low is None:
        return f"not even {high.rate:.3g} requests/s are sustained ({because})"
    if not narrow:
        return f"the highest sustainable rate lies between {low.rate:.3g} and {high.rate:.3g} requests/s ({because})"
    between = f"between {low.rate:.3g} and {high.rate:.3g}"
    return f"the highest sustainable rate is {sqrt(low.rate * high.rate):.3g} requests/s ({between}; {because})"

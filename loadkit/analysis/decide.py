"""Which further cells would help, and which planned ones would not: asked after each visit, when nothing is in flight.

Three rules. A tier's concurrency ladder ends one step after its knee (of throughput, and of TTFT if it has one). After
a stage that was ended because of 429, half its concurrency is a cell, and higher ones are left out. And with
`--refine N`, when the ladder of lengths at concurrency 1 is through and has a knee, up to N tiers are added one by one,
each where the interval of the knee is cut most.

An open loop has a rule of its own: `loadkit.analysis.rate_search`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log2, sqrt

from loadkit.analysis.knee import Knee, locate
from loadkit.analysis.rate_search import further_rates
from loadkit.plan.further import Change, Decision, Seen
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.tiers import tier_name

SURE = 0.8
"""Probability of a knee over concurrency from which the cells beyond it are left out: above the even odds of a report,
because what was not measured cannot be looked at afterwards."""
ENOUGH = 0.5
"""Interval of the length knee, as a share of the step between the planned tiers around it, below which refining stops.
"""
ROUNDING = 1.01  # the middle of a gap is a whole number of tokens, so half of it may come out a hair below a half


def decide(seen: Mapping[str, Seen], plan: Plan, left: Sequence[Visit]) -> Decision:
    """What to change, from what was `seen` of each cell (`loadkit.plan.further.Tally`) and the visits that are `left`.

    Pure: the same question has the same answer, and once the answer is carried out the next one is empty.
    """
    if plan.staged:
        return Decision()
    if plan.open_loop:
        return Decision(further_rates(seen, plan, left))
    backed, above = _backed_down(seen, plan, left)
    beyond = [] if plan.full_grid else _beyond_knees(seen, left)
    drop = {change.cell.id: change for change in (*beyond, *([] if plan.full_grid else above))}
    return Decision((*backed, *_refinement(seen, plan, left)), tuple(drop.values()))


# -- 429 --------------------------------------------------------------------------------------------------------------


def _backed_down(seen: Mapping[str, Seen], plan: Plan, left: Sequence[Visit]) -> tuple[list[Change], list[Change]]:
    """Half the concurrency of every ended stage, unless it is planned or was measured; and what lies above one."""
    known = {visit.cell.id for visit in left} | set(seen) | {cell.id for cell in plan.cells}
    add, above = [], []
    for found in [each for each in seen.values() if each.ended]:
        cell = found.cell
        half = Cell(cell.tier_tokens, cell.concurrency // 2, cell.target_tokens)
        if half.concurrency and half.id not in known:
            add.append(Change(half, f"429: half the concurrency of {cell.id}, which was rate limited"))
        why = f"429: {cell.id} was rate limited already (--full-grid to go on)"
        above += [Change(other, why) for other in _higher(left, cell.tier_tokens, cell.concurrency)]
    return add, above


def _higher(left: Sequence[Visit], tier: int, concurrency: int) -> list[Cell]:
    """The cells of a tier that are still to come above a concurrency."""
    cells = dict.fromkeys(visit.cell for visit in left)
    return [cell for cell in cells if cell.tier_tokens == tier and cell.concurrency > concurrency]


# -- concurrency ------------------------------------------------------------------------------------------------------


def _beyond_knees(seen: Mapping[str, Seen], left: Sequence[Visit]) -> Iterable[Change]:
    """The cells more than one step above a tier's knee over concurrency."""
    for tier in dict.fromkeys(visit.cell.tier_tokens for visit in left if visit.cell.concurrency > 1):
        levels = [found for found in seen.values() if found.cell.tier_tokens == tier and len(found.ttft_ms)]
        if not levels:
            continue
        last = max(found.cell.concurrency for found in levels)
        knee = _concurrency_knee(levels, last)
        if knee is not None:
            why = f"one step after the knee at concurrency {knee:.3g} is measured (--full-grid to go on)"
            yield from (Change(cell, why) for cell in _higher(left, tier, last))


def _concurrency_knee(levels: Sequence[Seen], last: int) -> float | None:
    """The knee of throughput, when the highest level measured is beyond it and beyond that of TTFT, if there is one.

    Where throughput still grows there is something to learn, whatever TTFT does. It is by Little's law: n streams that
    are always busy do n / E2E requests per second.
    """
    x = [found.cell.concurrency for found in levels]
    rates = [[found.cell.concurrency * 1000 / ms for ms in found.e2e_ms if ms > 0] for found in levels]
    rate = locate(x, rates, axis="concurrency", metric="throughput")
    ttft = locate(x, [found.ttft_ms for found in levels], axis="concurrency", metric="ttft")
    if rate.knee is None or rate.probability < SURE:
        return None
    return rate.knee if max(rate.knee, ttft.knee or 0.0) < last else None


# -- length -----------------------------------------------------------------------------------------------------------


def _refinement(seen: Mapping[str, Seen], plan: Plan, left: Sequence[Visit]) -> list[Change]:
    """The next tier to add at concurrency 1, or none."""
    if not plan.refine or any(visit.cell.concurrency == 1 for visit in left):
        return []
    planned = {cell.tier_tokens: cell.target_tokens for cell in plan.cells}
    single = sorted((each for each in seen.values() if each.cell.concurrency == 1), key=lambda e: e.cell.target_tokens)
    if sum(each.cell.tier_tokens not in planned for each in single) >= plan.refine:
        return []
    points = {each.cell.target_tokens: each.ttft_ms for each in single if len(each.ttft_ms)}
    knee = locate(list(points), list(points.values()))
    tiers = sorted(points)
    interval = _inside(knee, tiers)
    if interval is None:
        return []
    ladder = [tokens for tokens in tiers if tokens in set(planned.values())]
    wide = log2(interval[1] / interval[0])
    if wide * ROUNDING < ENOUGH * _step(ladder, sqrt(interval[0] * interval[1])):
        return []
    low, high = _gap(tiers, interval)
    middle = round(sqrt(low * high))
    if middle in (low, high):
        return []
    why = (
        f"refine: halves the gap {tier_name(low)} to {tier_name(high)}; a {knee.kind} lies between "
        f"{interval[0]:,.0f} and {interval[1]:,.0f} tokens"
    )
    return [Change(Cell(middle, 1), why)]


def _inside(knee: Knee, tiers: Sequence[int]) -> tuple[float, float] | None:
    """The interval of a knee as far as it lies within the tiers; None without a knee, or with one below all tiers."""
    if knee.knee is None or knee.ci is None or not tiers[0] <= knee.knee <= tiers[-1]:
        return None
    return max(knee.ci[0], tiers[0]), min(knee.ci[1], tiers[-1])


def _step(ladder: Sequence[int], place: float) -> float:
    """log2 of the ratio of the planned tiers around a place; at the end of the ladder, of the last two."""
    at = min(max(sum(tokens <= place for tokens in ladder), 1), len(ladder) - 1)
    return log2(ladder[at] / ladder[at - 1])


def _gap(tiers: Sequence[int], interval: tuple[float, float]) -> tuple[int, int]:
    """The two neighbouring tiers that have most of the interval between them.

    For a break that is its gap. For a bend it is where the interval can lose most: cutting there was as good as or
    better than a tier at the posterior median on simulated ladders of every kind.
    """
    return max(pairwise(tiers), key=lambda gap: log2(min(gap[1], interval[1]) / max(gap[0], interval[0])))

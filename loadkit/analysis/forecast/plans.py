"""Time of a plan, cell by cell, before anything is sent."""

from dataclasses import dataclass

from loadkit.analysis.forecast.span import NOTHING, Span
from loadkit.analysis.forecast.speeds import Speed
from loadkit.plan.ladder import Cell, Plan, Visit


@dataclass(frozen=True, slots=True)
class Forecast:
    """Seconds of every cell (warm-up included) and of the whole plan, and what the plan takes of tokens."""

    cells: tuple[tuple[Cell, Span], ...]
    seconds: Span
    prompt_tokens: int
    output_tokens: int


def forecast(plan: Plan, speed: Speed) -> Forecast:
    """The time of the plan at that speed. Preparing prompts and the check before a run are not in it."""
    by_cell = dict.fromkeys(plan.cells, NOTHING)
    for visit in plan.visits():
        by_cell[visit.cell] = by_cell[visit.cell].plus(_visit(plan, visit, speed))
    total = NOTHING
    for span in by_cell.values():
        total = total.plus(span)
    tokens = plan.tokens()
    return Forecast(tuple(by_cell.items()), Span(total.low, total.middle, total.high), tokens.input, tokens.output)


def _visit(plan: Plan, visit: Visit, speed: Speed) -> Span:
    """Seconds of one visit: its warm-up, then its rounds, or the time it is measured for."""
    cell, streams = visit.cell, visit.cell.concurrency
    warm = -(-plan.warmup_of(visit) // streams)
    found = _round(plan, plan.warmup_tokens(cell), cell, speed).times(warm) if warm else NOTHING
    if (seconds := plan.seconds_of(cell)) is not None:
        return found.plus(Span(seconds, seconds, seconds))
    rounds = len(plan.rounds_of(visit))
    think = sum(plan.think_s) / 2
    each = _round(plan, cell.target_tokens, cell, speed)
    return found.plus(Span(each.low + think, each.middle + think, each.high + think, each.how).times(rounds))


def _round(plan: Plan, tokens: int, cell: Cell, speed: Speed) -> Span:
    """Seconds in which every stream is answered once: as measured at this place, else between a server that reads all
    prompts at the same time and one that reads them one by one (which is the value)."""
    streams = cell.concurrency if cell.rate is None else 1
    gaps = plan.max_tokens - 1
    known = speed.measured(cell.tier_tokens, streams) if tokens == cell.target_tokens else None
    if known:
        ttft, gap = known["ttft_ms"], known["tpot_ms"]
        low, high = ((ttft[end] + gaps * gap[end]) / 1000 for end in ("min", "max"))
        return Span(low, (ttft["mean"] + gaps * gap["mean"]) / 1000, high, "measured at this place")
    alone = speed.ttft(tokens)
    decode = speed.gap(tokens, streams).times(gaps)
    value = streams * alone.middle + decode.middle
    low, high = alone.low + decode.low, streams * alone.high + decode.high
    return Span(low / 1000, value / 1000, high / 1000, alone.how)

"""What stops a tier from more requests per second, and what one more measurement would buy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from loadkit.analysis.sizing.core import Core, Served
from loadkit.analysis.sizing.judged import RATE, STREAMS, Row, limited
from loadkit.analysis.sizing.memory import QUEUED, Places, running_at
from loadkit.analysis.sizing.question import Question
from loadkit.capacity.goodput import MIN_SUCCESS
from loadkit.capacity.replicas import Load, Replicas, replicas
from loadkit.plan.tiers import tier_name

NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E", "error_rate": "errors", "schedule": "queue"}
END = "end of the ladder"
LIMIT, MEMORY, ERRORS, UNJUDGED, FLAT = "rate limit", "memory", "errors", "not judged", "throughput"
GROWS = 0.05  # requests/s that grow by less for a quarter more load no longer grow
LIMIT_SHARE = 0.01  # of first attempts
NEAR = 1.05  # two rates this close bracket the answer well enough


@dataclass(frozen=True, slots=True)
class Binding:
    """`what` binds (of NAMES, END, LIMIT, MEMORY, ERRORS, UNJUDGED, FLAT, several joined by commas), at which load, and
    why in words."""

    what: str
    load: float | None
    why: str


def binding(served: Served, place: Places) -> Binding:
    """What the first load beyond the goodput runs into; where nothing holds, what the lowest load runs into."""
    row = served.row(served.found.above)
    if row is None:
        return _open_end(served)
    return Binding(", ".join(_causes(served, row, place)), row.point.load, "; ".join(row.why) or "it does not hold")


def _open_end(served: Served) -> Binding:
    """Every objective holds to the top of the ladder: either requests/s have stopped to grow, or it ended too soon."""
    best = served.found.best
    assert best is not None
    kind = [point for row, point in zip(served.rows, served.points, strict=True) if row.kind == _kind(served)]
    top = max(kind, key=lambda point: point.load)
    lower = [point for point in kind if top.load >= 1.25 * point.load]
    if lower and _kind(served) == STREAMS:
        before = max(lower, key=lambda point: point.requests_per_s)
        if top.requests_per_s < (1 + GROWS) * before.requests_per_s:
            return Binding(
                FLAT,
                None,
                f"requests/s no longer grow ({before.requests_per_s:.4g} at {before.load:g}, {top.requests_per_s:.4g} "
                f"at {top.load:g}), so more streams only wait longer",
            )
    return Binding(END, None, f"every objective holds up to the highest load measured ({top.load:g})")


def _kind(served: Served) -> str:
    return served.best.kind if served.best else STREAMS


def _causes(served: Served, row: Row, place: Places) -> list[str]:
    point = served.points[served.rows.index(row)]
    refused = limited(row.cell)
    if refused and refused > LIMIT_SHARE * (row.cell["n"] or refused):
        return [LIMIT]
    causes = list(dict.fromkeys(NAMES.get(name.partition(".")[0], name) for name in point.missed))
    if point.success < MIN_SUCCESS and ERRORS not in causes:
        causes.append(ERRORS)
    if not causes:
        return [UNJUDGED]
    if _waits(served, row) and place.memory_binds:
        causes.append(MEMORY)
    return causes


def _waits(served: Served, row: Row) -> bool:
    """Whether fewer sequences run at a load than are in flight."""
    calm = served.best
    if calm is None or row.kind != STREAMS or not row.gap_s:
        return False
    return running_at(row, calm, served.curve.output_tokens) < QUEUED * row.point.load


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measurement that could change the answer. `saves`: the most replicas it can make needless, None where
    nothing bounds it, 0 where it makes the answer surer and not smaller."""

    text: str
    saves: int | None


def next_measurements(core: Core, question: Question) -> list[Measurement]:
    """What to measure next, the most rewarding first. What bounds a saving is the most that the tier was ever seen to
    complete: no load between the last that holds and the first that does not can do better."""
    found = [item for entry in core.served for item in _of_entry(entry, core, question)]
    return sorted(found, key=lambda item: -(float("inf") if item.saves is None else item.saves))


def _of_entry(entry: Served, core: Core, question: Question) -> Iterable[Measurement]:
    tier, curve = tier_name(entry.share.tier_tokens), entry.curve
    if entry.curve.tier_tokens != entry.share.tier_tokens:
        yield Measurement(f"{tier} itself (--tiers {tier}): now {tier_name(curve.tier_tokens)} stands for it", None)
    if entry.longer != 1.0:
        text = f"{tier} with --max-tokens {entry.output_tokens:g}: now {curve.output_tokens:g} output tokens stand in"
        yield Measurement(text, None)
    best, above = entry.found.best, entry.found.above
    kind = entry.row(best or above)
    rate = kind is not None and kind.kind == RATE
    stand_in = entry.curve.tier_tokens != entry.share.tier_tokens or entry.longer != 1.0
    if best is None:
        yield from _below(entry, tier, rate)
    elif above is None:
        if not stand_in and _open_end(entry).what == END:
            text = f"{tier} at {_load(2 * best.load, rate)}: the ladder ended before any objective broke"
            yield Measurement(text, None)
    else:
        between = sqrt(best.load * above.load)
        middle = between if rate else float(round(between))
        if best.load < middle < above.load and above.load > (NEAR if rate else 1.0) * best.load:
            saves = _saving(entry, core.served, question, core.fleet)
            yield Measurement(f"{tier} at {_load(middle, rate)}: {_bought(entry, question, core.fleet, saves)}", saves)
    if best is not None and entry.found.doubtful:
        loads = ", ".join(f"{load:g}" for load in entry.found.doubtful)
        yield Measurement(f"{tier} again at {loads}: a lower load missed what a higher one held", 0)


def _below(entry: Served, tier: str, rate: bool) -> Iterable[Measurement]:
    """No load holds: a lower one might, unless a single stream does not."""
    lowest = min(point.load for point in entry.points)
    if rate or lowest > 1:
        load = lowest / 2 if rate else max(1.0, float(int(lowest // 2)))
        yield Measurement(f"{tier} at {_load(load, rate)}: no load that was measured holds the objectives", None)


def _load(load: float, rate: bool) -> str:
    return f"{load:.3g} requests/s (--rate {load:.3g})" if rate else f"{load:g} streams (--concurrency {load:g})"


def _bought(entry: Served, question: Question, fleet: Replicas | None, saves: int | None) -> str:
    text = f"goodput lies between {entry.rate or 0:.4g} and at most {entry.found.ceiling or 0:.4g} requests/s"
    if question.rate is None or fleet is None:
        return text
    return text + (
        f", so it could save at most {saves} of {fleet.recommended} replicas" if saves else _no_saving(fleet)
    )


def _no_saving(fleet: Replicas) -> str:
    return f", which leaves {fleet.recommended} replicas as they are"


def _saving(entry: Served, served: Sequence[Served], question: Question, fleet: Replicas | None) -> int:
    """Replicas less if the tier's goodput were its ceiling."""
    if question.rate is None or fleet is None:
        return 0
    rates = [(each.found.ceiling if each is entry else each.rate) or 0.0 for each in served]
    loads = [Load(question.rate * each.share.share, rate) for each, rate in zip(served, rates, strict=True)]
    return fleet.recommended - replicas(loads, question.headroom).recommended


def cap(served: Sequence[Served]) -> float | None:
    """Requests in flight that a replica full of the mix holds: each tier's own cap by the share of the replica's time
    that the tier takes, rounded down; None where a tier has no goodput."""
    if any(entry.rate is None for entry in served):
        return None
    works = [entry.share.share / (entry.rate or 1.0) for entry in served]
    streams = [entry.best.streams if entry.best else 0.0 for entry in served]
    mean = sum(work * stream for work, stream in zip(works, streams, strict=True)) / sum(works)
    return max(1.0, float(int(mean * (1 + 1e-9))))

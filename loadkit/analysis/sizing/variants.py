"""The same question with one thing changed: which input the answer hangs on, and `--what-if`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from loadkit.analysis.sizing.binding import cap
from loadkit.analysis.sizing.core import Core, Served, core, fleet, serve
from loadkit.analysis.sizing.judged import Cell, curves
from loadkit.analysis.sizing.memory import formula, with_cache
from loadkit.analysis.sizing.mix import Share
from loadkit.analysis.sizing.question import Question, parse_change
from loadkit.capacity.goodput import goodput
from loadkit.measure.slo import Slo
from loadkit.plan.tiers import tier_name

FACTORS = (0.5, 2.0)
LIMITS = (0.75, 1.25)
HEADROOMS = (1.0, 1.2, 1.5)


@dataclass(frozen=True, slots=True)
class Variant:
    """One line: what was changed, the replicas it takes (None: no load holds), the cost per hour, what to know."""

    change: str
    work: float | None
    replicas: int | None
    streams: float | None
    cost_hour: float | None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Builtin values only."""
        return {name: getattr(self, name) for name in ("change", "work", "replicas", "streams", "cost_hour", "note")}


def sensitivity(base: Core, cells: Sequence[Cell], question: Question) -> list[Variant]:
    """Rate, headroom and each objective looser and tighter; nothing without a rate."""
    if question.rate is None:
        return []
    found = [_variant("as asked", base, question)]
    for factor in FACTORS:
        changed = replace(question, rate=question.rate * factor)
        found.append(_variant(f"{changed.rate:g} requests/s", _refleet(base, changed), changed))
    for headroom in HEADROOMS:
        if headroom != question.headroom:
            changed = replace(question, headroom=headroom)
            found.append(_variant(f"headroom {headroom:g}", _refleet(base, changed), changed))
    for item in question.objectives():
        for factor in LIMITS:
            found.append(_looser(base, cells, question, item, factor))
    return found


def what_if(base: Core, cells: Sequence[Cell], question: Question) -> list[Variant]:
    """One line for each --what-if, after one of the answer as it stands."""
    if not question.what_if:
        return []
    changed = [_changed(base, cells, question, text) for text in question.what_if]
    return [_variant("as asked", base, question), *changed]


def _changed(base: Core, cells: Sequence[Cell], question: Question, text: str) -> Variant:
    name, value = parse_change(text, question)
    if name == "context":
        return _context(base, cells, question, int(value))
    return _cache(base, question, str(value))


def _context(base: Core, cells: Sequence[Cell], question: Question, tokens: int) -> Variant:
    """Longer prompts cut to so many tokens."""
    merged: dict[tuple[int, int | None], float] = {}
    for entry in base.served:
        key = (min(entry.share.tier_tokens, tokens), entry.share.output_tokens)
        merged[key] = merged.get(key, 0.0) + entry.share.share
    mix = tuple(Share(tier, share, output) for (tier, output), share in merged.items())
    cut = [entry.share.name for entry in base.served if entry.share.tier_tokens > tokens]
    changed = replace(question, mix=mix)
    note = f"{', '.join(cut)} cut to {tier_name(tokens)}" if cut else f"no entry is longer than {tier_name(tokens)}"
    found = core(cells, changed)
    notes = [note, *(text for entry in found.served for text in entry.notes)]
    return _variant(f"context {tier_name(tokens)}", found, changed, "; ".join(notes))


def _cache(base: Core, question: Question, kv: str) -> Variant:
    """Another cache type: how many sequences fit. Loads that no longer fit are left out of the measured ones; what more
    sequences would complete was not measured, so the replicas are then left as they are."""
    hardware = question.hardware
    assert hardware is not None
    notes, served = [], []
    for entry in base.served:
        now = formula(entry, hardware).max_sequences
        then = formula(entry, with_cache(hardware, kv)).max_sequences
        notes.append(f"{entry.share.name}: {then} sequences fit instead of {now} ({hardware.kv})")
        served.append(_fitting(entry, then))
    notes.append("its speed was not measured: run the ladder again with that cache before counting on it")
    found = Core(base.curves, tuple(served), fleet(served, question))
    return _variant(f"kv {kv}", found, question, "; ".join(notes))


def _fitting(entry: Served, sequences: int) -> Served:
    """The entry without the loads that need more sequences than fit."""
    kept = [
        point
        for row, point in zip(entry.rows, entry.points, strict=True)
        if row.streams <= sequences and row.kind == (entry.best or row).kind
    ]
    return replace(entry, found=goodput(kept))


def _looser(base: Core, cells: Sequence[Cell], question: Question, item: Slo, factor: float) -> Variant:
    """One objective scaled; the measured loads are judged again."""
    objectives = [replace(each, limit=each.limit * factor) if each == item else each for each in question.objectives()]
    usable = [curve for curve in curves(cells, objectives) if curve.rows]
    served = tuple(serve(entry.share, usable, objectives) for entry in base.served)
    limit = f"{item.limit * factor:.5g} ms" if item.quantile else f"{item.limit * factor:.3%}"
    found = Core(base.curves, served, fleet(served, question))
    return _variant(f"{item.name} {limit}", found, question)


def _refleet(base: Core, question: Question) -> Core:
    return replace(base, fleet=fleet(base.served, question))


def _variant(change: str, found: Core, question: Question, note: str = "") -> Variant:
    hour = question.replica_hour
    count = found.fleet.recommended if found.fleet else None
    missing = [entry.share.name for entry in found.served if entry.rate is None]
    if missing:
        note = "; ".join(filter(None, (note, f"no measured load holds the objectives for {', '.join(missing)}")))
    cost = count * hour if count is not None and hour is not None else None
    return Variant(change, found.fleet.work if found.fleet else None, count, cap(found.served), cost, note)

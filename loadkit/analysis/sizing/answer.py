"""Everything put together: what `loadkit capacity` prints, writes and explains, as one dict of builtin values."""

from collections.abc import Sequence
from typing import Any

from loadkit.analysis.sizing import costs, fleet, memory, queues
from loadkit.analysis.sizing.binding import LIMIT_SHARE, Binding, binding, cap, next_measurements
from loadkit.analysis.sizing.core import Core, Served, core
from loadkit.analysis.sizing.figures import Figure
from loadkit.analysis.sizing.judged import RATE, Cell, Curve, Row, limited
from loadkit.analysis.sizing.question import Question
from loadkit.analysis.sizing.samples import Samples
from loadkit.analysis.sizing.variants import sensitivity, what_if
from loadkit.capacity.goodput import MIN_SUCCESS
from loadkit.capacity.memory import both_units
from loadkit.plan.tiers import tier_name

SCHEMA = "loadkit-capacity/1"


def answer(
    cells: Sequence[Cell], question: Question, *, source: str, model: str | None = None, samples: Samples | None = None
) -> dict[str, Any]:
    """The answer by section: sentence, inputs, objectives, assumptions, points, tiers, figures, notes, next and more.

    cells: those of a summary or of `sizing.table`; samples: the requests behind them, None for a table. `figures` are
    all derived numbers (`sizing.figures.Figure`), `points` the measured loads. ConfigError where nothing can be said.
    """
    found = core(cells, question)
    sure = fleet.sure(found, question, samples)
    places = [memory.places(entry, question.hardware) for entry in found.served]
    binds = [binding(entry, place) for entry, place in zip(found.served, places, strict=True)]
    streams = cap(found.served)
    figures = [*_of_entries(found, question, sure, places), *fleet.of_fleet(found, question, sure, streams)]
    figures += [
        *queues.figures(found, question, streams),
        *costs.of_fleet(found, question, fleet.recommended_ends(figures)),
    ]
    figures += costs.of_target(found, question)
    return {
        "schema": SCHEMA,
        "source": source,
        "model": model,
        "sentence": sentence(found, question, binds),
        "inputs": _inputs(question, source, model),
        "objectives": [
            {"name": item.name, "metric": item.metric, "limit": item.limit} for item in question.objectives()
        ],
        "assumptions": _assumptions(found, question, samples),
        "points": [_point(curve, row, found, question) for curve in found.curves for row in curve.rows],
        "tiers": [_tier(entry, bind, question) for entry, bind in zip(found.served, binds, strict=True)],
        "figures": [figure.to_json() for figure in figures],
        "notes": _notes(found, question, places, streams),
        "next": [{"text": item.text, "saves": item.saves} for item in next_measurements(found, question)],
        "sensitivity": [item.to_json() for item in sensitivity(found, cells, question)],
        "what_if": [item.to_json() for item in what_if(found, cells, question)],
    }


def _of_entries(found: Core, question: Question, sure: fleet.Sure, places: Sequence[memory.Places]) -> list[Figure]:
    figures = []
    for entry, draws, place in zip(found.served, sure.entries, places, strict=True):
        figures += fleet.of_entry(entry, draws, sure.note)
        figures += memory.figures(entry, place, question.hardware)
        figures += costs.of_entry(entry, question, fleet.ends(draws))
    return figures


def sentence(found: Core, question: Question, binds: Sequence[Binding]) -> str:
    """The answer in one sentence."""
    none = [entry.share.name for entry in found.served if entry.rate is None]
    if none:
        return f"No measured point meets the objectives for {', '.join(none)}: no number of replicas can be told."
    what = ", ".join(
        f"{entry.share.name}: {entry.rate or 0:.4g} requests/s at {entry.best.point.load:g} "
        f"{'requests/s offered' if entry.best.kind == RATE else 'streams'} (bound by {bind.what})"
        for entry, bind in zip(found.served, binds, strict=True)
        if entry.best
    )
    if found.fleet is None or question.rate is None:
        return f"Goodput of a replica: {what}."
    few = found.fleet
    return (
        f"{question.rate:g} requests/s take {few.bare} replicas at full use, {few.with_headroom} with headroom "
        f"{few.headroom:g}, {few.n_plus_1} when one may be lost: run {few.recommended}. Goodput of a replica: {what}."
    )


def _inputs(question: Question, source: str, model: str | None) -> list[list[str]]:
    prices, hardware, unit = question.prices, question.hardware, question.prices.currency
    listed = None if prices.input is None else f"{prices.input:g} in, {prices.output or 0:g} out, {unit} per million"
    mix = ", ".join(f"{share.name} {share.share:.1%}" for share in question.mix)
    rows: list[tuple[str, Any]] = [
        ("measured in", source),
        ("model", model),
        ("objectives", question.slo),
        ("requests/s", None if question.rate is None else f"{question.rate:g}"),
        ("mix of prompt tokens/output tokens", mix or None),
        ("headroom", f"{question.headroom:g}"),
        ("GPUs of a replica", f"{question.gpus}"),
        ("price of a GPU", None if question.gpu_hour is None else f"{question.gpu_hour:g} {unit} per hour"),
        (
            "target cost",
            None if question.target_cost is None else f"{question.target_cost:g} {unit} per 1M output tokens",
        ),
        ("price list", listed),
    ]
    if hardware:
        weights = f"{hardware.bits or hardware.card.bits or 16:g} bits"
        memory_of = f"{hardware.memory.gpus} x {both_units(hardware.memory.bytes_each)}, {hardware.memory.use:.0%} used"
        rows += [
            ("model card", f"{hardware.card.name} ({hardware.card.source})"),
            ("weights", weights),
            ("cache", hardware.kv),
            ("memory", memory_of),
        ]
    return [[name, value] for name, value in rows if value]


def _assumptions(found: Core, question: Question, samples: Samples | None) -> list[str]:
    lines = [
        f"A load counts when every objective holds and at least {MIN_SUCCESS:.0%} of its requests succeed; goodput is "
        "a measured load, nothing is interpolated across the knee.",
        "Replicas are alike and behave as the one that was measured; requests are shared out evenly.",
    ]
    if samples is None:
        lines.append("A table has averages: one number stands for each percentile that an objective names.")
    if len(found.served) > 1:
        lines.append(
            "Tiers share replicas: their work adds up. They were measured apart; a long prefill beside short requests "
            "raises ITL of these, which only a run of the mix itself can show (locustfiles/mix.py)."
        )
    if question.hardware:
        lines.append("Overheads of the cache formula are llm-d-planner's calibration of vLLM 0.19 on H100.")
    for entry in found.served:
        lines += [f"{note}." for note in entry.notes]
    return lines


def _point(curve: Curve, row: Row, found: Core, question: Question) -> dict[str, Any]:
    cell, hour = row.cell, question.replica_hour
    values = {item.name: item.value(cell) for item in question.objectives()}
    output = cell["output_tokens_per_s"]
    return {
        "tier_tokens": curve.tier_tokens,
        "load": row.point.load,
        "kind": row.kind,
        "validity": cell["validity"]["status"],
        "n": cell["n"],
        "requests_per_s": row.point.requests_per_s,
        "output_tokens_per_s": output,
        "success": row.point.success,
        "values": values,
        "ttft_mean_ms": 1000 * row.ttft_s,
        "tpot_mean_ms": 1000 * row.gap_s,
        "in_flight": queues.little(curve, row),
        "holds": row.point.holds,
        "goodput": any(entry.best is row for entry in found.served),
        "why": list(row.why),
        "cost_output": costs.per_million(hour, output) if hour is not None and output else None,
    }


def _tier(entry: Served, bind: Binding, question: Question) -> dict[str, Any]:
    best = entry.best
    return {
        "name": entry.share.name,
        "tier_tokens": entry.share.tier_tokens,
        "served_by_tier": entry.curve.tier_tokens,
        "output_tokens": entry.output_tokens,
        "share": entry.share.share,
        "arrivals_per_s": None if question.rate is None else question.rate * entry.share.share,
        "goodput": entry.rate,
        "load": best.point.load if best else None,
        "kind": best.kind if best else None,
        "binds": bind.what,
        "binds_at": bind.load,
        "why": bind.why,
    }


def _notes(found: Core, question: Question, places: Sequence[memory.Places], streams: float | None) -> list[str]:
    lines = [*queues.onsets(found.curves), *queues.doubts(found.curves)]
    lines += memory.memory_sentences(found.served, places)
    lines += queues.sentences(found, question, streams)
    lines += costs.target_sentences(found, question)
    for curve in found.curves:
        lines += [f"{name} is left out: {reason}." for name, reason in curve.left_out]
        for row in curve.rows:
            if (refused := limited(row.cell)) > LIMIT_SHARE * (row.cell["n"] or 1):
                place = f"{tier_name(curve.tier_tokens)} x {row.point.load:g}"
                lines.append(f"{place}: {refused} of {row.cell['n']} requests were first answered with a limit.")
    for entry in found.served:
        if entry.found.doubtful:
            loads = ", ".join(f"{load:g}" for load in entry.found.doubtful)
            lines.append(f"{tier_name(entry.curve.tier_tokens)}: lower loads ({loads}) miss what a higher one holds.")
    return lines

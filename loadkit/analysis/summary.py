"""A run in numbers: summary.json, recomputed from the records and what else the run folder holds."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from loadkit.analysis.bends import bends
from loadkit.analysis.boards import Boards
from loadkit.analysis.ending import course, ending, objectives
from loadkit.analysis.growth import growth
from loadkit.analysis.health import Health
from loadkit.analysis.plausible import Implausible, implausible
from loadkit.analysis.price import price
from loadkit.analysis.rate_search import rate_search
from loadkit.analysis.reading import number
from loadkit.analysis.repeats import arrivals, repeated
from loadkit.analysis.rules import readings
from loadkit.analysis.strata import Stratum, strata
from loadkit.analysis.totals import Totals
from loadkit.analysis.tpot import tpot_across_tiers
from loadkit.capacity.card import ModelCard
from loadkit.capacity.predict import find, predict_ttft_ratio
from loadkit.measure.validity import worst
from loadkit.record.jsonl import Rows
from loadkit.record.names import Flag

SCHEMA = "loadkit-summary/1"


def summarise(
    records: Iterable[Mapping[str, Any]],
    manifest: Mapping[str, Any] | None = None,
    telemetry: Iterable[Mapping[str, Any]] = (),
    *,
    damaged_lines: int = 0,
) -> dict[str, Any]:
    """The content of summary.json: cells, growth, knee, totals. One pass over the records.

    Records may be `jsonl.Rows`: they are read from the file as they are counted, and its damaged lines with them.
    The numbers come from the records alone; manifest and telemetry add the run id, the exit code and what is known of
    the load generator's health. Times are ms, rates per second, absent values None; nothing is rounded here.
    """
    return examine(records, manifest, telemetry, damaged_lines=damaged_lines)[0]


def examine(
    records: Iterable[Mapping[str, Any]],
    manifest: Mapping[str, Any] | None = None,
    telemetry: Iterable[Mapping[str, Any]] = (),
    *,
    damaged_lines: int = 0,
) -> tuple[dict[str, Any], list[Stratum]]:
    """What `summarise` says of the run, and the cells with their samples, in the same order as its cells."""
    manifest = manifest or {}
    totals = Totals()
    run_ids: dict[str, None] = {}
    left_out = repeated(manifest)
    found = strata(row for row in _seen(records, totals, run_ids) if number(row, "visit") not in left_out)
    damaged_lines += records.damaged if isinstance(records, Rows) else 0
    board = Boards(manifest)
    health = Health(manifest, board.watch(telemetry))
    drift = _drift(found)
    scheduled = arrivals(manifest)
    for stratum in found:
        stratum.arrivals = scheduled.get(stratum.name)
    closed = [stratum for stratum in found if stratum.rate is None and stratum.stage is None]
    early = implausible(closed)
    cells = [_cell(stratum, health, board, drift, early) for stratum in found]
    ladder = [cell for cell in cells if cell["rate"] is None and cell["stage"] is None]
    knee = bends(closed, ladder, manifest)
    bent = (knee["length"] or {"kind": "none"})["kind"] != "none"
    card = _card(found, manifest)
    summary = {
        "schema": SCHEMA,
        "run_id": str(manifest.get("run_id") or next(iter(run_ids), "")) or None,
        "percentile_method": "nearest-rank",
        "cells": cells,
        "growth": growth(ladder, bends=bent),
        "price": price(ladder, partial(predict_ttft_ratio, card) if card and card.dims else None, bends=bent),
        "tpot_across_tiers": tpot_across_tiers(ladder),
        "knee": knee,
        "rate_search": rate_search([cell for cell in cells if cell["stage"] is None], manifest),
        "board": board.summary(found, cells, card),
        "readings": readings(cells, knee, manifest),
        "totals": totals.summary(),
        "errors": totals.errors(),
        "objectives": objectives(manifest, cells),
        "course": course(manifest, cells),
        "error_bars": _error_bars(manifest),
        "records_schema": _schema(records),
        "damaged_lines": damaged_lines,
        "exit_code": ending(manifest, cells, saturated=health.saturated, damaged_lines=damaged_lines),
    }
    return summary, found


def _seen(
    records: Iterable[Mapping[str, Any]], totals: Totals, run_ids: dict[str, None]
) -> Iterable[Mapping[str, Any]]:
    """The records as they pass, counted on the way."""
    for record in records:
        if record.get("kind", "request") != "request":
            continue
        totals.add(record)
        if isinstance(record.get("run_id"), str):
            run_ids[record["run_id"]] = None
        yield record


def _error_bars(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """How wrong the client itself was found to be at such a load, {streams, ttft_p99_ms, itl_p99_ms}, or None."""
    bars = manifest.get("error_bars")
    if not isinstance(bars, Mapping):
        return None
    found = {name: number(bars, name) for name in ("streams", "ttft_p99_ms", "itl_p99_ms")}
    return None if None in found.values() else found


def _drift(found: list[Stratum]) -> bool:
    """Whether the answers of the run name more than one model, or more than one fingerprint."""
    pairs = set().union(*(stratum.models for stratum in found)) if found else set()
    return any(len({pair[i] for pair in pairs} - {None}) > 1 for i in (0, 1))


def _schema(records: Iterable[Mapping[str, Any]]) -> str | None:
    """What the header of the records says they are; None where it does not say, or was not read."""
    schema = (records.header or {}).get("schema") if isinstance(records, Rows) else None
    return schema if isinstance(schema, str) else None


def _card(found: Iterable[Stratum], manifest: Mapping[str, Any]) -> ModelCard | None:
    """The card of the run's model; None where none is known."""
    told = {key: part for key in ("target", "endpoint") if isinstance(part := manifest.get(key), Mapping)}
    answered = {name for stratum in found for name, _ in stratum.models if name}
    asked = told.get("endpoint", {}).get("model")
    return find([*sorted(answered), *([asked] if isinstance(asked, str) else [])], told.get("target"))


def _cell(
    stratum: Stratum, health: Health, board: Boards, drift: bool, early: Mapping[tuple[int, int], Implausible]
) -> dict[str, Any]:
    cell = stratum.summary()
    if drift:
        cell["cell_flags"].append(Flag.MODEL_DRIFT.value)
    found = early.get((stratum.tier_tokens, stratum.concurrency)) if stratum.rate is None else None
    if found:
        cell["cell_flags"].append(Flag.PREFIX_CACHE_HIT.value)
    cell["implausible_ttft"] = asdict(found) if found else None
    flags, of_board = board.of(stratum)
    cell["cell_flags"] += flags
    verdict = worst(health.of(stratum, cell), of_board)
    return {**cell, "validity": {"status": verdict.status, "reasons": list(verdict.reasons)}}

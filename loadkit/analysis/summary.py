"""A run in numbers: summary.json, recomputed from the records and what else the run folder holds."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.ending import course, ending, objectives
from loadkit.analysis.growth import growth
from loadkit.analysis.health import Health
from loadkit.analysis.reading import number
from loadkit.analysis.strata import Stratum, strata
from loadkit.analysis.totals import Totals
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

    The numbers come from the records alone; manifest and telemetry add the run id, the exit code and what is known of
    the load generator's health. Times are ms, rates per second, absent values None; nothing is rounded here.
    """
    manifest = manifest or {}
    totals = Totals()
    run_ids: dict[str, None] = {}
    found = strata(_seen(records, totals, run_ids))
    health = Health(manifest, telemetry)
    drift = _drift(found)
    cells = [_cell(stratum, health, drift) for stratum in found]
    return {
        "schema": SCHEMA,
        "run_id": str(manifest.get("run_id") or next(iter(run_ids), "")) or None,
        "percentile_method": "nearest-rank",
        "cells": cells,
        "growth": growth(cells),
        "knee": None,
        "totals": totals.summary(),
        "errors": totals.errors(),
        "objectives": objectives(manifest, cells),
        "course": course(manifest, cells),
        "error_bars": _error_bars(manifest),
        "damaged_lines": damaged_lines,
        "exit_code": ending(manifest, cells, saturated=health.saturated, damaged_lines=damaged_lines),
    }


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


def _cell(stratum: Stratum, health: Health, drift: bool) -> dict[str, Any]:
    cell = stratum.summary()
    if drift:
        cell["cell_flags"].append(Flag.MODEL_DRIFT.value)
    verdict = health.of(stratum, cell)
    return {**cell, "validity": {"status": verdict.status, "reasons": list(verdict.reasons)}}

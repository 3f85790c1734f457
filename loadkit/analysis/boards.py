"""A run on an edge board, from the manifest and the board's samples: may its cells stand, and what its numbers mean."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from loadkit.analysis.board_cells import board_cell
from loadkit.analysis.reading import number
from loadkit.analysis.soak import curve, energy
from loadkit.analysis.strata import Stratum
from loadkit.board import perf, verdicts
from loadkit.capacity.card import ModelCard
from loadkit.measure.validity import Validity
from loadkit.record.names import Flag

REACH_S = 1.0  # a sample speaks for a second to either side
RANGES = ("frequency_hz", "temperature_c", "cooling", "load", "power_w", "memory_bytes_per_s", "counters_per_s")
KEPT = ("board", "title", "device", "host", "quantisation", "runs_on", "bandwidth", "lock")

Row = Mapping[str, Any]


class Boards:
    """The board's evidence. Let telemetry run through `watch`, then ask for each cell; no board says nothing."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        target = manifest.get("target")
        self._facts: Mapping[str, Any] = target if isinstance(target, Mapping) else {}
        self.there = self._facts.get("kind") == "board"
        self._rows: list[tuple[float, Row]] = []

    def watch(self, telemetry: Iterable[Row]) -> Iterator[Row]:
        """Every row as it came; the board's are kept."""
        for row in telemetry:
            if row.get("kind") == "board" and (at := number(row, "at_ms")) is not None:
                self._rows.append((at / 1000, row))
            yield row
        self._rows.sort(key=itemgetter(0))

    def of(self, stratum: Stratum) -> tuple[list[str], Validity]:
        """Flags of the cell, and what the board says against it."""
        found = self._verdicts(stratum) if self.there else {}
        flags = [flag.value for flag in (Flag.THROTTLED, Flag.UNLOCKED) if found.get(flag.value)]
        reasons = [f"{name}: {reason}" for name, lines in found.items() for reason in lines]
        return flags, Validity("suspect", reasons) if reasons else Validity()

    def summary(
        self, found: Sequence[Stratum], cells: Sequence[Mapping[str, Any]], card: ModelCard | None
    ) -> dict[str, Any] | None:
        """What summary.json says of the board; None where none was loaded. Units are in the names."""
        if not self.there:
            return None
        rows = [row for _, row in self._rows]
        pairs = list(zip(found, cells, strict=True))
        return {
            **{name: self._facts.get(name) for name in KEPT},
            "samples": len(rows),
            "ranges": {part: limits for part in RANGES if (limits := _ranges(rows, part))},
            "busy_before": verdicts.busy(self._before()),
            "cells": [board_cell(s, cell, self._facts, self._inside(s), card) for s, cell in pairs],
            "soak": [made for s, _ in pairs if (made := curve(s, self._rows)) is not None],
            "energy": [made for s, _ in pairs if (made := energy(s, self._rows)) is not None],
            "counted_in_part": perf.not_counted(row["counted_share"] for row in rows if "counted_share" in row),
        }

    def _verdicts(self, stratum: Stratum) -> dict[str, list[str]]:
        """Verdict -> its reasons, of the samples taken while the cell was measured."""
        spans = self._spans(stratum)
        rows = [row for span in spans for row in span]
        targets = self._facts.get("lock")
        wanted = targets.get("targets_hz") if isinstance(targets, Mapping) else None
        swapped = [reason for span in spans for reason in verdicts.swapping(span)]
        return {
            Flag.THROTTLED.value: verdicts.throttled(rows, self._before()),
            Flag.UNLOCKED.value: verdicts.unlocked(rows, wanted if isinstance(wanted, Mapping) else {}),
            "swapping": swapped,
            "busy": verdicts.busy(self._before()),
        }

    def _before(self) -> Row:
        before = self._facts.get("before")
        return before if isinstance(before, Mapping) else {}

    def _inside(self, stratum: Stratum) -> list[Row]:
        return [row for span in self._spans(stratum) for row in span]

    def _spans(self, stratum: Stratum) -> list[list[Row]]:
        """The samples of every measured window of the cell, those up to a second around it included."""
        found = []
        for _, start, end in stratum.window.spans():
            first = bisect_left(self._rows, start - REACH_S, key=itemgetter(0))
            last = bisect_right(self._rows, end + REACH_S, key=itemgetter(0))
            found.append([row for _, row in self._rows[first:last]])
        return found


def _ranges(rows: Iterable[Row], part: str) -> dict[str, list[float]]:
    """Sensor -> [lowest, highest] over the run."""
    found: dict[str, list[float]] = {}
    for row in rows:
        values = row.get(part)
        if not isinstance(values, Mapping):
            continue
        for name in values:
            value = number(values, name)
            if value is not None:
                low, high = found.get(str(name), [value, value])
                found[str(name)] = [min(low, value), max(high, value)]
    return found

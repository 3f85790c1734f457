"""Visits that may not stand and were repeated: their records count as sent, and in no number of a cell."""

from collections.abc import Mapping
from typing import Any

from loadkit.analysis.reading import names, number, rows


def standing(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The visits of the manifest but those that another one repeats."""
    return [visit for visit in rows(manifest, "visits") if number(visit, "repeated_as") is None]


def repeated(manifest: Mapping[str, Any]) -> frozenset[float]:
    """The indexes of visits that another one repeats."""
    visits = rows(manifest, "visits")
    known = (number(visit, "visit") for visit in visits if number(visit, "repeated_as") is not None)
    return frozenset(index for index in known if index is not None)


def arrivals(manifest: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Cell -> {offered, dropped} of the visits of an open loop that count, as the client kept them."""
    found: dict[str, dict[str, int]] = {}
    for visit in standing(manifest):
        counts = visit.get("arrivals")
        if isinstance(counts, Mapping):
            sums = found.setdefault(str(visit.get("cell")), {"offered": 0, "dropped": 0})
            for name in sums:
                sums[name] += int(number(counts, name) or 0)
    return found


def repeats(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was repeated and why, {cell, reasons}, in the order in which it was measured."""
    found = []
    for visit in rows(manifest, "visits"):
        if number(visit, "repeated_as") is not None:
            verdict = visit.get("validity")
            reasons = names(verdict, "reasons") if isinstance(verdict, Mapping) else []
            found.append({"cell": str(visit.get("cell")), "reasons": reasons})
    return found

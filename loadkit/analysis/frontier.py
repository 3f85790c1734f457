"""The map of a run, tier by concurrency, and where on it an objective of the plan breaks."""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.ending import objectives


def frontier(cells: list[dict[str, Any]], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """{tiers, concurrencies, frontier}: the axes of the map, and one row per tier with a judged cell.

    A row has `max_concurrency_ok`, the largest tested concurrency at which every objective holds and held at all
    judged ones below (None: not even at the smallest), `first_broken`, the smallest at which one is missed (None: at
    none), and `objective`, the one missed there. Without objectives there is no frontier. Invalid cells are not
    judged, and a cell without the number of an objective does not hold it.
    """
    judged: dict[int, dict[int, list[dict[str, Any]]]] = {}
    place = {cell["cell"]: (cell["tier_tokens"], cell["concurrency"]) for cell in cells}
    for item in objectives(manifest, cells):
        tier, level = place[item["cell"]]
        judged.setdefault(tier, {}).setdefault(level, []).append(item)
    return {
        "tiers": sorted({tier for tier, _ in place.values()}),
        "concurrencies": sorted({level for _, level in place.values()}),
        "frontier": [{"tier_tokens": tier, **_edge(judged[tier])} for tier in sorted(judged)],
    }


def _edge(levels: Mapping[int, Iterable[Mapping[str, Any]]]) -> dict[str, Any]:
    """Where the levels of one tier stop to hold."""
    held, unsure = None, False
    for level in sorted(levels):
        missed = next((item["name"] for item in levels[level] if item["met"] is False), None)
        if missed:
            return {"max_concurrency_ok": held, "first_broken": level, "objective": missed}
        unsure = unsure or any(item["met"] is None for item in levels[level])
        if not unsure:
            held = level
    return {"max_concurrency_ok": held, "first_broken": None, "objective": None}

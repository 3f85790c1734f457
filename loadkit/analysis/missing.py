"""What the plan measured and the records do not hold: lines that were lost, whatever lost them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.reading import number, rows


def missing(manifest: Mapping[str, Any], cells: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Planned cells with fewer measured records than their visits took: {cell, tier_tokens, concurrency, n, planned}.

    A visit that is done took one request per stream and round. A cell without any record is held against its whole
    plan, done or not. A run without a ladder has no visits, and nothing is held against it.
    """
    plan = manifest.get("plan")
    visits = rows(manifest, "visits")
    if not isinstance(plan, Mapping) or not visits:
        return []
    rounds = int(number(plan, "rounds") or 0)
    done: Counter[str] = Counter()
    for visit in visits:
        if visit.get("state") == "done":
            done[str(visit.get("cell"))] += 1 if number(visit, "round") else rounds
    measured = {cell["cell"]: cell["n"] for cell in cells}
    found = []
    for planned in rows(plan, "cells"):
        tier, concurrency = number(planned, "tier_tokens"), number(planned, "concurrency")
        if tier is None or concurrency is None:
            continue
        name = f"{int(tier)}x{int(concurrency)}"
        wanted = (done[name] if name in measured else rounds) * int(concurrency)
        if (n := measured.get(name, 0)) < wanted:
            found.append(
                {"cell": name, "tier_tokens": int(tier), "concurrency": int(concurrency), "n": n, "planned": wanted}
            )
    return found

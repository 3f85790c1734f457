"""What the plan measured and the records do not hold: lines that were lost, whatever lost them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.reading import number, rows, whole
from loadkit.analysis.repeats import arrivals, standing
from loadkit.plan.ladder import Cell


def missing(manifest: Mapping[str, Any], cells: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Planned cells with fewer measured records than their visits took: {cell, tier_tokens, concurrency, n, planned}.

    A visit that is done took one request per stream and round; one that was ended or dropped on purpose takes nothing
    for granted. A cell without any record is held against the rest of its plan, done or not, and one that was added
    while the run went on is held against its own visit. A run without a ladder has no visits.
    """
    plan = manifest.get("plan")
    visits = standing(manifest)
    if not isinstance(plan, Mapping) or not visits:
        return []
    rounds = int(number(plan, "rounds") or 0)
    took: Counter[str] = Counter()  # measured requests, as they were counted when their visits were done
    done: Counter[str] = Counter()
    waived: Counter[str] = Counter()
    for visit in visits:
        if visit.get("state") == "done":
            took[str(visit.get("cell"))] += int(number(visit, "measured") or 0)
        counted = {"done": done, "ended": waived, "dropped": waived}.get(str(visit.get("state")))
        if counted is not None:
            counted[str(visit.get("cell"))] += 1 if number(visit, "round") else rounds
    measured = {cell["cell"]: cell["n"] for cell in cells}
    scheduled = arrivals(manifest)
    found = []
    added = [visit["added"] for visit in visits if isinstance(visit.get("added"), Mapping)]
    for planned in (*rows(plan, "cells"), *added):
        tier, concurrency = number(planned, "tier_tokens"), number(planned, "concurrency")
        if tier is None or concurrency is None:
            continue
        name = Cell(int(tier), int(concurrency), rate=number(planned, "rate"), stage=whole(planned, "stage")).id
        if number(planned, "rate") is not None:
            counts = scheduled.get(name) if done[name] else None
            wanted = counts["offered"] - counts["dropped"] if counts else 0
        else:
            planned_rounds = done[name] if name in measured else rounds - waived[name]
            wanted = max(planned_rounds * int(concurrency), took[name])
        if (n := measured.get(name, 0)) < wanted:
            place = {"tier_tokens": int(tier), "concurrency": int(concurrency), "rate": number(planned, "rate")}
            found.append({"cell": name, **place, "n": n, "planned": wanted})
    return found

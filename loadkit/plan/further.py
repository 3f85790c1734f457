"""What is kept of a run while it goes on, and what may change its plan: cells added, cells left out, stages ended."""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadkit.measure.load import Load
from loadkit.plan.ladder import Cell
from loadkit.record.names import Outcome, Phase

LIMITED_SHARE = 0.10
"""Share of a stage's requests whose first attempt was answered 429, above which the stage ends."""
LEAST_LIMITED = 2  # one refusal alone, however small the stage, says nothing about concurrency


@dataclass(slots=True)
class Seen:
    """The measured requests of one cell so far: times (ms) of those that were answered, and all outcomes.

    Gaps between tokens and the load are kept of an open loop only; `counts` are those of its schedule.
    """

    cell: Cell
    ttft_ms: "array[float]" = field(default_factory=lambda: array("d"))
    e2e_ms: "array[float]" = field(default_factory=lambda: array("d"))
    tpot_ms: "array[float]" = field(default_factory=lambda: array("d"))
    itl_ms: "array[float]" = field(default_factory=lambda: array("d"))
    outcomes: Counter[str] = field(default_factory=Counter)
    ended: bool = False  # its stage was ended because of too many 429
    load: Load = field(default_factory=Load)
    counts: Mapping[str, int] | None = None
    visit: int | None = None
    unusable: str | None = None  # why the load generator, and not the server, may be what was measured


class Tally:
    """Folds records into one `Seen` per cell; a few numbers per request, so that a long run keeps no records."""

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self.cells: dict[str, Seen] = {}
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """A request has ended; only measured ones count."""
        if record["phase"] != Phase.MEASURE or not record["tier_tokens"] or not record["concurrency"]:
            return
        place = record["tier_tokens"], record["concurrency"], record["target_tokens"] or 0, record.get("rate")
        seen = self.of(Cell(*place, stage=record.get("stage")))
        if seen.cell.rate is not None and seen.visit != record.get("visit"):
            # A rate is visited once; a repeat stands in the place of what was not valid.
            seen = self.cells[seen.cell.id] = Seen(seen.cell, visit=record.get("visit"))
        seen.outcomes[record["outcome"]] += 1
        if record["outcome"] == Outcome.OK:
            for kept, name in ((seen.ttft_ms, "ttft_ms"), (seen.e2e_ms, "e2e_ms"), (seen.tpot_ms, "tpot_ms")):
                if record.get(name) is not None:
                    kept.append(record[name])
        if seen.cell.rate is not None:
            seen.load.add(record)
            seen.itl_ms.extend(record["itl_ms"] or () if record["outcome"] == Outcome.OK else ())

    def of(self, cell: Cell) -> Seen:
        """What was seen of a cell, begun with nothing."""
        return self.cells.setdefault(cell.id, Seen(cell))


@dataclass(frozen=True, slots=True)
class Change:
    """A cell to add or to leave out, and why, in words for manifest and report."""

    cell: Cell
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do next; both empty = go on as planned."""

    add: tuple[Change, ...] = ()
    drop: tuple[Change, ...] = ()


def too_limited(limited: int, first_attempts: int, planned: int) -> str | None:
    """Why a stage has to end, or None: `limited` of its first attempts were answered 429.

    The share is held against all the requests the stage was planned to take, as long as it has not taken more: it is
    then certain to be above LIMITED_SHARE at the end as well, and a short spell of refusals at the start is none.
    """
    if limited < LEAST_LIMITED or limited <= LIMITED_SHARE * max(planned, first_attempts):
        return None
    return (
        f"{limited} of the first attempts of {planned} planned requests were rate limited, more than "
        f"{LIMITED_SHARE:.0%}"
    )

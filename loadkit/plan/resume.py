"""A run that was cut or stopped, read back from its folder: what of it stands, and what is still to do.

The unit is the visit. One that was settled (done, or ended or dropped on purpose) is kept; one that was open or was
stopped half-way is repeated under an index of its own, so that records of both tries can be told apart by it.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from loadkit.plan.budget import Spent, spent_by
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.further import Tally
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import Rows, Writer, locked
from loadkit.record.merge import merge, spools_of
from loadkit.record.names import Phase

WORKERS_END_S = 20.0  # how long workers that outlived their master are waited for
DAMAGED = "the manifest is damaged or of another version of loadkit: start a new run"


@dataclass(frozen=True, slots=True)
class ToDo:
    """A visit to measure. `instead` is the one it repeats, because of `why`."""

    visit: Visit
    instead: Visit | None = None
    why: str = ""


@dataclass(slots=True)
class Past:
    """What the records of a run hold: measured requests by visit, tokens spent, lines that cannot be read."""

    measured: Counter[int] = field(default_factory=Counter)
    spent: Spent = field(default_factory=Spent)
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run to go on with; `number` counts how often it was resumed, this time included."""

    folder: RunFolder
    manifest: dict[str, Any]
    plan: Plan
    endpoint: Endpoint
    todo: tuple[ToDo, ...]
    past: Past
    number: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Those of the plan and those that were added to it and are still to do."""
        return tuple(dict.fromkeys((*self.plan.cells, *(item.visit.cell for item in self.todo))))

    def tally(self) -> Tally:
        """What was seen of each cell so far, repeated visits left out, for what decides on further cells."""
        left_out = {row["visit"] for row in self.manifest["visits"] if row.get("repeated_as") is not None}
        left_out |= {item.instead.index for item in self.todo if item.instead is not None}
        rows = _records(self.folder)
        tally = Tally(row for row in rows if row.get("visit") not in left_out)
        for row in self.manifest["visits"]:
            if row["state"] == "ended":
                tally.of(_cell(self.plan, row)).ended = True
        return tally


def read(path: Path) -> Resumed:
    """The run in a folder. ConfigError or FolderError where it cannot be gone on with.

    Records that workers of it left in spools are taken in first.
    """
    folder = RunFolder.open(path)
    with Writer(folder.records_path) as records:
        records.lock()  # a run that goes on is not to be read as one that was cut
    manifest = folder.read_manifest()
    try:
        plan, endpoint = Plan.from_json(manifest["plan"]), Endpoint.from_json(manifest["endpoint"])
        rows = [dict(row) for row in manifest["visits"]]
        if not rows:
            raise ConfigError("the users of this run chose for themselves, so it has no visits to go on with")
        if spools := spools_of(folder):
            _ended(spools)
            merge(folder, spools)
        past = past_of(folder)
        number = len(manifest.get("resumes") or ()) + 1
        return Resumed(folder, manifest, plan, endpoint, tuple(outstanding(plan, rows, past.measured)), past, number)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(DAMAGED) from error


def _ended(spools: list[Path]) -> None:
    """Wait until the workers of a master that died have ended: what they have in flight would disturb what comes."""
    since = time.monotonic()
    while live := [path for path in spools if locked(path)]:
        if time.monotonic() - since > WORKERS_END_S:
            raise ConfigError(
                f"{len(live)} workers of this run have not ended, and write {live[0]}: wait for them, or end them first"
            )
        time.sleep(0.1)


def nothing_left(run: Resumed, now: datetime) -> None:
    """Every visit is settled. A run that was cut between its last visit and its report gets the end it lacks."""
    if run.manifest.get("ended_at") is None:
        run.folder.write_manifest({**run.manifest, "ended_at": now.isoformat(timespec="milliseconds")})


def past_of(folder: RunFolder) -> Past:
    """Read the records once."""
    past = Past()
    rows = _records(folder)
    for row in rows:
        past.spent = past.spent.plus(spent_by(row))
        if row.get("phase") == Phase.MEASURE:
            past.measured[row.get("visit", -1)] += 1
    past.damaged = rows.damaged
    return past


def outstanding(plan: Plan, rows: Iterable[Mapping[str, Any]], measured: Mapping[int, int]) -> Iterable[ToDo]:
    """The visits still to do, in the order of the plan, from the rows of the manifest.

    Connections are new and the server may have been restarted, so the first visit of every cell warms up again.
    """
    rows = list(rows)
    index = len(rows)
    warmed: set[str] = set()
    for row in rows:
        if row.get("repeated_as") is not None:
            continue
        cell = _cell(plan, row)
        visit = Visit(row["visit"], cell, row["round"], first=cell.id not in warmed, attempt=_attempt(rows, row))
        why = _why_again(plan, visit, row, measured.get(visit.index, 0))
        if why is None:
            continue
        warmed.add(cell.id)
        if not why:
            yield ToDo(visit)
        else:
            yield ToDo(replace(visit, index=index, attempt=visit.attempt + 1), visit, why)
            index += 1


def _why_again(plan: Plan, visit: Visit, row: Mapping[str, Any], measured: int) -> str | None:
    """Why a visit has to be repeated; "" = it was never begun; None = it stands."""
    state = row["state"]
    if state == "planned":
        return ""
    if state == "open":
        return "the run was cut in the middle of it"
    if state == "stopped":
        return "the run was stopped in the middle of it"
    by_time = plan.seconds_of(visit.cell) is not None
    wanted = row.get("measured", 0 if by_time else len(plan.rounds_of(visit)) * visit.cell.concurrency)
    if state == "done" and measured < wanted:
        return f"{measured} of its {wanted} measured requests are in the records"
    return None


def _cell(plan: Plan, row: Mapping[str, Any]) -> Cell:
    """The cell of a row: it names one of the plan's, or holds the one that was added."""
    if isinstance(row.get("added"), Mapping):
        return Cell(**row["added"])
    return {cell.id: cell for cell in plan.cells}[row["cell"]]


def _attempt(rows: list[Mapping[str, Any]], row: Mapping[str, Any]) -> int:
    """How many tries of this visit there were before it."""
    tries = 0
    while (earlier := row.get("repeats")) is not None:
        row, tries = rows[earlier], tries + 1
        if tries > len(rows):
            raise ValueError("a visit repeats itself")
    return tries


def _records(folder: RunFolder) -> Rows:
    return Rows(folder.records_path if folder.records_path.exists() else None)

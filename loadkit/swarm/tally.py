"""What a run has measured so far, cell by cell, for the page that Locust's web UI serves.

Visits are counted apart, because one that is repeated is left out of every number, as it is in the report.
"""

from array import array
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadkit.measure.validity import Validity, worst
from loadkit.record.jsonl import Rows
from loadkit.record.names import Outcome, Phase
from loadkit.record.record import Record
from loadkit.swarm import events
from loadkit.swarm.judge import Judge
from loadkit.swarm.session import Session

MEASURED = frozenset({"done", "ended", "stopped"})
CLOSED = MEASURED | {"dropped"}


@dataclass(slots=True)
class Part:
    """Requests of one visit, or of several. Times: sorted ms of measured answers; outcomes: of all phases."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ttft: "array[float]" = field(default_factory=lambda: array("d"))
    tpot: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, record: Mapping[str, Any]) -> None:
        """A request has ended."""
        self.outcomes[str(record["outcome"])] += 1
        if record["phase"] == Phase.MEASURE and record["outcome"] == Outcome.OK:
            for values, name in ((self.ttft, "ttft_ms"), (self.tpot, "tpot_ms")):
                if isinstance(time := record[name], (int, float)):  # an answer of one token has no TPOT
                    insort(values, time)

    @classmethod
    def together(cls, parts: "list[Part]") -> "Part":
        """Several visits as one."""
        if len(parts) == 1:
            return parts[0]
        both = cls()
        for part in parts:
            both.outcomes.update(part.outcomes)
            both.ttft.extend(part.ttft)
            both.tpot.extend(part.tpot)
        return cls(both.outcomes, array("d", sorted(both.ttft)), array("d", sorted(both.tpot)))


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell so far: its visits that stand, how many of them are closed, and the verdict on those.

    unjudged: closed before the run was resumed, so that there is no verdict on them here.
    """

    cell: str
    state: str
    closed: int
    visits: int
    part: Part
    validity: Validity
    unjudged: int


class Tally:
    """Listens to the records, telemetry and stages of a session, in this process or of its workers."""

    def __init__(self, session: Session) -> None:
        """Begin before the first request; a run that is resumed counts what its folder has."""
        self._session = session
        self._judge = Judge()
        self._parts: dict[tuple[str, int | None], Part] = defaultdict(Part)
        self._verdicts: dict[int, Validity] = {}
        for row in Rows(session.folder.records_path if session.folder.records_path.exists() else None):
            if row["kind"] == "request":
                self._count({**Record().to_json(), **row})
        session.records.add_listener(self._on_record)
        session.samples.add_listener(self._on_sample)
        events.stage.add_listener(self._on_stage)

    def rows(self) -> list[CellRow]:
        """Every cell that is planned or was measured, in the order of the plan."""
        visits = self._visits()
        names = [visit["cell"] for visit in visits] + [cell for cell, _ in self._parts]
        return [self._row(name, visits) for name in dict.fromkeys(names)]

    @property
    def left(self) -> int:
        """Visits that are planned and not closed."""
        return sum(visit["state"] not in CLOSED for visit in self._visits() if "repeated_as" not in visit)

    def _visits(self) -> list[dict[str, Any]]:
        return [] if self._session.manifest is None else self._session.manifest.visits

    def _row(self, cell: str, visits: list[dict[str, Any]]) -> CellRow:
        left_out = {visit["visit"] for visit in visits if "repeated_as" in visit}
        mine = [visit for visit in visits if visit["cell"] == cell and visit["visit"] not in left_out]
        parts = [part for (name, visit), part in self._parts.items() if name == cell and visit not in left_out]
        verdicts = [self._verdicts[visit["visit"]] for visit in mine if visit["visit"] in self._verdicts]
        verdicts += [Validity(**visit["validity"]) for visit in mine if "validity" in visit]
        return CellRow(
            cell=cell,
            state=_state([visit["state"] for visit in mine]),
            closed=sum(visit["state"] in CLOSED for visit in mine),
            visits=len(mine),
            part=Part.together(parts or [Part()]),
            validity=worst(*verdicts),
            unjudged=sum(visit["state"] in MEASURED and visit["visit"] not in self._verdicts for visit in mine),
        )

    def _count(self, record: Mapping[str, Any]) -> None:
        self._parts[str(record["cell"]), record["visit"]].add(record)

    def _on_record(self, *, record: dict[str, Any], **_: object) -> None:
        self._count(record)
        if self._session.ladder:  # elsewhere no visit closes, after which it could be judged and forgotten
            self._judge.take(record)

    def _on_sample(self, *, row: dict[str, Any], **_: object) -> None:
        if self._session.ladder:
            self._judge.take(row)

    def _on_stage(self, *, visit: int, state: str, **_: object) -> None:
        if state == "open":
            self._judge.clear()
        else:
            self._verdicts[visit] = self._judge.verdict(visit)


def _state(visits: list[str]) -> str:
    """The state of a cell, from those of its visits."""
    if "open" in visits:
        return "running"
    closed = sum(state in CLOSED for state in visits)
    return "started" if 0 < closed < len(visits) else visits[-1] if visits else "-"

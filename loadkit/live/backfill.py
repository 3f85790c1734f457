"""A finished run as OpenMetrics with timestamps, from which promtool makes blocks that a Prometheus serves.

The registry is fed as it was while the run went on, by a clock that is that of the rows; what changed since the last
step is written with its time. Answers at the end of the run equal the records.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from loadkit.live.families import Buckets, Scalars
from loadkit.live.labels import load_of
from loadkit.live.registry import About, Registry
from loadkit.live.render import head

STEP_S = 5.0
MOST_STEPS = 2000
KEEP_S = 60.0  # a value that does not change is said again: Prometheus forgets a series after five minutes


Block = Scalars | Buckets


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened: `at` in Unix time."""

    at: float
    kind: str  # record, sample, stage or summary
    what: Mapping[str, Any]


def about_of(manifest: Mapping[str, Any], telemetry: Iterable[Mapping[str, Any]] = ()) -> About:
    """What the registry has to know of a run. A master's rows speak for the run, else those of the first process."""
    plan, endpoint = manifest.get("plan") or {}, manifest.get("endpoint") or {}
    versions = manifest.get("versions") or {}
    cells = tuple((cell["tier_tokens"], load_of(cell)) for cell in plan.get("cells", ()))
    rows = sorted((row for row in telemetry if row["kind"] == "telemetry"), key=lambda row: "workers_live" not in row)
    return About(
        process=str(rows[0].get("worker")) if rows else "",
        run_id=str(manifest.get("run_id") or "run"),
        endpoint=str(endpoint.get("name") or "endpoint"),
        cells=cells if manifest.get("visits") else (),
        slo=plan.get("slo") or "",
        model=str(endpoint.get("model") or ""),
        protocol=str(endpoint.get("protocol") or ""),
        host=str(endpoint.get("base_url") or "").partition("://")[2].partition("/")[0],
        target=str((manifest.get("target") or {}).get("kind") or ""),
        plan=str(plan.get("name") or ""),
        seed=str(plan.get("seed", "")),
        version=str(versions.get("loadkit") or ""),
        locust_version=str(versions.get("locust") or ""),
    )


def moments(
    records: Iterable[Mapping[str, Any]], telemetry: Iterable[Mapping[str, Any]], manifest: Mapping[str, Any]
) -> list[Moment]:
    """Everything that happened in a run, in order; rows without a time come first or with the one before."""
    found: list[Moment] = []
    last = _unix(manifest.get("started_at")) or 0.0
    for record in records:
        if (start := _unix(record.get("timestamp"))) is not None:
            last = start + (record.get("done_ms") or record.get("e2e_ms") or 0.0) / 1e3
        found.append(Moment(last, "record", record))
    for row in telemetry:
        if (at := _unix(row.get("timestamp"))) is not None:
            found.append(Moment(at, "sample", row))
    for visit in manifest.get("visits") or ():
        for key in ("opened_at", "closed_at"):
            if (at := _unix(visit.get(key))) is not None:
                state = "open" if key == "opened_at" else str(visit.get("state"))
                found.append(Moment(at, "stage", {"cell": str(visit["cell"]), "state": state}))
    return sorted(found, key=attrgetter("at"))


def write(about: About, happened: list[Moment], summary: Mapping[str, Any] | None, path: Path) -> int:
    """Write the file; returns how many samples it has. ValueError where nothing of the run has a time."""
    timed = [moment.at for moment in happened if moment.at]
    if not timed:
        raise ValueError("nothing in the run has a time")
    with TemporaryFile() as said:
        pages = _Pages(said, about, start=timed[0])
        step = max(STEP_S, (timed[-1] - timed[0]) / MOST_STEPS)
        due = timed[0]
        pages.say(due - step)  # all zero, so that the first increments are increments
        for moment in happened:
            while moment.at > due + step:
                due += step
                pages.say(due)
            pages.feed(moment)
        pages.say(timed[-1])
        if summary is not None:
            pages.registry.summary(summary)
        pages.registry.finished()
        pages.say(timed[-1] + 1.0)
        return pages.join(path)


class _Pages:
    """What was said, in one temporary file, and where in it each block is: OpenMetrics wants it in another order."""

    def __init__(self, said: IO[bytes], about: About, start: float) -> None:
        self._now = start
        self.registry = Registry(about, now=lambda: self._now)
        self._said = said
        self._last: dict[Block, tuple[bytes, float]] = {}
        self._spans: dict[Block, list[tuple[int, int]]] = defaultdict(list)  # (offset, length), in order of time
        self._count = 0

    def feed(self, moment: Moment) -> None:
        """Tell the registry."""
        self._now = moment.at or self._now
        if moment.kind == "record":
            self.registry.observe(moment.what)
        elif moment.kind == "stage":
            self.registry.stage(moment.what["cell"], moment.what["state"])
        else:
            self.registry.health(moment.what)

    def say(self, at: float) -> None:
        """Write every block that changed, or was not said for long, as it is at this time."""
        self._now = at
        for family in self.registry.families.values():
            for block in family.blocks():
                text, said_at = self._last.get(block, (b"", 0.0))
                if block.text(False) != text or at - said_at >= KEEP_S:
                    text = block.text(False)
                    self._last[block] = text, at
                    lines = [b"%s %.3f\n" % (line, at) for line in text.splitlines()]
                    self._spans[block].append((self._said.tell(), sum(map(len, lines))))
                    self._said.writelines(lines)
                    self._count += len(lines)

    def join(self, path: Path) -> int:
        """Write the file; returns the number of samples."""
        with path.open("wb") as whole:
            for family in self.registry.families.values():
                blocks = [block for block in family.blocks() if self._spans[block]]
                if blocks:
                    whole.write(head(family.metric, True))
                for block in blocks:
                    whole.writelines(self._in_order(block))
            whole.write(b"# EOF\n")
        return self._count

    def _in_order(self, block: Block) -> list[bytes]:
        """Of a histogram one point after the other, of the rest one series after the other."""
        found = []
        for offset, length in self._spans[block]:
            self._said.seek(offset)
            found.append(self._said.read(length))
        if isinstance(block, Buckets):
            return found
        lines = b"".join(found).splitlines(keepends=True)
        return sorted(lines, key=lambda line: line.rsplit(b" ", 2)[0])


def _unix(stamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError):
        return None

"""What a person sees while a run goes on: every cell's state, requests, TTFT so far and errors, workers, time left.

A line for each visit that has closed, on standard error; on a terminal a table below them once a second. A table drawn
by a library costs milliseconds on the event loop that stamps the reads; formatting a few lines costs microseconds.
"""

import time
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from loadkit.plan.ladder import Plan, Visit
from loadkit.record.names import Outcome, Phase
from loadkit.swarm.screen import Screen

KEPT = 20_000  # values a median is taken of: beyond, only every second one, then every fourth, and so on
ROWS = 12  # cells in the table
QUIET_S = 60.0  # after so long without a line one is written where there is no terminal


class CellSoFar:
    """What was seen of one cell."""

    def __init__(self) -> None:
        self.state = "planned"
        self.requests = 0
        self.failed: Counter[str] = Counter()
        self.answered = 0  # measured requests with a TTFT
        self._ttft = array("d")  # ms, sorted
        self._stride = 1

    def add(self, record: Mapping[str, object]) -> None:
        """A request has ended."""
        self.requests += 1
        ttft = record["ttft_ms"]
        if record["outcome"] != Outcome.OK:
            self.failed[str(record["outcome"])] += 1
        elif record["phase"] == Phase.MEASURE and isinstance(ttft, (int, float)):
            if self.answered % self._stride == 0:
                insort(self._ttft, ttft)
            self.answered += 1
            if len(self._ttft) > KEPT:
                self._ttft, self._stride = self._ttft[::2], 2 * self._stride

    def ttft(self) -> str:
        """The nearest-rank median so far."""
        if not self._ttft:
            return "TTFT -"
        return f"TTFT p50 {self._ttft[(len(self._ttft) - 1) // 2]:,.0f} ms (n={self.answered})"

    def errors(self) -> str:
        """How many requests failed, by outcome."""
        return ", ".join(f"{count} {outcome}" for outcome, count in self.failed.most_common())


class Progress:
    """Listens to the events of a run. `walk`: the visits there are to do, by default all of the plan."""

    def __init__(
        self,
        plan: Plan,
        stream: IO[str],
        now: Callable[[], float] = time.monotonic,
        walk: Sequence[Visit] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        """quiet: nothing is written at all."""
        self._plan = plan
        self._visits = {visit.index: visit for visit in (plan.visits() if walk is None else walk)}
        self._cells = {visit.cell.id: CellSoFar() for visit in self._visits.values()}
        self._screen = Screen(stream)
        self._quiet = quiet
        self._now = now
        self._started = self._opened = self._written = now()
        self._visit: Visit | None = None  # the last one that opened
        self._running = False
        self._finished = 0
        self._weight_done = 0.0
        self.about: Callable[[], Mapping[str, int]] = dict  # of the workers, where there are any

    def on_stage(self, *, visit: int, state: str, **_: object) -> None:
        """A visit opened or closed."""
        if visit not in self._visits:
            return
        self._visit = self._visits[visit]
        cell = self._of(self._visit.cell.id)
        self._running = state == "open"
        if self._running:
            cell.state, self._opened = "running", self._now()
            return
        self._finished += 1
        self._weight_done += self._weight(self._visit)
        more = any(v.cell.id == self._visit.cell.id and v.index > visit for v in self._visits.values())
        cell.state = state if state != "done" or not more else "started"
        self.note(self.line())

    def on_change(self, visit: Visit, state: str, why: str) -> None:
        """A visit was "added" to the plan, is "repeated", was "dropped" from it, or "ended" before its time."""
        if state in ("added", "repeated"):
            self._visits[visit.index] = visit
        elif state == "dropped":
            self._visits.pop(visit.index, None)
        self._of(visit.cell.id).state = state
        self.note(f"cell {visit.cell.id} {state}: {why}")

    def on_record(self, *, record: dict, **_: object) -> None:
        """A request ended."""
        self._of(record["cell"]).add(record)

    def tick(self) -> None:
        """Once a second: renew the table on a terminal; elsewhere say now and then that the run goes on."""
        if self._quiet or (self._visit is None and not any(cell.requests for cell in self._cells.values())):
            return
        if self._screen.live:
            self._screen.renew([*self.table(), self.line()])
        elif self._now() - self._written >= QUIET_S:
            self.note(self.line())

    def line(self) -> str:
        """The state of the run in one line."""
        total = sum(cell.requests for cell in self._cells.values())
        parts, about = [], self.about()
        if self._visit is not None:
            cell = self._of(self._visit.cell.id)
            parts += [f"cell {self._visit.cell.id} {self._rounds(self._visit)}", cell.ttft()]
        parts += [self._time_left()] if self._visits else []
        if "workers_planned" in about:
            parts.append(f"workers {about['workers_live']}/{about['workers_planned']}")
        parts.append(f"{total:,} requests")
        if self._visit is not None and cell.failed:
            parts.append(cell.errors())
        place = f"[{self._finished}/{len(self._visits)}] " if self._visits else ""
        return place + ", ".join(parts)

    def table(self) -> list[str]:
        """A line for each cell, those around the open one where there are many; none where there is only one."""
        names = list(self._cells)
        if len(names) < 2:
            return []
        here = names.index(self._visit.cell.id) if self._visit is not None else 0
        first = max(0, min(here - ROWS // 2, len(names) - ROWS))
        width = max(map(len, names))
        return [
            f"  {name:<{width}}  {cell.state:<8} {cell.requests:>7,} requests  {cell.ttft()}  {cell.errors()}".rstrip()
            for name, cell in list(self._cells.items())[first : first + ROWS]
        ]

    def note(self, text: str) -> None:
        """A line of its own, beside the progress."""
        if not self._quiet:
            self._written = self._now()
            self._screen.keep(text)

    def _of(self, cell: str) -> CellSoFar:
        return self._cells.setdefault(cell, CellSoFar())

    def _rounds(self, visit: Visit) -> str:
        if (seconds := self._plan.seconds_of(visit.cell)) is not None:
            return f"{self._now() - self._opened:.0f} of {seconds:g} s"
        return f"round {visit.round}/{self._plan.rounds}" if visit.round else f"rounds 1-{self._plan.rounds}"

    def _time_left(self) -> str:
        """Planned work is taken to cost time in proportion to its tokens, as fast as it went so far."""
        total = sum(self._weight(visit) for visit in self._visits.values())
        left = total - self._weight_done
        if self._plan.soak or self._plan.open_loop:  # weights are seconds then
            open_s = self._weight(self._visit) if self._running and self._visit is not None else 0.0
            left -= min(self._now() - self._opened, open_s)
        elif not self._weight_done:
            return "time left -"
        else:
            left *= (self._now() - self._started) / self._weight_done
        return f"time left {left:.0f} s" if left < 120 else f"time left {left / 60:.0f} min"

    def _weight(self, visit: Visit) -> float:
        """Tokens of a visit, an output token counted as ten input tokens: it is read one at a time. Seconds of a visit
        that is measured for a time."""
        if (seconds := self._plan.seconds_of(visit.cell)) is not None:
            return seconds
        requests = len(self._plan.rounds_of(visit)) * visit.cell.concurrency
        warm = self._plan.warmup_of(visit)
        prompt = requests * visit.cell.target_tokens + warm * self._plan.warmup_tokens(visit.cell)
        return prompt + 10.0 * (requests + warm) * self._plan.max_tokens

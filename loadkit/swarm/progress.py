"""What a person sees while a run goes on: cell, rounds, TTFT so far, time left. One plain line on standard error.

Drawing a live table costs milliseconds on the event loop that stamps the reads; formatting one line costs microseconds.
"""

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import IO

from loadkit.measure.quantile import nearest_rank
from loadkit.plan.ladder import Plan, Visit


class Progress:
    """Listens to the events of a run and writes a line per finished visit; on a terminal also once a second."""

    def __init__(self, plan: Plan, stream: IO[str], now: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._visits = plan.visits()
        self._stream = stream
        self._now = now
        self._started = now()
        self._visit: Visit | None = None
        self._finished = 0
        self._requests = 0
        self._weight_done = 0.0
        self._ttft: dict[str, list[float]] = defaultdict(list)
        self._failed = 0
        self._live = bool(getattr(stream, "isatty", lambda: False)())
        self._width = 0

    def on_stage(self, *, visit: int, state: str, **_: object) -> None:
        """A visit opened or closed."""
        self._visit = self._visits[visit]
        if state == "open":
            self._requests = 0
            return
        self._finished += 1
        self._weight_done += self._weight(self._visit)
        self._write(self.line(), keep=True)

    def on_record(self, *, record: dict, **_: object) -> None:
        """A request ended."""
        self._requests += 1
        if record["outcome"] != "ok":
            self._failed += 1
        elif record["phase"] == "measure":
            self._ttft[record["cell"]].append(record["ttft_ms"])

    def tick(self) -> None:
        """Once a second: renew the line where a terminal shows it."""
        if self._live and self._visit is not None:
            self._write(self.line(), keep=False)

    def line(self) -> str:
        """The state of the run in one line."""
        visit = self._visit
        assert visit is not None
        cell = visit.cell
        rounds = f"round {visit.round}/{self._plan.rounds}" if visit.round else f"rounds 1-{self._plan.rounds}"
        ttft = nearest_rank(self._ttft[cell.id], 0.5)
        shown = "TTFT -" if ttft is None else f"TTFT p50 {ttft:,.0f} ms (n={len(self._ttft[cell.id])})"
        failed = f", {self._failed} failed" if self._failed else ""
        place = f"{self._finished}/{len(self._visits)}"
        return f"[{place}] cell {cell.id} {rounds}, {shown}{failed}, {self._time_left()}"

    def _time_left(self) -> str:
        """Planned work is taken to cost time in proportion to its tokens, as fast as it went so far."""
        total = sum(self._weight(visit) for visit in self._visits)
        if not self._weight_done:
            return "time left -"
        left = (self._now() - self._started) * (total - self._weight_done) / self._weight_done
        return f"time left {left:.0f} s" if left < 120 else f"time left {left / 60:.0f} min"

    def _weight(self, visit: Visit) -> float:
        """Tokens of a visit, an output token counted as ten input tokens: it is read one at a time."""
        requests = len(self._plan.rounds_of(visit)) * visit.cell.concurrency
        warm = self._plan.warmup_of(visit)
        prompt = requests * visit.cell.target_tokens + warm * self._plan.warmup_tokens(visit.cell)
        return prompt + 10.0 * (requests + warm) * self._plan.max_tokens

    def note(self, text: str) -> None:
        """A line of its own, beside the progress."""
        self._write(text, keep=True)

    def _columns(self) -> int:
        """Width of the terminal now; a line that wraps could not be renewed."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str, *, keep: bool) -> None:
        if not self._live and not keep:
            return
        if self._live:
            shown = text if keep else text[: self._columns() - 1]
            text = "\r" + shown.ljust(self._width)
            self._width = 0 if keep else len(shown)
        # A reader that has gone must not end the measurement.
        with contextlib.suppress(OSError):
            self._stream.write(text + ("\n" if keep else ""))
            self._stream.flush()

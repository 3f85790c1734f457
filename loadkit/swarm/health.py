"""The instrument watches itself: how late its event loop is, and how much of a core it uses.

A loop that is late stamps every read late, so lateness is the one honest bound on the error of TTFT and ITL.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from gevent.hub import get_hub

from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram

TICK_MS = 5.0
TICK_NS = int(TICK_MS * 1e6)
KEPT = 4096  # falling maxima; an hour of lateness at random needs about a dozen


class LagProbe:
    """Asks to be woken every 5 ms and notes how late it was woken (ms).

    By a timer of the loop itself: a greenlet that sleeps would cost a third more.
    A loop that was blocked for 300 ms would have been late for each of the 60 wake-ups that fell into that time, not
    for one: all of them are counted, so that a quantile is a share of time and not of the moments that went well.
    """

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._falling: deque[tuple[int, float]] = deque(maxlen=KEPT)  # (ns, lag): every lag above all later ones
        self._window = Histogram(LAG_BOUNDS_S)
        self._window_max: float | None = None
        self._due: int | None = None  # when the wake-up that was asked for should come, or up to when it was counted
        self._timer: Any = None

    def start(self) -> None:
        """Begin to probe; the caller stops it."""
        self._timer = get_hub().loop.timer(TICK_MS / 1e3, repeat=TICK_MS / 1e3)
        self._arm()

    def stop(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _arm(self) -> None:
        self.ask()
        self._timer.again(self._tick, update=True)  # from now on: a late loop owes no tick

    def _tick(self) -> None:
        self.woken()
        self._arm()

    def ask(self) -> None:
        """A wake-up is asked for, one tick from now."""
        self._due = self._now_ns() + TICK_NS

    def woken(self) -> None:
        """It has come."""
        late_ns = max(0, self._overdue())
        self._due = None
        self._note(late_ns / 1e6)

    def _overdue(self) -> int:
        """How late the next wake-up is by now (ns); negative while it is not due."""
        return -1 if self._due is None else self._now_ns() - self._due

    def _note(self, lag_ms: float) -> None:
        at_ns = self._now_ns()
        self._window_max = lag_ms if self._window_max is None else max(self._window_max, lag_ms)
        while self._falling and self._falling[-1][1] <= lag_ms:
            self._falling.pop()
        self._falling.append((at_ns, lag_ms))
        self._window.add(lag_ms)
        while (lag_ms := lag_ms - TICK_MS) > 0:
            self._window.add(lag_ms)

    def max_since(self, start_ns: int) -> float | None:
        """Worst lag (ms) that was noticed since start_ns; None when nothing was observed yet."""
        noted = next((lag for at, lag in self._falling if at >= start_ns), None)
        overdue = self._overdue()
        return max(noted or 0.0, overdue / 1e6) if overdue > 0 else noted

    def take_window(self) -> dict[str, Any]:
        """What was observed since the last call: a histogram on the wire, its p99 and the exact worst (ms).

        A wake-up that is late right now is late in this window up to now, and in the next one from now on.
        """
        if (overdue := self._overdue()) > 0:
            self._note(overdue / 1e6)
            self._due = self._now_ns()
        window, worst = self._window, self._window_max
        self._window, self._window_max = Histogram(LAG_BOUNDS_S), None
        p99 = window.quantile(0.99)
        return {
            "hub_lag": window.to_wire(),
            "hub_lag_p99_ms": None if p99 is None else p99 * 1e3,
            "hub_lag_max_ms": worst,
        }


class CpuMeter:
    """Share of one core that this process used since the last reading (1.0 = a whole core)."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def take(self) -> float:
        """The share since the last call."""
        wall, cpu = time.perf_counter(), time.process_time()
        share = (cpu - self._cpu) / max(wall - self._wall, 1e-9)
        self._wall, self._cpu = wall, cpu
        return share


class InFlight:
    """Count of streams in flight in this process."""

    def __init__(self) -> None:
        self.count = 0

    def enter(self) -> int:
        """One more; returns the count with it included."""
        self.count += 1
        return self.count

    def leave(self) -> None:
        """One less."""
        self.count -= 1


def process_name() -> str:
    """How a process is named in records: local, or its host's name and process id when it is one of several."""
    return f"local-{os.getpid()}"

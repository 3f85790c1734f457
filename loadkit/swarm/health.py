"""The instrument watches itself: how late its event loop is, and how much of a core it uses.

A loop that is late stamps every read late, so lateness is the one honest bound on the error of TTFT and ITL.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import gevent

from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram

TICK_S = 0.005
KEPT_S = 4000  # one worst value per second, longer than any request may take


class LagProbe:
    """A greenlet that asks to be woken every 5 ms and notes how late it was woken (ms)."""

    def __init__(self, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now_ns = now_ns
        self._worst: deque[tuple[int, float]] = deque(maxlen=KEPT_S)  # (second, worst lag in it)
        self._window = Histogram(LAG_BOUNDS_S)
        self._window_max: float | None = None
        self._greenlet: gevent.Greenlet | None = None

    def start(self) -> None:
        """Begin to probe; the caller stops it."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End the greenlet."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None

    def _run(self) -> None:
        while True:
            before = self._now_ns()
            gevent.sleep(TICK_S)
            self.note(self._now_ns(), (self._now_ns() - before) / 1e6 - TICK_S * 1e3)

    def note(self, at_ns: int, lag_ms: float) -> None:
        """Take one observation made at at_ns."""
        lag_ms = max(0.0, lag_ms)
        self._window.add(lag_ms)
        self._window_max = lag_ms if self._window_max is None else max(self._window_max, lag_ms)
        second = at_ns // 1_000_000_000
        if self._worst and self._worst[-1][0] == second:
            self._worst[-1] = (second, max(self._worst[-1][1], lag_ms))
        else:
            self._worst.append((second, lag_ms))

    def max_since(self, start_ns: int) -> float | None:
        """Worst lag (ms) since start_ns, to the whole second; None when nothing was observed yet."""
        first = start_ns // 1_000_000_000
        worst = None
        for second, lag in reversed(self._worst):
            if second < first:
                break
            worst = lag if worst is None else max(worst, lag)
        return worst

    def take_window(self) -> dict[str, Any]:
        """What was observed since the last call: a histogram on the wire, its p99 and the exact worst (ms)."""
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

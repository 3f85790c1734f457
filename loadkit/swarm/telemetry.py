"""One line a second into telemetry.jsonl: is the load generator healthy, and are the planned users there?"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import gevent

from loadkit.swarm.health import CpuMeter, InFlight, LagProbe

PERIOD_S = 1.0


class Telemetry:
    """Samples this process once a second, and where a visit opens or closes.

    `write` takes each sample, `users()` gives (planned, live), `also()` what else a row says.
    """

    def __init__(
        self,
        write: Callable[[dict[str, Any]], Any],
        worker: str,
        probe: LagProbe,
        inflight: InFlight,
        users: Callable[[], tuple[int, int]],
        also: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._write = write
        self._worker = worker
        self._probe = probe
        self._inflight = inflight
        self._users = users
        self._also = also
        self._cell: str | None = None
        self._listeners: list[Callable[[], None]] = []
        self._cpu = CpuMeter()
        self._since = time.perf_counter()
        self._greenlet: gevent.Greenlet | None = None

    def every_second(self, listener: Callable[[], None]) -> None:
        """Call the listener after each sample."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Begin to sample."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Write the last, shorter sample and end."""
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
            self._write(self.sample())

    def enter(self, cell: str | None) -> None:
        """A visit opened (its cell) or closed (None): what was observed so far is not the next part's."""
        self._write(self.sample())
        self._cell = cell

    def _run(self) -> None:
        while True:
            gevent.sleep(PERIOD_S)
            self._write(self.sample())
            for listener in self._listeners:
                listener()

    def sample(self) -> dict[str, Any]:
        """What the second that just ended looked like; `seconds` is less where a visit opened or closed in it."""
        planned, live = self._users()
        since, self._since = self._since, time.perf_counter()
        return {
            "kind": "telemetry",
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "at_ms": time.perf_counter_ns() / 1e6,
            "seconds": self._since - since,
            "worker": self._worker,
            "cell": self._cell,
            **self._probe.take_window(),
            "cpu": self._cpu.take(),
            "streams_in_flight": self._inflight.count,
            "users_planned": planned,
            "users_live": live,
            **self._also(),
        }

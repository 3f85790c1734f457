"""Gauges from the rows of telemetry: the processes that measure, the server they load, the board it runs on.

A worker that is gone takes its series with it; a gauge that nobody sets any more would stand at its last value.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from loadkit.live.families import Family
from loadkit.live.labels import LAG_QUANTILES, OTHER

MAX_NAMES = 300  # of workers, and of a board's sensors
SILENT_S = 60.0  # after which a worker's gauges are dropped
LATE_S = 5.0  # rows of a lost worker may still be on their way; what says something later lives

# family, key of a row of kind server, factor to the family's unit
SERVER_KEYS = (
    ("loadkit_server_running_requests", "running", 1.0),
    ("loadkit_server_waiting_requests", "waiting", 1.0),
    ("loadkit_server_kv_usage_ratio", "kv_usage", 1.0),
    ("loadkit_server_preemptions", "preemptions", 1.0),
    ("loadkit_server_prefix_hit_ratio", "prefix_hit", 1.0),
    ("loadkit_server_queue_seconds", "queue_ms", 1e-3),
    ("loadkit_server_prefill_seconds", "prefill_ms", 1e-3),
    ("loadkit_server_ttft_seconds", "ttft_ms", 1e-3),
)
# family, key of a row of kind board, which holds sensor -> value
BOARD_KEYS = (
    ("loadkit_board_frequency_hertz", "frequency_hz"),
    ("loadkit_board_temperature_celsius", "temperature_c"),
    ("loadkit_board_power_watts", "power_w"),
    ("loadkit_board_memory_bytes_per_second", "memory_bytes_per_s"),
    ("loadkit_board_cooling_state", "cooling"),
    ("loadkit_board_load_ratio", "load"),
    ("loadkit_board_memory_bytes", "memory"),
)


class Workers:
    """Sets the gauges of `families`. `process`: the one of the rows that speaks for the whole run; `now`: Unix time."""

    def __init__(self, families: Mapping[str, Family], process: str, now: Callable[[], float]) -> None:
        self._families = families
        self._process = process
        self._now = now
        self._names: set[str] = set()
        self._heard: dict[str, float] = {}
        self._lost: dict[str, float] = {}

    def take(self, row: Mapping[str, Any]) -> None:
        """A row of telemetry; one of a kind that is not known says nothing here."""
        feed = {"telemetry": self._telemetry, "server": self._server, "board": self._board}.get(row["kind"])
        if feed is not None:
            feed(row)

    def age(self) -> None:
        """Say how old the last word of each worker is; who was silent for long is gone."""
        now = self._now()
        for worker, heard in list(self._heard.items()):
            if now - heard > SILENT_S:
                self.forget(worker)
            else:
                self._set("loadkit_worker_report_age_seconds", (worker,), max(0.0, now - heard))

    def lose(self, worker: str) -> None:
        """A worker is gone all at once: rows of it that are still to come set nothing."""
        self._lost[tame(worker)] = self._now()
        self.forget(tame(worker))

    def forget(self, worker: str) -> None:
        """A worker is gone."""
        self._heard.pop(worker, None)
        for family in self._families.values():
            if "worker" in family.metric.labels:
                family.drop_where("worker", worker)

    def forget_all(self) -> None:
        """The run is over."""
        for worker in list(self._heard):
            self.forget(worker)

    def _telemetry(self, row: Mapping[str, Any]) -> None:
        worker = self._name(row.get("worker"))
        if self._now() - self._lost.get(worker, -LATE_S) < LATE_S:
            return
        self._heard[worker] = self._now()
        if row.get("worker") == self._process:
            self._set("loadkit_users", (), row.get("users_live"))
            self._set("loadkit_target_users", (), row.get("users_planned"))
            self._set("loadkit_workers", ("planned",), row.get("workers_planned", 1))
            self._set("loadkit_workers", ("live",), row.get("workers_live", 1))
        if "workers_live" not in row:  # a master has no streams of its own
            self._set("loadkit_worker_users", (worker,), row.get("users_live"))
            self._set("loadkit_inflight", (worker,), row.get("streams_in_flight"))
        self._set("loadkit_worker_cpu_ratio", (worker,), row.get("cpu"))
        for quantile, name in zip(LAG_QUANTILES, ("p99", "max"), strict=True):
            lag = row.get(f"hub_lag_{name}_ms")
            self._set("loadkit_worker_loop_lag_seconds", (worker, quantile), None if lag is None else lag / 1e3)

    def _server(self, row: Mapping[str, Any]) -> None:
        for name, key, factor in SERVER_KEYS:
            value = row.get(key)
            self._set(name, (), None if value is None else value * factor)

    def _board(self, row: Mapping[str, Any]) -> None:
        for name, key in BOARD_KEYS:
            for sensor, value in (row.get(key) or {}).items():
                self._set(name, (self._name(sensor),), value)

    def _name(self, name: Any) -> str:
        """The name of a worker or a sensor as a label."""
        shown = tame(str(name))
        if shown not in self._names and len(self._names) >= MAX_NAMES:
            return OTHER
        self._names.add(shown)
        return shown

    def _set(self, name: str, labels: tuple[str, ...], value: float | None) -> None:
        self._families[name].set(labels, value)


def tame(text: str) -> str:
    """A name from elsewhere as a label: letters, digits and ._:/@+- only, at most 100 of them."""
    return re.sub(r"[^A-Za-z0-9._:/@+-]+", "_", text)[:100]

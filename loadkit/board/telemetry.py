"""A board once a second: every clock, every zone, cooling, loads, memory, power. Rows for telemetry.jsonl."""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from loadkit.board import sensors
from loadkit.board.access import Access
from loadkit.board.description import Board
from loadkit.board.sensors import FAN, MOST, Sensors, named, number

KHZ = 1e3  # cpufreq
HWMON = "sys/class/hwmon/hwmon*/name"


def survey(access: Access, board: Board) -> Sensors:
    """What this board has of all that its description and the kernel name. Raises BoardLost when it is gone."""
    frequency = {**_clusters(access, board), **_devices(access, board)}
    ddr = next((path for path in _device(access, board, "ddr", "load")), None)
    npu = board.facts.get("npu_load")
    there = access.read_many([path for path in (npu, ddr) if path])
    return Sensors(
        frequency=frequency,
        temperature=_typed(access, "sys/class/thermal/thermal_zone*/type", "temp"),
        cooling=_typed(access, "sys/class/thermal/cooling_device*/type", "cur_state", skip_fans=True),
        power=_power(access, board),
        npu_load=npu if npu and there.get(npu) is not None else None,
        ddr_load=ddr if ddr and there.get(ddr) is not None else None,
        throttled="vcgencmd" in board.tools and _bits(access) is not None,
    )


class Sampler:
    """Samples one board. `now_ns` is the monotonic clock of the run's other telemetry, `wall` only labels."""

    def __init__(
        self,
        access: Access,
        board: Board,
        found: Sensors | None = None,
        *,
        now_ns: Callable[[], int] = time.perf_counter_ns,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._access = access
        self._board = board
        self.sensors = found or survey(access, board)
        self._now_ns = now_ns
        self._wall = wall
        self._ticks: tuple[float, float] | None = None

    def sample(self) -> dict[str, Any]:
        """One row of kind board, in one round trip. What cannot be read this time is left out of it."""
        texts = self._access.read_many(self.sensors.paths())
        row = {
            "kind": "board",
            "timestamp": self._wall().isoformat(timespec="milliseconds"),
            "at_ms": self._now_ns() / 1e6,
            "board": self._board.name,
            **self._values(texts),
        }
        if self.sensors.throttled:
            row["throttled_bits"] = _bits(self._access)
        return row

    def _values(self, texts: Mapping[str, str | None]) -> dict[str, Any]:
        found = self.sensors

        def read(path: str) -> float | None:
            return number(texts.get(path))

        frequency = {name: _scaled(read(path), unit) for name, (path, unit) in found.frequency.items()}
        temperature = {name: _scaled(read(path), 1e-3) for name, path in found.temperature.items()}
        power = {name: sensors.watts([read(path) for path in paths]) for name, paths in found.power.items()}
        load = sensors.loads(texts.get(found.npu_load or ""), texts.get(found.ddr_load or ""))
        if (busy := self._busy(texts.get("proc/stat"))) is not None:
            load["cpu"] = busy
        return {
            "frequency_hz": _known(frequency),
            "temperature_c": _known(temperature),
            "cooling": _known({name: read(path) for name, path in found.cooling.items()}),
            "load": load,
            "memory": sensors.memory(texts.get("proc/meminfo")),
            "swapped_pages": sensors.swapped_pages(texts.get("proc/vmstat")),
            "power_w": _known(power),
        }

    def _busy(self, stat: str | None) -> float | None:
        """Share of all cores that was busy since the last sample; None in the first."""
        before, self._ticks = self._ticks, sensors.cpu_time(stat)
        if before is None or self._ticks is None:
            return None
        busy, every = self._ticks[0] - before[0], self._ticks[1] - before[1]
        return min(1.0, max(0.0, busy / every)) if every > 0 else None


def _clusters(access: Access, board: Board) -> dict[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    for cluster in board.clusters:
        for path in access.list(f"{cluster.policy}/scaling_cur_freq")[:MOST]:
            found[named(f"cpu.{cluster.name}", found)] = (path, KHZ)
    return found


def _devices(access: Access, board: Board) -> dict[str, tuple[str, float]]:
    found: dict[str, tuple[str, float]] = {}
    for device in board.devices:
        for path in _device(access, board, device.name, "cur_freq"):
            found[device.name] = (path, 1.0)
    if "ddr" not in found and (rate := board.facts.get("emc_rate")) and access.read(rate) is not None:
        found["ddr"] = (rate, 1.0)
    return found


def _device(access: Access, board: Board, name: str, file: str) -> list[str]:
    """The file of the first folder of a device that is there; at most one."""
    folders = [path for device in board.devices if device.name == name for path in device.paths]
    return [path for folder in folders for path in access.list(f"{folder}/{file}")][:1]


def _typed(access: Access, pattern: str, file: str, *, skip_fans: bool = False) -> dict[str, str]:
    """Type -> the file beside it, for every zone or cooling device; a fan that turns throttles nothing."""
    found: dict[str, str] = {}
    for path, kind in access.read_many(access.list(pattern)[:MOST]).items():
        if kind is not None and not (skip_fans and FAN.search(kind)):
            found[named(kind.removesuffix("-thermal"), found)] = path.removesuffix("type") + file
    return found


def _power(access: Access, board: Board) -> dict[str, tuple[str, ...]]:
    """Power sensors by name: power*_input alone, else each in*_input with the curr*_input of its number."""
    paths = [path for pattern in board.power for path in access.list(pattern)][:MOST]
    labels = access.read_many(paths and access.list(HWMON))
    found: dict[str, tuple[str, ...]] = {}
    for path in paths:
        folder, _, file = path.rpartition("/")
        name = (labels.get(f"{folder}/name") or folder.rpartition("/")[2]).strip()
        if file.startswith("power"):
            found[named(f"{name}.{file.removesuffix('_input')}", found)] = (path,)
        elif file.startswith("in") and (other := f"{folder}/curr{file[2:]}") in paths:
            found[named(f"{name}.{file.removeprefix('in').removesuffix('_input')}", found)] = (path, other)
    return found


def _bits(access: Access) -> int | None:
    return sensors.throttled_bits(access.run(["vcgencmd", "get_throttled"], 2.0).out)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}

"""Counters of `perf stat` on a board: which to ask for, and what its lines say.

They show what the cores do, not what the model does. BUS_ACCESS on a Cortex-A76 counts beats between the core and the
shared unit beside it, hits in L3 included: it is no DRAM traffic. An NPU reads memory without any core: nothing a core
counts sees it. Only a counter in the memory controller does (rockchip_ddr, where the kernel has it).

The output of `-x` is not quite CSV (man perf-stat): a name may hold the separator's usual comma, hence the semicolon.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from loadkit.board.access import Access
from loadkit.board.description import Board

CORE_EVENTS = ("bus_access", "l1d_cache_refill", "l2d_cache_refill")  # the second is perf's L1-dcache-load-misses
DDR_EVENTS = ("read-bytes", "write-bytes")
MOST_AT_ONCE = 6  # programmable counters of a core; more events take turns
UNITS = {"": 1.0, "B": 1.0, "Bytes": 1.0, "KB": 1024.0, "MB": 2.0**20, "KiB": 1024.0, "MiB": 2.0**20, "GB": 2.0**30}
BAD = {"<not supported>": "not supported", "<not counted>": "not counted"}
NOTE = (
    "Core counters say how busy the cores were with memory, L3 included; what an NPU or GPU reads passes by them. "
    "Shares below 100 % were counted part of the time and scaled up."
)


@dataclass(frozen=True, slots=True)
class Count:
    """One event of one interval. `value` in the unit of `unit`, None where it was not counted, `missing` says why.

    `at_s`: end of the interval since perf began, None without -I. `share`: part of the time it was counted, 1 = all;
    below 1 it took turns with others and `value` is scaled up.
    """

    event: str
    value: float | None
    unit: str = ""
    at_s: float | None = None
    share: float | None = None
    missing: str | None = None

    @property
    def scaled(self) -> bool:
        """Whether the value is an extrapolation."""
        return self.share is not None and self.share < 1


def parse(text: str) -> list[Count]:
    """The counts in output of `perf stat -x\\;`, with or without -I; lines of metrics alone and others are skipped."""
    return [found for line in text.splitlines() if (found := _line(line)) is not None]


def _line(line: str) -> Count | None:
    fields = line.split(";")
    if line.startswith("#") or len(fields) < 4:
        return None
    at_s = None
    if _number(fields[0]) is not None and (fields[1] in BAD or _number(fields[1]) is not None) and len(fields) > 5:
        at_s, fields = _number(fields[0]), fields[1:]
    value, unit, event = fields[0].strip(), fields[1].strip(), fields[2].strip()
    if not event or (value not in BAD and _number(value) is None):
        return None
    percent = _number(fields[4]) if len(fields) > 4 else None
    share = None if percent is None else percent / 100
    return Count(event, _number(value), unit, at_s, share, BAD.get(value))


def _number(text: str) -> float | None:
    try:
        return float(text.strip())
    except ValueError:
        return None


def events(access: Access, board: Board) -> list[str]:
    """The events to ask for, qualified by their PMU: those of each cluster's cores, and the memory controller's.

    A bare `bus_access` is an error on a board with two kinds of cores, so only what the kernel lists is named.
    """
    found: list[str] = []
    for names in dict.fromkeys(cluster.pmus for cluster in board.clusters):
        found += _of_pmu(access, names, CORE_EVENTS)
    return list(dict.fromkeys([*found, *_of_pmu(access, board.ddr_pmus, DDR_EVENTS)]))


def _of_pmu(access: Access, names: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Those of the wanted events that the first PMU that is there has."""
    for name in names:
        paths = access.list(f"sys/bus/event_source/devices/{name}/events/*")
        there = {path.rpartition("/")[2] for path in paths}
        if there:
            return [f"{name}/{event}/" for event in wanted if event in there]
    return []


def argv(wanted: Iterable[str], interval_ms: int = 1000) -> list[str]:
    """The command that counts them on all cores until it is stopped."""
    return ["perf", "stat", "-a", "-x", ";", "-I", str(interval_ms), "-e", ",".join(wanted)]


def row(counts: Iterable[Count], seconds: float = 1.0) -> dict[str, dict[str, float]]:
    """Keys of a telemetry row from the counts of one interval: rates per second, and the share each was counted."""
    counters: dict[str, float] = {}
    traffic: dict[str, float] = {}
    shares: dict[str, float] = {}
    for count in counts:
        if count.value is None:
            continue
        pmu, _, event = count.event.strip("/").partition("/")
        rate = count.value * UNITS.get(count.unit, 1.0) / seconds
        (traffic if event in DDR_EVENTS else counters)[f"{pmu}.{event}" if event else pmu] = rate
        if count.share is not None:
            shares[count.event] = count.share
    return {"memory_bytes_per_s": traffic, "counters_per_s": counters, "counted_share": shares}


def last_interval(counts: Iterable[Count]) -> list[Count]:
    """The counts of the newest interval among them."""
    by_time: dict[float | None, list[Count]] = {}
    for count in counts:
        by_time.setdefault(count.at_s, []).append(count)
    return by_time[max(by_time, key=lambda at: at or 0.0)] if by_time else []


def not_counted(rows: Iterable[Mapping[str, float]]) -> list[str]:
    """Events of telemetry rows (`counted_share`) that were counted less than all of the time."""
    low: dict[str, float] = {}
    for shares in rows:
        for event, share in shares.items():
            low[event] = min(share, low.get(event, 1.0))
    return [f"{event} was counted {100 * share:.0f} % of the time" for event, share in low.items() if share < 1]

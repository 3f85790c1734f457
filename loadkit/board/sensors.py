"""What of a board is read once a second, and what the texts mean. Pure: paths in, texts in, values out.

Zones and cooling devices are known by their type: their numbers change from boot to boot. Frequencies are in Hz
whatever unit the kernel uses, temperatures in degrees Celsius, power in watts, loads shares of one.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MOST = 200  # sensors of a kind
CLIP = 60  # characters of a name
FAN = re.compile(r"fan", re.IGNORECASE)
NPU_CORE = re.compile(r"Core(\d+):\s*(\d+)%")
NPU_ALONE = re.compile(r"NPU load:\s*(\d+)%")
DDR_LOAD = re.compile(r"(\d{1,3})@(\d+)Hz")
MEMORY_KEYS = {"MemTotal": "total", "MemAvailable": "available", "SwapTotal": "swap_total", "SwapFree": "swap_free"}
SWAPPED = ("pswpin", "pswpout")  # pages, since boot
SPARE = ("idle", "iowait")
CPU_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")

Read = Callable[[str], float | None]


@dataclass(frozen=True, slots=True)
class Sensors:
    """Paths to read, by what they tell: sensor name -> path. `unit` scales a frequency to Hz."""

    frequency: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    temperature: Mapping[str, str] = field(default_factory=dict)
    cooling: Mapping[str, str] = field(default_factory=dict)
    power: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # microwatts, or millivolts and milliamperes
    npu_load: str | None = None
    ddr_load: str | None = None
    throttled: bool = False  # the board's own bits (vcgencmd) are there

    def paths(self) -> list[str]:
        """Every path once."""
        found = [path for path, _ in self.frequency.values()]
        found += [*self.temperature.values(), *self.cooling.values()]
        found += [path for paths in self.power.values() for path in paths]
        found += [path for path in (self.npu_load, self.ddr_load) if path]
        return list(dict.fromkeys([*found, "proc/meminfo", "proc/vmstat", "proc/stat"]))


def number(text: str | None) -> float | None:
    """The number a file holds; None where it is not there or holds something else."""
    try:
        value = float((text or "").strip())
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None


def named(kind: str, taken: Mapping[str, object]) -> str:
    """A sensor's name, with a number where there is one of that name already."""
    clean = re.sub(r"[^A-Za-z0-9._:@+-]+", "_", kind.strip())[:CLIP] or "unnamed"
    if clean not in taken:
        return clean
    return next(f"{clean}-{i}" for i in range(2, MOST + 3) if f"{clean}-{i}" not in taken)


def loads(npu: str | None, ddr: str | None) -> dict[str, float]:
    """Loads of NPU cores and memory controller, from `Core0:  12%, Core1: …`, `NPU load:  0%`, `37@1560000000Hz`."""
    found = {f"npu.core{core}": int(share) / 100 for core, share in NPU_CORE.findall(npu or "")}
    if not found and (alone := NPU_ALONE.search(npu or "")):
        found["npu"] = int(alone[1]) / 100
    if busy := DDR_LOAD.search(ddr or ""):
        found["ddr"] = int(busy[1]) / 100
    return found


def memory(meminfo: str | None) -> dict[str, float]:
    """Bytes of memory and swap, from proc/meminfo."""
    found: dict[str, float] = {}
    for line in (meminfo or "").splitlines():
        name, _, rest = line.partition(":")
        value = number(rest.split()[0]) if name in MEMORY_KEYS and rest.split() else None
        if value is not None:
            found[MEMORY_KEYS[name]] = value * 1024
    return found


def swapped_pages(vmstat: str | None) -> float | None:
    """Pages that went to the swap or came from it since boot, from proc/vmstat; None where it does not say."""
    pages = [value for line in (vmstat or "").splitlines() if (value := _counted(line)) is not None]
    return sum(pages) if pages else None


def _counted(line: str) -> float | None:
    name, _, rest = line.partition(" ")
    return number(rest) if name in SWAPPED else None


def cpu_time(stat: str | None) -> tuple[float, float] | None:
    """(busy, all) ticks of all cores since boot, from proc/stat."""
    first = (stat or "").partition("\n")[0].split()
    if len(first) < 5 or first[0] != "cpu":
        return None
    ticks = {name: number(text) or 0.0 for name, text in zip(CPU_FIELDS, first[1:], strict=False)}
    every = sum(ticks.values())
    return every - sum(ticks.get(name, 0.0) for name in SPARE), every


def watts(values: list[float | None]) -> float | None:
    """From one reading in microwatts, or one in millivolts and one in milliamperes."""
    if any(value is None for value in values):
        return None
    known = [value for value in values if value is not None]
    return known[0] / 1e6 if len(known) == 1 else known[0] * known[1] / 1e6


def throttled_bits(text: str) -> int | None:
    """Bits of `vcgencmd get_throttled`: 0 under-voltage, 1 capped, 2 throttled, 3 soft limit; 16 to 19 since boot."""
    match = re.search(r"throttled=0x([0-9a-fA-F]{1,8})", text)
    return int(match[1], 16) if match else None

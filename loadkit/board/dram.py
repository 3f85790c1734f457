"""A board's memory: type, width, clock and bandwidth, each with who says so."""

import re
from collections.abc import Mapping

from loadkit.board.access import Access
from loadkit.board.description import Board
from loadkit.board.facts import Fact, clipped
from loadkit.capacity.roofline import dram_bandwidth

GROUP = "memory"
FORMULA = "clock x 2 x bits / 8"


def memory(access: Access, board: Board, model: str | None, *, measure: bool) -> list[Fact]:
    """All that is known. What a program or a file of the board says goes before the description."""
    told = _dmi(access) if "dmidecode" in board.tools else {}
    known = _described(board, model)
    clock = _clock(access, board)
    facts = {**known, **told, **({"clock": clock} if clock else {})}
    facts |= _theory(facts)
    found = [facts[name] for name in ("type", "width", "clock", "theoretical bandwidth") if name in facts]
    total = re.search(r"^MemTotal:\s+(\d+) kB", access.read("proc/meminfo") or "", re.MULTILINE)
    if total:
        found.append(Fact(GROUP, "installed, as the kernel uses it", int(total[1]) * 1024, "proc/meminfo", "bytes"))
    return found + (_measured(access) if measure else [])


def _described(board: Board, model: str | None) -> dict[str, Fact]:
    memory = board.memory_of(model)
    if memory is None:
        return {}
    source = f"description {board.name}: {memory.source}"
    found = {"type": Fact(GROUP, "type", " or ".join(memory.types), source)}
    if memory.bus_bits:
        found["width"] = Fact(GROUP, "width", memory.bus_bits, source, "bits", memory.note)
    if memory.clock_hz:
        found["clock"] = Fact(GROUP, "clock", memory.clock_hz, source, "Hz")
    return found


def _clock(access: Access, board: Board) -> Fact | None:
    """The highest clock that the board itself names."""
    folders = [path for device in board.devices if device.name == "ddr" for path in device.paths]
    files = [f"{folder}/available_frequencies" for folder in folders]
    files += [path for name in ("emc_max_rate", "emc_rate") if (path := board.facts.get(name))]
    for path, text in access.read_many(files).items():
        steps = [int(word) for word in (text or "").split() if word.isdigit()]
        if steps and max(steps) > 0:
            return Fact(GROUP, "clock", max(steps), path, "Hz")
    return None


def _dmi(access: Access) -> dict[str, Fact]:
    """What `dmidecode -t 17` says of the modules that are fitted; needs root."""
    done = access.run(["dmidecode", "-t", "17"])
    modules = [_fields(block) for block in done.out.split("\n\n") if "Memory Device" in block]
    fitted = [module for module in modules if _number(module.get("Size"))]
    if not fitted:
        return {}
    source = "dmidecode -t 17"
    found = {"type": Fact(GROUP, "type", clipped(fitted[0].get("Type", "unknown")), source)}
    bits = sum(_number(module.get("Data Width")) for module in fitted)
    if bits:
        note = "as if every module had a channel of its own"
        found["width"] = Fact(GROUP, "width", bits, f"{source}, {len(fitted)} modules", "bits", note)
    rate = _number(fitted[0].get("Configured Memory Speed"))
    if rate:
        found["clock"] = Fact(GROUP, "clock", rate * 500_000, f"{source}, half of {rate} MT/s", "Hz")
    return found


def _fields(block: str) -> dict[str, str]:
    pairs = (line.strip().partition(": ") for line in block.splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _number(text: str | None) -> int:
    match = re.match(r"([0-9]{1,9})\b", text or "")
    return int(match[1]) if match else 0


def _theory(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    clock, width = facts.get("clock"), facts.get("width")
    if clock is None or width is None:
        return {}
    assert isinstance(clock.value, int)
    assert isinstance(width.value, int)
    source = f"{FORMULA}; clock by {clock.source}; width by {width.source}"
    name = "theoretical bandwidth"
    return {name: Fact(GROUP, name, dram_bandwidth(clock.value, width.value), source, "bytes/s")}


def _measured(access: Access) -> list[Fact]:
    note = "cores read less than an NPU or GPU can"
    return [
        Fact(GROUP, f"measured bandwidth, {clipped(str(reading['reader']))}", float(reading["bytes_per_s"]),
             "measured on the board just now", "bytes/s", note)
        for reading in access.bandwidth()
    ]  # fmt: skip

"""Which clocks of a board are held where they are, whoever holds them: read from governors and limits."""

from collections.abc import Mapping

from loadkit.board.access import Access
from loadkit.board.sensors import Sensors, number


def held(access: Access, found: Sensors) -> dict[str, float | None]:
    """Sensor -> the frequency (Hz) its clock is held at; None where a governor may move it.

    Held is one whose governor is userspace (at what it was set to), performance or powersave (at its limit), or whose
    limits are one and the same.
    """
    result: dict[str, float | None] = {}
    for name, (path, unit) in found.frequency.items():
        folder, _, file = path.rpartition("/")
        prefix = "scaling_" if file.startswith("scaling_") else ""
        files = {what: f"{folder}/{prefix}{what}" for what in ("governor", "min_freq", "max_freq", "setspeed")}
        files["set_freq"] = f"{folder}/userspace/set_freq"
        texts = access.read_many(files.values())
        value = _at({what: texts[file] for what, file in files.items()})
        result[name] = None if value is None else value * unit
    return result


def targets(clocks: Mapping[str, float | None]) -> dict[str, float]:
    """Those that are held."""
    return {name: value for name, value in clocks.items() if value is not None}


def _at(texts: Mapping[str, str | None]) -> float | None:
    low, high = number(texts["min_freq"]), number(texts["max_freq"])
    if low is not None and low == high:
        return low
    governor = (texts["governor"] or "").strip()
    if governor == "userspace":
        return number(texts["set_freq"]) if texts["set_freq"] else number(texts["setspeed"])
    return {"performance": high, "powersave": low}.get(governor)

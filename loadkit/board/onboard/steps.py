"""Which files a lock writes, in which order, and what must be read back. Pure but for the `read` it is given.

A setting is {"name", "kind", "path", "value"}: kind "devfreq" (folder of a device, Hz), "cpufreq" (folder of a policy,
kHz) or "idle" (a `disable` file, value 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loadkit.board.onboard.tree import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[str], str | None]

# What the two subsystems call the same files; what comes after `userspace` is there only under that governor.
NAMES = {
    "devfreq": {
        "governor": "governor",
        "governors": "available_governors",
        "steps": "available_frequencies",
        "current": "cur_freq",
        "min": "min_freq",
        "max": "max_freq",
        "set": "userspace/set_freq",
    },
    "cpufreq": {
        "governor": "scaling_governor",
        "governors": "scaling_available_governors",
        "steps": "scaling_available_frequencies",
        "current": "scaling_cur_freq",
        "min": "scaling_min_freq",
        "max": "scaling_max_freq",
        "set": "scaling_setspeed",
    },
}
TOLERANCE = 0.01  # of the target: what a clock may read beside it


def files(setting: dict[str, Any]) -> dict[str, str]:
    """The paths of a devfreq or cpufreq setting by their common names."""
    return {key: f"{setting['path']}/{name}" for key, name in NAMES[setting["kind"]].items()}


def frequencies(read: Read, setting: dict[str, Any]) -> list[int]:
    """The steps the kernel offers, ascending; empty where it does not list any."""
    return sorted({int(word) for word in (read(files(setting)["steps"]) or "").split() if word.isdigit()})


def writes(read: Read, setting: dict[str, Any]) -> list[tuple[str, str]]:
    """(path, value) in writing order. Raises Refused for a value that the kernel does not list, with the likely one.

    Under `userspace` one frequency is set; where that governor is missing both limits are: the highest goes up first,
    so that the lowest never passes it.
    """
    if setting["kind"] == "idle":
        return [(setting["path"], "1")]
    here, value = files(setting), setting["value"]
    steps = frequencies(read, setting)
    if value not in steps:
        raise Refused(unlisted(setting["name"], value, steps))
    if "userspace" in (read(here["governors"]) or "").split():
        return [(here["governor"], "userspace"), (here["set"], str(value))]
    return [(here["max"], str(steps[-1])), (here["min"], str(value)), (here["max"], str(value))]


def unlisted(name: str, value: int, steps: list[int]) -> str:
    """Why a value is refused: the steps there are, and which was likely meant (a slipped zero, else the nearest)."""
    if not steps:
        return f"{name}: the kernel lists no frequencies, so that {value} cannot be checked; nothing is locked"
    digits = str(value).rstrip("0")
    slipped = [step for step in steps if str(step).rstrip("0") == digits]
    likely = slipped[0] if slipped else min(steps, key=lambda step: abs(step - value))
    return f"{name}: {value} is not one of {' '.join(map(str, steps))}; likely meant: {likely}"


def expected(setting: dict[str, Any], planned: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """(path, value) to be read back: what was written last to each file, and the clock that has to follow."""
    last = dict(planned)
    if setting["kind"] != "idle":
        last[files(setting)["current"]] = str(setting["value"])
    return list(last.items())


def holds(asked: str, found: str | None) -> bool:
    """Whether a file reads as asked: words exactly, frequencies within 1 %."""
    if found is None:
        return False
    if asked.isdigit() and found.isdigit() and int(asked) > 1:
        return abs(int(found) - int(asked)) <= TOLERANCE * int(asked)
    return found.strip() == asked

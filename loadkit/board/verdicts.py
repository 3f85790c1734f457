"""What samples of a board say about the numbers measured meanwhile. Pure functions of rows of kind board."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HOT_C = 85.0  # where the boards we know begin to slow down
STEADY = 0.01  # share by which a clock may differ from what it was set to
BUSY_CPU = 0.10  # share of all cores, before anything was sent
BUSY_UNIT = 0.05  # share of an NPU
SWAPPED_PAGES = 256  # in or out while a cell was measured: 1 MiB of 4 KiB pages
NOW_BITS = {0: "under-voltage", 1: "its clock capped", 2: "throttled", 3: "at its soft temperature limit"}
SINCE_BOOT = 16  # the same bits, shifted: it has happened since boot

Row = Mapping[str, Any]


def throttled(rows: Sequence[Row], before: Row | None = None) -> list[str]:
    """Why the board slowed itself down, or may have; empty when nothing says so.

    A cooling device in use says so itself; a hot zone raises the suspicion. `before` is the board at rest: the sticky
    bits it had then are old.
    """
    found = []
    for name, state in _most(rows, "cooling").items():
        if state > 0:
            found.append(f"cooling device {name} was in use (state {state:g})")
    if bits := _bits(rows, before):
        found.append(f"the board says it was {', '.join(bits)}")
    hottest = max(_most(rows, "temperature_c").items(), key=lambda zone: zone[1], default=None)
    if not found and hottest is not None and hottest[1] >= HOT_C:
        found.append(
            f"{hottest[0]} reached {hottest[1]:.0f} °C, where boards begin to slow down: throttling is suspected"
        )
    return found


def unlocked(rows: Sequence[Row], targets: Mapping[str, float]) -> list[str]:
    """Clocks that left their place by more than 1 %: their target, or without one what they first were."""
    found = []
    for name in dict.fromkeys(name for row in rows for name in _part(row, "frequency_hz")):
        trace = [float(value) for row in rows if (value := _part(row, "frequency_hz").get(name)) is not None]
        target = targets.get(name)
        wanted = trace[0] if target is None else target
        worst = max(trace, key=lambda value, wanted=wanted: abs(value - wanted))  # type: ignore[misc]
        if abs(worst - wanted) > STEADY * wanted:
            kind = "not locked and moved from" if target is None else "locked to"
            found.append(f"{name} was {kind} {_hertz(wanted)} and ran at {_hertz(worst)}")
    return found


def swapping(rows: Sequence[Row]) -> list[str]:
    """Memory that went to and from the swap meanwhile."""
    pages = [float(value) for row in rows if isinstance(value := row.get("swapped_pages"), int | float)]
    moved = pages[-1] - pages[0] if pages else 0
    return [f"{moved:.0f} pages were swapped: the model does not fit the memory"] if moved >= SWAPPED_PAGES else []


def busy(before: Row) -> list[str]:
    """What the board was busy with when nothing had been sent yet."""
    load = _part(before, "load")
    found = []
    if load.get("cpu", 0.0) > BUSY_CPU:
        found.append(f"its cores were {100 * load['cpu']:.0f} % busy before the run")
    units = [(name, share) for name, share in load.items() if name.startswith(("npu", "gpu")) and share > BUSY_UNIT]
    return found + [f"{name} was {100 * share:.0f} % busy before the run" for name, share in units]


def _most(rows: Iterable[Row], part: str) -> dict[str, float]:
    """The largest value of each sensor of one kind."""
    found: dict[str, float] = {}
    for row in rows:
        for name, value in _part(row, part).items():
            found[name] = max(value, found.get(name, value))
    return found


def _bits(rows: Sequence[Row], before: Row | None) -> list[str]:
    """Bits that are set now, and sticky ones that were not set before."""
    old = _whole((before or {}).get("throttled_bits"))
    first = (
        old
        if old is not None
        else next((bits for row in rows if (bits := _whole(row.get("throttled_bits"))) is not None), 0)
    )
    seen = 0
    for row in rows:
        seen |= _whole(row.get("throttled_bits")) or 0
    return [
        text
        for bit, text in NOW_BITS.items()
        if seen >> bit & 1 or (seen >> (bit + SINCE_BOOT) & 1 and not first >> (bit + SINCE_BOOT) & 1)
    ]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _part(row: Row, name: str) -> dict[str, float]:
    """The numbers of one kind in a row; what is no number is left out."""
    part = row.get(name)
    if not isinstance(part, Mapping):
        return {}
    return {
        str(key): float(value)
        for key, value in part.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _hertz(value: float) -> str:
    return f"{value / 1e6:.0f} MHz"

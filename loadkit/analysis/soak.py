"""What a long load does to a board: decode rate and temperature against time, and energy per token.

A chip that is warm decodes slower than one that is cold, and ten minutes are the least in which a board shows it.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from loadkit.analysis.reading import number
from loadkit.analysis.spread import median
from loadkit.analysis.strata import Stratum

LEAST_S = 600.0
BIN_S = 60.0
FIRST = 3  # minutes whose median is the rate of a cold board
SLOWER = 0.95  # of it: below this for the rest of the run the board has slowed down

Timed = Sequence[tuple[float, Mapping[str, Any]]]


def curve(stratum: Stratum, rows: Timed) -> dict[str, Any] | None:
    """Minute by minute: decode tokens/s (median of the answers that ended in it), hottest zone (°C), cooling state, W.

    `onset_min` is the first minute from which the rate stays below 95 % of the first three; None where it does not.
    None for a cell that was measured for less than ten minutes.
    """
    spans = stratum.window.spans()
    start, end = min((s for _, s, _ in spans), default=0.0), max((e for _, _, e in spans), default=0.0)
    if end - start < LEAST_S or not stratum.paces:
        return None
    rates: dict[int, list[float]] = defaultdict(list)
    for at, rate in zip(stratum.paces[::2], stratum.paces[1::2], strict=True):
        rates[int((at - start) // BIN_S)].append(rate)
    samples = _binned(rows, start, end)
    minutes = [
        {
            "minute": minute,
            "decode_tokens_per_s": median(rates[minute]) if minute in rates else None,
            "n": len(rates.get(minute, ())),
            "temperature_c": _highest(samples[minute], "temperature_c"),
            "cooling": _highest(samples[minute], "cooling"),
            "power_w": _mean(_totals(samples[minute])),
        }
        for minute in range(int((end - start) // BIN_S) + 1)
    ]
    return {"cell": stratum.name, **_onset(minutes), "minutes": minutes}


def _onset(minutes: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The cold rate, when the board left it for good, and the rate and temperature after that."""
    told = [minute for minute in minutes if minute["decode_tokens_per_s"] is not None]
    cold = median([minute["decode_tokens_per_s"] for minute in told[:FIRST]])
    slow = [bool(cold and minute["decode_tokens_per_s"] < SLOWER * cold) for minute in told]
    last_good = max((i for i, below in enumerate(slow) if not below), default=-1)
    late = told[last_good + 1 :]
    return {
        "cold_tokens_per_s": cold,
        "onset_min": late[0]["minute"] if late else None,
        "onset_c": late[0]["temperature_c"] if late else None,
        "warm_tokens_per_s": median([minute["decode_tokens_per_s"] for minute in (late or told[-FIRST:])]),
    }


def energy(stratum: Stratum, rows: Timed) -> dict[str, Any] | None:
    """Joules per output token over the measured windows, prefill and what the board takes at rest included.

    From one sensor, the one that reads most: on boards with several it is the input, and the others are parts of it.
    None where there is no sensor or no token.
    """
    joules, seconds, sensor = 0.0, 0.0, None
    for _, start, end in stratum.window.spans():
        inside = _between(rows, start - 1.0, end + 1.0)
        found = _input(inside)
        if found is None:
            continue
        sensor, watts = found
        joules += watts * (end - start)
        seconds += end - start
    if sensor is None or not stratum.tokens_out or not seconds:
        return None
    return {
        "cell": stratum.name,
        "sensor": sensor,
        "power_w": joules / seconds,
        "joules_per_output_token": joules / stratum.tokens_out,
        "joules_per_token": joules / (stratum.tokens_out + stratum.tokens_in),
    }


def _input(rows: Iterable[Mapping[str, Any]]) -> tuple[str, float] | None:
    """(sensor, mean watts) of the power sensor that reads most."""
    readings: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in _numbers(row, "power_w").items():
            readings[name].append(value)
    means = {name: sum(values) / len(values) for name, values in readings.items()}
    return max(means.items(), key=itemgetter(1), default=None)


def _binned(rows: Timed, start: float, end: float) -> dict[int, list[Mapping[str, Any]]]:
    bins: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for at, row in rows:
        if start <= at <= end:
            bins[int((at - start) // BIN_S)].append(row)
    return bins


def _between(rows: Timed, start: float, end: float) -> list[Mapping[str, Any]]:
    first, last = bisect_left(rows, start, key=itemgetter(0)), bisect_right(rows, end, key=itemgetter(0))
    return [row for _, row in rows[first:last]]


def _highest(rows: Iterable[Mapping[str, Any]], part: str) -> float | None:
    return max((value for row in rows for value in _numbers(row, part).values()), default=None)


def _totals(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    return [max(values) for row in rows if (values := list(_numbers(row, "power_w").values()))]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _numbers(row: Mapping[str, Any], part: str) -> dict[str, float]:
    values = row.get(part)
    if not isinstance(values, Mapping):
        return {}
    return {str(name): value for name in values if (value := number(values, name)) is not None}

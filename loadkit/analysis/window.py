"""When a cell was measured: the length of its measured window and the streams in flight inside it.

Read from the records alone. Times are those of the monotonic clock of the process that measured (`start_ms`), so that
a step of the wall clock moves nothing; records without it are placed by their timestamp. A window goes from the first
byte sent to the end of the last answer of the measured requests of one visit; the windows of a cell's visits are added,
so that the time between visits does not count. Processes have clocks of their own and measure a visit side by side: its
length is the longest of theirs, its streams in flight are the sum.
"""

from array import array
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from loadkit.analysis.reading import number

WALL = "wall"  # the clock of rows that have no monotonic time

# A stream that follows another one on the same caller may seem to overlap it by the resolution of the wall clock.
_TOUCH_S = 0.001

# Where the end of the stream is not known, the last of these is the end.
_ENDS = ("last_token_ms", "usage_ms", "finish_ms", "ttft_ms", "first_byte_ms", "headers_ms", "sent_ms")


class Window:
    """Start and end of every request of a cell, by visit. Add records, then ask `seconds` and `peak`."""

    def __init__(self) -> None:
        self._visits: dict[float | None, dict[str, tuple[array, array, array]]] = {}

    def add(self, record: Mapping[str, Any], measured: bool) -> None:
        """Take the times of a request of any phase; one without a readable time is left out."""
        span = interval(record)
        if span is None:
            return
        clocks = self._visits.setdefault(number(record, "visit"), {})
        starts, ends, inside = clocks.setdefault(clock_of(record, "start_ms"), (array("d"), array("d"), array("b")))
        starts.append(span[0])
        ends.append(span[1])
        inside.append(measured)

    def spans(self) -> list[tuple[str, float, float]]:
        """(clock, start, end) of the measured window of every visit and process, in seconds on that clock."""
        return [span for spans in self._spans() for span in spans]

    def seconds(self) -> float | None:
        """Total length of the measured windows in seconds; None when nothing measured has a time."""
        return sum(max(end - start for _, start, end in spans) for spans in self._spans()) or None

    def peak(self) -> int | None:
        """Most streams in flight at once inside the measured windows, warm-up and drain requests included."""
        return max((sum(_peak(*arrays) for _, arrays in visit) for visit in self._measured()), default=None)

    def mean(self) -> float | None:
        """Mean streams in flight over the measured windows, warm-up and drain requests included.

        By Little's law this is requests per second times their mean time in flight. Windows of zero length are none.
        """
        held = total = 0.0
        for visit in self._measured():
            length, streams = 0.0, 0.0
            for _, (starts, ends, inside) in visit:
                first, last = starts[inside].min(), ends[inside].max()
                if last > first:
                    own = np.clip(ends, first, last) - np.clip(starts, first, last)
                    streams += float(own.sum() / (last - first))
                    length = max(length, float(last - first))
            held, total = held + streams * length, total + length
        return held / total if total else None

    def _spans(self) -> list[list[tuple[str, float, float]]]:
        return [
            [(clock, float(s[i].min()), float(e[i].max())) for clock, (s, e, i) in visit] for visit in self._measured()
        ]

    def _measured(self) -> list[list[tuple[str, tuple[np.ndarray, np.ndarray, np.ndarray]]]]:
        """By visit: the clocks on which something was measured, with starts, ends and whether it was measured."""
        visits = [
            [(clock, (np.array(s), np.array(e), np.array(i, dtype=bool))) for clock, (s, e, i) in clocks.items()]
            for clocks in self._visits.values()
        ]
        return [found for visit in visits if (found := [row for row in visit if row[1][2].any()])]


def _peak(starts: np.ndarray, ends: np.ndarray, inside: np.ndarray) -> int:
    """Streams in flight are most right after a start: count the starts up to it less the ends before it."""
    first, last = starts[inside].min(), ends[inside].max()
    ended = np.sort(np.maximum(ends - _TOUCH_S, starts))
    begun = np.sort(starts)
    moments = begun[(begun >= first) & (begun <= last)]
    active = np.searchsorted(begun, moments, side="right") - np.searchsorted(ended, moments, side="left")
    return int(active.max())


def interval(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """(start, end) of a request, first attempt to last mark, in seconds on its clock; None where unknown."""
    sent = seconds_of(record, "start_ms")
    if sent is None:
        return None
    end = number(record, "done_ms")
    if end is None or end <= 0:  # a damaged mark before its own start ends nothing
        end = max((mark for name in _ENDS if (mark := number(record, name)) is not None and mark > 0), default=0.0)
    first, answering = number(record, "ttft_first_attempt_ms"), number(record, "ttft_ms")
    if first is not None and answering is not None:
        before = first - answering
    else:
        before = number(record, "retry_wait_ms") or 0.0
    return sent - max(before, 0.0) / 1000, sent + end / 1000


def clock_of(row: Mapping[str, Any], name: str) -> str:
    """The clock that times the row: its process's, where the row has the monotonic time under `name`, or WALL."""
    return WALL if number(row, name) is None else f"worker {row.get('worker')}"


def seconds_of(row: Mapping[str, Any], name: str) -> float | None:
    """When it was, in seconds on the clock of the row (`clock_of`); None when it cannot be read."""
    own = number(row, name)
    return wall_seconds(row) if own is None else own / 1000


def wall_seconds(row: Mapping[str, Any]) -> float | None:
    """The timestamp of a row in seconds since the epoch; UTC where it names no zone; None when it cannot be read."""
    try:
        at = datetime.fromisoformat(row["timestamp"])
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None

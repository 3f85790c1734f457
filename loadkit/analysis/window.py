"""When a cell was measured: the length of its measured window and the streams in flight inside it.

Read from the records alone: wall time at t0 as a label, durations by the clock of the request. A window goes from the
first byte sent to the end of the last answer of the measured requests of one visit; the windows of a cell's visits are
added, so that the time between visits does not count.
"""

from array import array
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from loadkit.analysis.reading import number

# A stream that follows another one on the same caller may seem to overlap it by the resolution of the wall clock.
_TOUCH_S = 0.001

_ENDS = ("done_ms", "last_token_ms", "usage_ms", "finish_ms", "ttft_ms", "first_byte_ms", "headers_ms", "sent_ms")


class Window:
    """Start and end of every request of a cell, by visit. Add records, then ask `seconds` and `peak`."""

    def __init__(self) -> None:
        self._visits: dict[Any, tuple[array, array, array]] = {}

    def add(self, record: Mapping[str, Any], measured: bool) -> None:
        """Take the times of a request of any phase; one without a readable timestamp is left out."""
        span = interval(record)
        if span is None:
            return
        starts, ends, inside = self._visits.setdefault(record.get("visit"), (array("d"), array("d"), array("b")))
        starts.append(span[0])
        ends.append(span[1])
        inside.append(measured)

    def spans(self) -> list[tuple[float, float]]:
        """(start, end) of the measured window of every visit, in seconds since the epoch."""
        return [(float(s[i].min()), float(e[i].max())) for s, e, i in self._arrays() if i.any()]

    def seconds(self) -> float | None:
        """Total length of the measured windows in seconds; None when nothing measured has a time."""
        return sum(end - start for start, end in self.spans()) or None

    def peak(self) -> int | None:
        """Most streams in flight at once inside the measured windows, warm-up and drain requests included."""
        peaks = [_peak(*arrays) for arrays in self._arrays() if arrays[2].any()]
        return max(peaks, default=None)

    def _arrays(self) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return [(np.array(s), np.array(e), np.array(i, dtype=bool)) for s, e, i in self._visits.values()]


def _peak(starts: np.ndarray, ends: np.ndarray, inside: np.ndarray) -> int:
    """Streams in flight are most right after a start: count the starts up to it less the ends before it."""
    first, last = starts[inside].min(), ends[inside].max()
    ended = np.sort(np.maximum(ends - _TOUCH_S, starts))
    begun = np.sort(starts)
    moments = begun[(begun >= first) & (begun <= last)]
    active = np.searchsorted(begun, moments, side="right") - np.searchsorted(ended, moments, side="left")
    return int(active.max())


def interval(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """(start, end) of a request, first attempt to last mark, in seconds since the epoch; None where unknown."""
    sent = wall_seconds(record)
    if sent is None:
        return None
    marks = [mark for name in _ENDS if (mark := number(record, name)) is not None]
    first, answering = number(record, "ttft_first_attempt_ms"), number(record, "ttft_ms")
    if first is not None and answering is not None:
        before = first - answering
    else:
        before = number(record, "retry_wait_ms") or 0.0
    return sent - before / 1000, sent + max(marks, default=0.0) / 1000


def wall_seconds(row: Mapping[str, Any]) -> float | None:
    """The timestamp of a row in seconds since the epoch; UTC where it names no zone; None when it cannot be read."""
    try:
        at = datetime.fromisoformat(row["timestamp"])
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (KeyError, TypeError, ValueError, OverflowError):
        return None

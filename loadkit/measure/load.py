"""What became of the load an open loop offered: how much was answered, and whether the server kept up with it.

A server that keeps up answers each request after about the same delay. One that does not builds a queue: the delay
grows by g seconds per second, and what arrived in T seconds is answered in (1 + g) T. So

    achieved = offered * (share of the arrivals that were answered) / (1 + g)

with g the slope of (end - planned time) over planned time, by least squares. A slope that is not above zero, or within
twice its standard error of it, is none. This does not depend on where a measurement is cut off: the last answers are
waited for however short the schedule was.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadkit.measure.quantile import nearest_rank

LEAST_FOR_SLOPE = 3
SURE = 2.0  # standard errors
ENDS = ("done_ms", "last_token_ms", "headers_ms", "sent_ms")  # the last of them ended the request


@dataclass(slots=True)
class Load:
    """The measured requests of one open-loop cell: add every record, then `summary`.

    Times are seconds on the clock of the process that measured; processes are kept apart and only their slopes and
    rates are put together.
    """

    answered: int = 0
    _due_s: "dict[str, array[float]]" = field(default_factory=lambda: defaultdict(lambda: array("d")))
    _delay_s: "dict[str, array[float]]" = field(default_factory=lambda: defaultdict(lambda: array("d")))
    _numbers: "dict[str, array[int]]" = field(default_factory=lambda: defaultdict(lambda: array("q")))
    _late_ms: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, record: Mapping[str, Any]) -> None:
        """A measured request has ended. One without a number or a time of sending is not part of any schedule."""
        self.answered += record.get("outcome") == "ok"
        number, start, before = (_real(record, name) for name in ("arrival", "start_ms", "scheduled_ms"))
        if number is None or start is None or before is None:
            return
        worker = str(record.get("worker"))
        ends = [mark for name in ENDS if (mark := _real(record, name)) is not None]
        self._due_s[worker].append((start + before) / 1e3)
        self._delay_s[worker].append((max(ends, default=0.0) - before) / 1e3)
        self._numbers[worker].append(int(number))
        if (late := _real(record, "queue_ms")) is not None:
            self._late_ms.append(late)

    def summary(self, counts: Mapping[str, Any] | None) -> dict[str, Any]:
        """{offered, dropped, offered_per_s, achieved_per_s, achieved_share, delay_growth, late_ms_p99}.

        `counts`: offered and dropped as the client kept them; without them numbers that are missing between the first
        and the last were dropped. Rates are None with fewer than two requests.
        """
        sent = sum(map(len, self._numbers.values()))
        last = max((max(numbers) for numbers in self._numbers.values()), default=0)
        offered, dropped = (counts["offered"], counts["dropped"]) if counts else (last, last - sent)
        growth, rate = self._growth(), self._offered_per_s()
        share = min(self.answered / offered, 1.0) / (1 + growth) if offered else None
        return {
            "offered": offered,
            "dropped": dropped,
            "offered_per_s": rate,
            "achieved_per_s": None if rate is None or share is None else rate * share,
            "achieved_share": share,
            "delay_growth": growth,
            "late_ms_p99": nearest_rank(self._late_ms, 0.99),
        }

    def _offered_per_s(self) -> float | None:
        """Arrivals per second between the first request and the last, dropped ones counted; of the widest view."""
        found = None
        widest = 0.0
        for worker, due in self._due_s.items():
            first, last = min(range(len(due)), key=due.__getitem__), max(range(len(due)), key=due.__getitem__)
            if (seconds := due[last] - due[first]) > widest:
                widest, found = seconds, (self._numbers[worker][last] - self._numbers[worker][first]) / seconds
        return found

    def _growth(self) -> float:
        """Seconds of delay per second, over all processes; 0 where it is not sure to be above."""
        xx = xy = yy = 0.0
        n = 0
        for worker, due in self._due_s.items():
            delay = self._delay_s[worker]
            x0, y0 = math.fsum(due) / len(due), math.fsum(delay) / len(delay)
            xx += math.fsum((x - x0) ** 2 for x in due)
            yy += math.fsum((y - y0) ** 2 for y in delay)
            xy += math.fsum((x - x0) * (y - y0) for x, y in zip(due, delay, strict=True))
            n += len(due)
        if n < LEAST_FOR_SLOPE or xx <= 0:
            return 0.0
        slope = xy / xx
        error = math.sqrt(max(yy - slope * xy, 0.0) / (n - 2) / xx)
        return slope if slope > SURE * error else 0.0


def _real(record: Mapping[str, Any], name: str) -> float | None:
    """The number under the name, if it is one: records of a run folder may be damaged."""
    value: Any = record.get(name)
    return value if type(value) in (int, float) and math.isfinite(value) else None

"""Whether a visit that workers measured may stand, judged by the master as soon as it has closed.

The same rules as the report's, from what the workers sent: lag and CPU inside each one's measured window, and planned
against live users in every sample of it. A visit that may not stand is repeated once.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram
from loadkit.measure.quantile import nearest_rank
from loadkit.measure.validity import Validity, cell_validity, client_health, worst

ROW_MS = 1000.0
KEPT = 20_000  # gaps a typical ITL is taken of: beyond, only every second one, then every fourth, and so on


class Gaps:
    """The typical ITL of very many gaps, from few of them: sorting all would stop the loop for seconds."""

    def __init__(self) -> None:
        self.values = array("d")  # ms
        self._stride = 1
        self._skip = 0  # of the gaps to come, those before the next one that is kept

    def add(self, gaps: Sequence[float]) -> None:
        """The gaps of one answer, ms."""
        self.values.extend(gaps[self._skip :: self._stride])
        self._skip = (self._skip - len(gaps)) % self._stride
        if len(self.values) > KEPT:
            self._skip += self._stride * (len(self.values) % 2)
            self.values, self._stride = self.values[::2], 2 * self._stride


class Judge:
    """Collects the rows of one visit after another."""

    def __init__(self) -> None:
        self._spans: dict[tuple[str, int], tuple[float, float]] = {}  # (worker, visit) -> its measured window, ms
        self._gaps: dict[int, Gaps] = defaultdict(Gaps)  # by visit
        self._samples: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def clear(self) -> None:
        """A visit opens: what came before is not its."""
        self._spans.clear()
        self._gaps.clear()
        self._samples.clear()

    def take(self, row: dict[str, Any]) -> None:
        """A record or a sample of a worker. Of records only what the verdict needs is kept: a soak has very many."""
        worker = str(row.get("worker"))
        if row["kind"] == "telemetry":
            self._samples[worker].append(row)
        elif row.get("phase") == "measure" and row.get("start_ms") is not None:
            start, end = self._spans.get((worker, row["visit"]), (row["start_ms"], _end(row)))
            self._spans[worker, row["visit"]] = min(start, row["start_ms"]), max(end, _end(row))
            self._gaps[row["visit"]].add(row["itl_ms"] or ())

    def verdict(self, visit: int) -> Validity:
        """The verdict on the visit with this index, over all workers that measured a part of it."""
        found: list[Validity] = []
        itl = nearest_rank(self._gaps[visit].values, 0.5)
        for (worker, measured), (start, end) in self._spans.items():
            if measured == visit:
                rows = [row for row in self._samples[worker] if start <= row["at_ms"] <= end + ROW_MS]
                found += [_health(rows, itl), *_users([row for row in rows if row["at_ms"] <= end])]
        return worst(*found)


def _end(row: dict[str, Any]) -> float:
    marks = [row[name] for name in ("done_ms", "last_token_ms", "sent_ms") if row.get(name) is not None]
    return row["start_ms"] + max(marks, default=0.0)


def _health(rows: list[dict[str, Any]], itl_ms: float | None) -> Validity:
    lag = Histogram(LAG_BOUNDS_S)
    for row in rows:
        lag.merge(Histogram.from_wire(LAG_BOUNDS_S, row["hub_lag"]))
    if not rows or (p99 := lag.quantile(0.99)) is None:
        return Validity()
    return client_health(p99 * 1e3, itl_ms, sum(row["cpu"] for row in rows) / len(rows))


def _users(rows: list[dict[str, Any]]) -> list[Validity]:
    return [cell_validity(row["users_planned"], [row["users_live"]], 0) for row in rows if row["cell"] is not None]

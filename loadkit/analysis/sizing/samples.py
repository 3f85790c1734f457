"""The measured requests of each cell, kept as plain arrays while the summary reads the records."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from loadkit.analysis.reading import number, numbers
from loadkit.analysis.strata import outcome_of
from loadkit.record.names import Outcome, Phase

MOST_GAPS = 20_000  # of one cell; more are thinned evenly, which moves no percentile by more than 1 / 20,000
TIMES = ("ttft_ms", "tpot_ms", "e2e_ms")

Key = tuple[int, int, float]


class CellSamples:
    """One entry for each measured request that was not stopped by us: success, times (NaN where absent), its gaps."""

    def __init__(self) -> None:
        self.ok = array("b")
        self.times = {name: array("d") for name in TIMES}
        self._gaps = array("d")
        self._owner = array("q")
        self._weight = array("d")

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a measured request."""
        ok = outcome_of(record) == Outcome.OK
        owner = len(self.ok)
        self.ok.append(ok)
        for name, values in self.times.items():
            value = number(record, name) if ok else None
            values.append(np.nan if value is None else value)
        gaps = numbers(record, "itl_ms") if ok else array("d")
        tokens = numbers(record, "event_tokens")
        several = len(tokens) == len(gaps) + 1 and max(tokens, default=1) > 1
        for place, gap in enumerate(gaps):
            parts = max(int(tokens[place + 1]), 1) if several else 1
            self._gaps.append(gap / parts)
            self._owner.append(owner)
            self._weight.append(parts)

    def gaps(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(gaps ascending in ms, the request each is of, the tokens it stands for)."""
        values, owner, weight = np.array(self._gaps), np.array(self._owner), np.array(self._weight)
        order = np.argsort(values, kind="stable")
        if len(order) > MOST_GAPS:
            order = order[np.linspace(0, len(order) - 1, MOST_GAPS).round().astype(int)]
        return values[order], owner[order], weight[order]


class Samples:
    """Give `watch` to `analysis.saved.summary_of`; then `cells` holds each cell's requests, stages left out."""

    def __init__(self) -> None:
        self.cells: dict[Key, CellSamples] = {}

    def watch(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """The rows as they pass."""
        for row in rows:
            tier, streams = number(row, "tier_tokens"), number(row, "concurrency")
            measured = row.get("phase") == Phase.MEASURE and outcome_of(row) != Outcome.ABORTED
            if measured and tier is not None and streams is not None and row.get("stage") is None:
                place = (int(tier), int(streams), number(row, "rate") or 0.0)
                self.cells.setdefault(place, CellSamples()).add(row)
            yield row

    def of(self, cell: Mapping[str, Any]) -> CellSamples | None:
        """The requests of a cell of the summary; None where there are none, as in a table."""
        return self.cells.get((cell["tier_tokens"], cell["concurrency"], cell["rate"] or 0.0))

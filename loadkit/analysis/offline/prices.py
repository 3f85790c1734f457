"""The unit price beside the two numbers that are mistaken for it: from target tokens, and from total time.

Neither is a price: a target is not what was read, and total time holds decode. They are shown as differences.
"""

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.reading import number
from loadkit.analysis.spread import median
from loadkit.analysis.strata import outcome_of
from loadkit.plan.ladder import Cell
from loadkit.record.names import Outcome, Phase

WARN_FROM = 0.05  # a difference above this share of the price is warned of
KINDS = {"target": "a target length", "total": "the total time"}


class Prices:
    """Passes records on and keeps the three quotients of those that a price can come from; then `rows()`."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int, float], dict[str, array]] = {}

    def watch(self, records: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
        """The records as they pass."""
        for record in records:
            self._add(record)
            yield record

    def _add(self, record: Mapping[str, Any]) -> None:
        tier, streams, ttft, price = (
            number(record, name) for name in ("tier_tokens", "concurrency", "ttft_ms", "unit_price_ms")
        )
        measured = record.get("phase") == Phase.MEASURE and outcome_of(record) == Outcome.OK
        if not measured or tier is None or streams is None or not ttft or not price:
            return
        place = (int(tier), int(streams), number(record, "rate") or 0.0)
        kept = self._cells.setdefault(place, {n: array("d") for n in ("price", *KINDS)})
        kept["price"].append(price)
        if target := number(record, "target_tokens"):
            kept["target"].append(ttft / target)
        if total := number(record, "e2e_ms"):
            kept["total"].append(price * total / ttft)

    def rows(self) -> list[dict[str, Any]]:
        """By cell: unit_price_ms (ms per token), and for each kind {ms_per_token, difference} or None.

        `difference` is the share by which the quotient is off the price; medians are nearest-rank.
        """
        return [_row(*key, kept) for key, kept in sorted(self._cells.items())]


def warnings(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for each kind that is more than 5 % off the price somewhere, with the cell where it is worst."""
    told = []
    for kind, words in KINDS.items():
        off = [row for row in rows if row[kind] and abs(row[kind]["difference"]) > WARN_FROM]
        if off:
            worst = max(off, key=lambda row: abs(row[kind]["difference"]))
            cells = "cell" if len(off) == 1 else "cells"
            told.append(
                f"Warning: {words} gives no unit price: {worst[kind]['ms_per_token']:.4g} instead of "
                f"{worst['unit_price_ms']:.4g} ms per token in {worst['cell']} "
                f"({100 * worst[kind]['difference']:+.1f} %); more than 5 % off in {len(off)} {cells}."
            )
    return told


def _row(tier: int, streams: int, rate: float, kept: Mapping[str, array]) -> dict[str, Any]:
    price = median(kept["price"]) or 0.0
    row: dict[str, Any] = {
        "cell": Cell(tier, streams, rate=rate or None).id,
        "tier_tokens": tier,
        "concurrency": streams,
        "unit_price_ms": price,
    }
    for kind in KINDS:
        wrong = median(kept[kind])
        row[kind] = None if wrong is None else {"ms_per_token": wrong, "difference": wrong / price - 1}
    return row

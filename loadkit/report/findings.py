"""What the analysis found beside knee and growth: the price along the ladder, the pace of decode, the reading rules."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loadkit.analysis.stability import SLOWING, SPEEDING, STEADY
from loadkit.report import numbers, words
from loadkit.report.columns import Cell, Column

Rows = list[Sequence[str]]

PRICE_HEADERS = ("tier", "real tokens", "unit price ms/token", "growth", "growth by model card", "TPOT / unit price")
STEP_HEADERS = ("from tokens", "to tokens", "exponent of TTFT", "ms per further token", "reading")


def pace(name: str, show: Callable[[Any], str] = numbers.number) -> Callable[[Cell], str]:
    """Prints one number of what a cell's answers say of their own pace."""
    return lambda cell: show(cell["stability"][name])


PACES = (
    Column("first half ms/token", pace("first_half_tpot_ms")),
    Column("second half ms/token", pace("second_half_tpot_ms")),
    Column("ratio", pace("ratio")),
    Column("slope ms/token per token", pace("slope_ms_per_token")),
    Column("n", pace("n", numbers.count)),
    Column(
        "verdict", lambda cell: cell["stability"]["verdict"] or f"none ({cell['stability']['reason']})", right=False
    ),
)


def sentences(summary: dict[str, Any], *, verdicts_only: bool = False) -> Iterable[str]:
    """Price, TPOT across tiers and what stands out of it, decode inside answers, and every reading rule that applies.

    verdicts_only leaves out what has no verdict.
    """
    for name in ("price", "tpot_across_tiers"):
        if summary[name]["verdict"] or not verdicts_only:
            yield summary[name]["sentence"]
    yield from (f"{note}." for note in summary["tpot_across_tiers"]["notes"])
    yield from _pace(summary["cells"])
    yield from summary["readings"]


def _pace(cells: list[Cell]) -> Iterable[str]:
    """Whether answers keep their pace, and which cells do not; invalid cells are left out."""
    by_verdict: dict[str | None, list[str]] = {}
    usable = [cell for cell in cells if cell["validity"]["status"] != "invalid"]
    for cell in usable:
        by_verdict.setdefault(cell["stability"]["verdict"], []).append(words.name(cell))
    if slow := by_verdict.get(SLOWING):
        yield f"Decode gets slower inside an answer in {', '.join(slow)}."
    if fast := by_verdict.get(SPEEDING):
        yield f"Decode gets faster inside an answer in {', '.join(fast)}."
    if steady := by_verdict.get(STEADY):
        yield f"Decode is steady inside an answer in {len(steady)} of {len(usable)} cells."


def prices(summary: dict[str, Any]) -> Rows:
    """One row per tier at concurrency 1: price, growth against the first tier, prefill parallelism."""
    return [
        (
            numbers.tier(tier["tier_tokens"]) + (" ?" if tier["suspect"] else ""),
            numbers.count(tier["tokens"]),
            numbers.number(tier["price_ms"]),
            numbers.number(tier["growth"]),
            numbers.number(tier["predicted_growth"]),
            numbers.number(tier["parallelism"]),
        )
        for tier in summary["price"]["tiers"]
    ]


def steps(summary: dict[str, Any]) -> Rows:
    """One row between neighbouring tiers: local exponent, local slope, and how they are read."""
    return [
        (
            numbers.count(step["from_tokens"]),
            numbers.count(step["to_tokens"]),
            numbers.number(step["exponent"]),
            numbers.number(step["slope_ms_per_token"]),
            step["reading"],
        )
        for step in summary["price"]["local"]
    ]

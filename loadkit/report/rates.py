"""The cells of an open loop for people: offered and achieved load, what was dropped, the highest rate that holds."""

from collections.abc import Iterable, Sequence
from typing import Any

from loadkit.report import numbers, words

HEADERS = (
    "cell",
    "offered /s",
    "achieved /s",
    "achieved",
    "dropped",
    "delay grows s/s",
    "client late ms p99",
    "TTFT from schedule ms p50",
    "p95",
    "sustained",
)
SAYS = {True: "yes", False: "no", None: "invalid"}


def sentences(summary: dict[str, Any]) -> Iterable[str]:
    """One sentence per tier, none for a closed loop."""
    return [tier["sentence"] for tier in summary["rate_search"] or ()]


def rows(summary: dict[str, Any]) -> list[Sequence[str]]:
    """One row per open-loop cell, under HEADERS; none for a closed loop."""
    held = {each["cell"]: each["sustained"] for tier in summary["rate_search"] or () for each in tier["rates"]}
    return [_row(cell, SAYS[held[cell["cell"]]]) for cell in summary["cells"] if cell["cell"] in held]


def _row(cell: dict[str, Any], sustained: str) -> tuple[str, ...]:
    load, from_schedule = cell["arrivals"], cell["ttft_sched_ms"] or {}
    return (
        words.name(cell),
        numbers.number(load["offered_per_s"]),
        numbers.number(load["achieved_per_s"]),
        numbers.percent(load["achieved_share"]),
        f"{numbers.count(load['dropped'])} of {numbers.count(load['offered'])}",
        numbers.number(load["delay_growth"]),
        numbers.number(load["late_ms_p99"]),
        numbers.number(from_schedule.get("p50")),
        numbers.number(from_schedule.get("p95")),
        sustained,
    )

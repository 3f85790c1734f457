"""Two runs side by side on a terminal."""

import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from loadkit.analysis.comparable import Change
from loadkit.analysis.diff import METRICS
from loadkit.report import numbers, terminal, words
from loadkit.report.columns import Column, Group

TITLES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "e2e_ms": "E2E"}
REASONS = {
    "invalid": "invalid cell",
    "no_answer": "no answer",
    "too_few_rounds": "too few rounds",
    "prompt_lengths_differ": "prompts of\nother length",
    "output_lengths_differ": "answers of\nother length",
}


def show(
    found: Mapping[str, Any],
    change: Change | None,
    *,
    stream: IO[str] | None = None,
    width: int | None = None,
) -> None:
    """Print what differs, one table per metric and what the tables leave out; width in columns."""
    stream = stream or sys.stdout
    width = width or Console(file=stream).width
    console = _console(stream)
    terminal.say(console, heading(change), width)
    rows = found["cells"]
    for name in METRICS if rows else ():
        for title, columns in terminal.fit(_groups(name), rows, width):
            console.print(Text(title, style="bold"))
            console.print(terminal.table(columns, rows))
            console.print()
    for line in lines(found):
        terminal.say(console, line, width)


def heading(change: Change | None) -> str:
    """What run B has that run A has not."""
    if change is None:
        return "The manifests of the runs differ in nothing: a repeat. Times in ms, B against A."
    return f"The runs differ in one thing, {change}. Times in ms, B against A."


def lines(found: Mapping[str, Any]) -> list[str]:
    """The sentences after the tables."""
    told = [f"{words.name(row)} is {', '.join(row['validity']['reasons'])}." for row in found["cells"] if _doubt(row)]
    told += [
        f"Only in {run}: {', '.join(found[key])}." for run, key in (("A", "only_a"), ("B", "only_b")) if found[key]
    ]
    told += [f"{n} damaged lines of run {run.upper()} are left out." for run, n in found["damaged_lines"].items() if n]
    verdicts = sum(row["metrics"][name]["verdict"] is not None for row in found["cells"] for name in METRICS)
    if verdicts:
        told.append(
            "Medians with 90 % intervals; the ratio with its 95 % interval from a bootstrap over rounds. "
            f"Of {verdicts} comparisons up to {max(1, round(verdicts / 20))} may show a difference by chance."
        )
    return told


def _console(stream: IO[str]) -> Console:
    return Console(file=stream, width=10_000, highlight=False, markup=False, emoji=False, soft_wrap=True)


def _doubt(row: Mapping[str, Any]) -> bool:
    return bool(row["validity"]["reasons"])


def _groups(metric: str) -> tuple[Group, Group]:
    """What is judged, and the intervals of both medians, which go below where they do not fit beside."""

    def of(text: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], str]:
        return lambda row: text(row["metrics"][metric])

    judged = (
        Column("A\np50", of(lambda m: numbers.number(m["a"]["p50"]))),
        Column("B\np50", of(lambda m: numbers.number(m["b"]["p50"]))),
        Column("\nB / A", of(lambda m: numbers.number(m["ratio"]))),
        Column("B / A\n95 %", of(lambda m: _span(m["ci"]))),
        Column("\nverdict", of(_verdict), right=False),
    )
    intervals = (
        Column("A p50\n90 %", of(lambda m: _span(m["a"]["ci"]))),
        Column("B p50\n90 %", of(lambda m: _span(m["b"]["ci"]))),
    )
    return Group(TITLES[metric], judged), Group("Intervals of the medians", intervals)


def _span(ci: list[float] | None) -> str:
    return numbers.ABSENT if ci is None else f"{numbers.number(ci[0])}..{numbers.number(ci[1])}"


def _verdict(metric: Mapping[str, Any]) -> str:
    if metric["verdict"] is None:
        return f"- {REASONS[metric['reason']]}"
    return str(metric["verdict"]).replace("no difference shown", "no difference\nshown")

"""What `loadkit capacity` prints: the answer, the measured loads, the mix, the figures, what to argue with."""

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from loadkit.report.escape import plain
from loadkit.report.grid import grid, unbounded, width_of
from loadkit.report.numbers import ABSENT
from loadkit.report.sizing import rows
from loadkit.report.terminal import encodable, say

Answer = Mapping[str, Any]


def show(answer: Answer, *, explain: bool = False, stream: IO[str] = sys.stdout, width: int | None = None) -> None:
    """Print the answer; with `explain` every number with its formula and inputs after it."""
    width, console = width or Console(file=stream).width, unbounded(stream)
    say(console, answer["sentence"], width)
    console.print()
    for name, value in answer["inputs"]:
        say(console, f"{name}: {value}", width)
    for title, table, lead in _tables(answer):
        if table[1]:
            _table(console, title, table, lead, width)
    _totals(console, answer, width)
    for title, lines in sections(answer):
        if lines:
            console.print()
            console.print(Text(title, style="bold"))
            for line in lines:
                say(console, f"- {line}", width)
    if explain:
        _explain(console, answer, width)


def _tables(answer: Answer) -> Iterable[tuple[str, rows.Table, int]]:
    """(title, table, columns that lead each part of it)."""
    yield "Measured loads (* goodput, ? suspect)", rows.points(answer), 2
    yield "Goodput of a replica", rows.tiers(answer), 1
    yield "Price and prefill time", rows.prices(answer), 1
    yield "If something else were true", rows.variants(answer["sensitivity"]), 1
    yield "What if", rows.variants(answer["what_if"]), 1


def _table(console: Console, title: str, table: rows.Table, lead: int, width: int) -> None:
    """One table, or several where it is too wide, each with the leading columns."""
    headers = ["\n".join(textwrap.wrap(header, 12)) or "" for header in table[0]]
    texts = [tuple(_safe(text, console.file) for text in row) for row in table[1]]
    first, left = list(range(lead)), list(range(lead, len(headers)))
    while left:
        taken = len(left)
        while taken > 1 and width_of(_part(headers, texts, first + left[:taken])) > width:
            taken -= 1
        console.print()
        console.print(Text(title, style="bold"))
        console.print(_part(headers, texts, first + left[:taken]))
        title, left = f"{title.removesuffix(' (continued)')} (continued)", left[taken:]


def _part(headers: Sequence[str], texts: Sequence[tuple[str, ...]], columns: Sequence[int]) -> RichTable:
    return grid([headers[i] for i in columns], [tuple(row[i] for i in columns) for row in texts])


def _totals(console: Console, answer: Answer, width: int) -> None:
    """The figures of the whole load, a line each."""
    _, found = rows.totals(answer)
    if found:
        console.print()
        console.print(Text("Further figures", style="bold"))
    for label, value, interval in found:
        say(console, f"{label}: {value}" + ("" if interval == ABSENT else f", 90 % interval {interval}"), width)


def sections(answer: Answer) -> Iterable[tuple[str, list[str]]]:
    """The sentences after the tables."""
    yield "What binds", [f"{tier['name']}: {tier['binds']}. {tier['why']}." for tier in answer["tiers"]]
    yield "What one more measurement would buy", [item["text"] for item in answer["next"]]
    changed = [*answer["sensitivity"], *answer["what_if"]]
    yield "Of what was changed", [f"{row['change']}: {row['note']}." for row in changed if row["note"]]
    yield "Notes", list(answer["notes"])
    yield "Assumptions", list(answer["assumptions"])


def _explain(console: Console, answer: Answer, width: int) -> None:
    console.print()
    console.print(Text("Every number explained", style="bold"))
    for item in rows.explained(answer):
        say(console, item.head, width)
        say(console, f"  = {item.formula}", width)
        if item.inputs:
            say(console, f"  with {item.inputs}", width)
    for name, text in rows.COLUMNS:
        say(console, f"column {name}: {text}", width)


def _safe(text: str, stream: IO[str]) -> str:
    return encodable(plain(text), stream)

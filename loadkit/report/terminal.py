"""The report on a terminal: tables that fit its width, readable without colour, no number cut.

The columns come in groups. A wide terminal gets neighbouring groups joined into one table, a narrow one gets a group
split into several; tier and concurrency lead every table.
"""

import sys
import textwrap
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadkit.report import bends, board_table, findings, rates, words
from loadkit.report.columns import KEYS, Column, Group, groups_of
from loadkit.report.escape import plain
from loadkit.report.grid import empty, grid, unbounded, width_of


def show(summary: dict[str, Any], *, stream: IO[str] = sys.stdout, width: int | None = None) -> None:
    """Print tables, validity, notes, totals, growth and knees to the stream; width in columns, by default its own."""
    width = width or Console(file=stream).width
    console = unbounded(stream)
    if not summary["cells"]:
        say(console, "No request of any cell was recorded.", width)
    for title, columns in fit(groups_of(summary["cells"]), summary["cells"], width) if summary["cells"] else []:
        console.print(Text(title, style="bold"))
        console.print(table(columns, summary["cells"]))
        console.print()
    if of_board := board_table.rows(summary):
        console.print(Text("Board", style="bold"))
        console.print(grid(board_table.HEADERS, of_board))
        console.print()
    for line in lines(summary):
        say(console, line, width)


def lines(summary: dict[str, Any]) -> Iterable[str]:
    """The sentences after the tables, in order."""
    doubts = words.validity(summary)
    if doubts:
        yield "Cells marked ! are invalid and kept out of every fit; cells marked ? are suspect."
    yield from doubts
    yield from words.course(summary)
    yield from words.objectives(summary)
    yield from words.notes(summary)
    yield from words.errors(summary)
    yield from board_table.sentences(summary)
    yield from findings.sentences(summary, verdicts_only=True)
    yield words.totals(summary)
    if summary["rate_search"]:
        yield from rates.sentences(summary)
        return
    yield summary["growth"]["sentence"]
    yield from bends.sentences(summary["knee"])


def say(console: Console, text: str, width: int) -> None:
    """Print one sentence, wrapped to the width, in characters the stream can write."""
    for line in textwrap.wrap(
        encodable(plain(text, limit=1200), console.file), max(width, 20), break_long_words=False, break_on_hyphens=False
    ):
        console.print(Text(line))


def encodable(text: str, stream: IO[str]) -> str:
    """The text with '?' for every character the stream cannot write."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def table(columns: Iterable[Column], cells: list[dict[str, Any]]) -> Table:
    """Tier, concurrency and the columns, one row a cell; the rows of invalid cells are struck out."""
    shown = [*KEYS, *columns]
    grid = empty((column.header, column.right) for column in shown)
    for cell in cells:
        style = "strike" if cell["validity"]["status"] == "invalid" else None
        grid.add_row(*(Text(column.text(cell)) for column in shown), style=style)
    return grid


def fit(groups: Iterable[Group], cells: list[dict[str, Any]], width: int) -> list[tuple[str, tuple[Column, ...]]]:
    """The groups as (title, columns) of tables no wider than width: joined where they fit, split where they must be."""
    found: list[tuple[str, tuple[Column, ...]]] = []
    for group in groups:
        if found and _width((*found[-1][1], *group.columns), cells) <= width:
            title, columns = found.pop()
            found.append((f"{title}, {group.title.lower()}", (*columns, *group.columns)))
        else:
            found += _split(group, cells, width)
    return found


def _split(group: Group, cells: list[dict[str, Any]], width: int) -> list[tuple[str, tuple[Column, ...]]]:
    """One group as one table, or as several where it is too wide; a table has at least one column."""
    tables: list[tuple[Column, ...]] = [()]
    for column in group.columns:
        if tables[-1] and _width((*tables[-1], column), cells) > width:
            tables.append(())
        tables[-1] = (*tables[-1], column)
    return [(group.title + (" (continued)" if i else ""), columns) for i, columns in enumerate(tables)]


def _width(columns: Iterable[Column], cells: list[dict[str, Any]]) -> int:
    return width_of(table(columns, cells))

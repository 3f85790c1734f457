"""What `loadkit knee` prints: the knees, the map and the frontier as tables, then the sentences."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from loadkit.report import bends, numbers, words
from loadkit.report.escape import plain
from loadkit.report.grid import grid, unbounded, width_of
from loadkit.report.terminal import encodable, say

LEFT = 3  # columns of the table of knees that are words
FRONTIER = ("tier", "holds up to", "first missed at", "objective")


def show(
    summary: Mapping[str, Any],
    *,
    axis: str | None = None,
    stream: IO[str] = sys.stdout,
    width: int | None = None,
) -> None:
    """Print the knees of a run, of one axis (length or concurrency) or of both with the map; width as in `terminal`."""
    width, console = width or Console(file=stream).width, unbounded(stream)
    knee = summary["knee"]
    if found := bends.rows(knee, axis):
        _knees(console, bends.HEADERS, found, width)
    if axis != "length":
        _map(console, summary, width)
    for sentence in (*_sentences(knee, axis), *words.foreign(summary)):
        say(console, sentence, width)


def show_curves(curves: Sequence[Mapping[str, Any]], *, stream: IO[str] = sys.stdout) -> None:
    """Print the knees of a foreign table: each with `axis`, `metric`, `columns` and `sentence`."""
    width, console = Console(file=stream).width, unbounded(stream)
    found = [bends.row("+".join(each["columns"])[:24], each["metric"], each, each["axis"]) for each in curves]
    _knees(console, ("columns", *bends.HEADERS[1:]), found, width)
    for each in curves:
        say(console, each["sentence"], width)


def _sentences(knee: Mapping[str, Any], axis: str | None) -> list[str]:
    if axis == "length":
        return [knee["length"]["sentence"] if knee["length"] else "No cell at concurrency 1 was measured."]
    if axis == "concurrency":
        told = [row["sentence"] for row in knee["concurrency"]]
        return [*(told or ["No tier was measured at four concurrencies."]), *bends.frontier(knee["map"])]
    return bends.sentences(knee)


def _map(console: Console, summary: Mapping[str, Any], width: int) -> None:
    """The map in as many tables as its concurrencies need, then the frontier."""
    headers, rows = bends.ladder_map(summary)
    if len(headers) < 3:
        return
    first = 1
    while first < len(headers):
        last = len(headers)
        while last > first + 1 and _wide(headers, rows, first, last) > width:
            last -= 1
        part = [[row[0], *row[first:last]] for row in rows]
        title = bends.LEGEND if first == 1 else f"{bends.LEGEND} (continued)"
        _table(console, title, [headers[0], *headers[first:last]], part, width)
        first = last
    say(console, f"{bends.MARKED}.", width)
    console.print()
    found = [_edge(row) for row in summary["knee"]["map"]["frontier"]]
    if found:
        _table(console, "Objectives", FRONTIER, found, width)


def _wide(headers: Sequence[str], rows: Sequence[Sequence[str]], first: int, last: int) -> int:
    return width_of(grid([headers[0], *headers[first:last]], [[row[0], *row[first:last]] for row in rows]))


def _edge(row: Mapping[str, Any]) -> list[str]:
    held, broken = row["max_concurrency_ok"], row["first_broken"]
    tier = numbers.tier(row["tier_tokens"])
    return [tier, bends.streams(held) if held else "-", f"{broken or '-'}", row["objective"] or "-"]


def _knees(console: Console, headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> None:
    """The table of knees; where it is too wide its last columns are left to the sentences, which hold every number."""
    count = len(headers)
    while count > LEFT and width_of(grid(headers[:count], [row[:count] for row in rows])) > width:
        count -= 1
    _table(console, "Knees", headers[:count], [row[:count] for row in rows], width, LEFT)


def _table(
    console: Console, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, left: int = 1
) -> None:
    clean = [[encodable(plain(text), console.file) for text in row] for row in rows]
    for line in textwrap.wrap(title, max(width, 20)):
        console.print(Text(line, style="bold"))
    console.print(grid(headers, clean, left))
    console.print()

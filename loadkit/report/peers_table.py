"""What eight tools would print of a run, on a terminal: one table a cell, then the cause of each difference."""

import sys
from collections.abc import Mapping
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from loadkit.analysis.peers.compare import METRICS
from loadkit.report import numbers, terminal, words

HEADERS = {"ttft_ms": "TTFT ms", "itl_ms": "ITL ms", "tpot_ms": "TPOT ms", "output_tokens_per_s": "output tokens/s"}


def show(found: Mapping[str, Any], *, stream: IO[str] | None = None, width: int | None = None) -> None:
    """Print every cell; width in columns, by default the stream's own."""
    stream = stream or sys.stdout
    width = width or Console(file=stream).width
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    for cell in found["cells"]:
        doubt = "" if cell["validity"]["status"] == "valid" else f", {cell['validity']['status']}"
        console.print(Text(f"{words.name(cell)}: p50 of {cell['n']} answers{doubt}", style="bold"))
        console.print(_table(cell))
        for line in causes(cell):
            terminal.say(console, line, width)
        console.print()
    if not found["cells"]:
        terminal.say(console, "No request of any cell was recorded.", width)
    for line in beyond(found):
        terminal.say(console, line, width)
    if found["damaged_lines"]:
        terminal.say(console, f"{found['damaged_lines']} damaged lines of the run are left out.", width)


def causes(cell: Mapping[str, Any]) -> list[str]:
    """One line for each number that is not loadkit's: tool, metric, cause. Tools that share a cause share the line."""
    told: dict[tuple[str, str], list[str]] = {}
    for tool in cell["tools"]:
        for name in METRICS:
            if cause := tool[name]["cause"]:
                told.setdefault((name, cause), []).append(tool["name"])
    return [f"{_short(name)} of {', '.join(tools)}: {cause}." for (name, cause), tools in _ordered(told)]


def _short(name: str) -> str:
    return HEADERS[name].removesuffix(" ms")


def _ordered(told: Mapping[tuple[str, str], list[str]]) -> list[tuple[tuple[str, str], list[str]]]:
    return sorted(told.items(), key=lambda item: METRICS.index(item[0][0]))


def beyond(found: Mapping[str, Any]) -> list[str]:
    """What no mark can show, one line a tool."""
    tools = found["cells"][0]["tools"] if found["cells"] else []
    told = [f"{tool['name']}: {tool['beyond_marks']}." for tool in tools if tool["beyond_marks"]]
    return ["Beyond the marks of this run:", *told] if told else []


def _table(cell: Mapping[str, Any]) -> Table:
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("as printed by", no_wrap=True)
    for name in METRICS:
        grid.add_column(HEADERS[name], justify="right", no_wrap=True)
    for tool in cell["tools"]:
        grid.add_row(tool["name"], *(numbers.number(tool[name]["p50"]) for name in METRICS))
    return grid

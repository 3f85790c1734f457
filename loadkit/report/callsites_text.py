"""What `loadkit callsites` prints: a row per template, the most frequent first, and what the whole log begins with."""

import sys
from collections.abc import Sequence
from typing import IO

from rich.console import Console

from loadkit.capacity.callsites import Site
from loadkit.report.escape import plain
from loadkit.report.grid import grid, unbounded
from loadkit.report.numbers import duration, number, percent
from loadkit.report.terminal import encodable, say

HEADERS = ("template", "name", "calls", "tokens", "prefix", "share", "TTFT", "saved by cache")


def show(found: Sequence[Site], whole: Site, *, left: int, unread: int, stream: IO[str] | None = None) -> None:
    """Print templates; `left` more were left out and `unread` lines of the log held no prompt."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    console.print(grid(HEADERS, [_row(each, stream) for each in found], left=2))
    console.print()
    top = found[0]
    wait = "" if top.ttft_s is None else f" and {_seconds(top.ttft_s)} until its first token"
    say(console, f"Most frequent: {top.template} with {number(top.tokens)} prompt tokens{wait}.", width)
    say(console, _prefix(whole), width)
    if any(each.source == "estimate" for each in found):
        say(console, "Tokens are an estimate by words where the log states none; --tokenizer counts them.", width)
    if left:
        say(console, f"{left} more templates; --top shows them.", width)
    if unread:
        say(console, f"{unread} lines hold no prompt and were left out.", width)


def _row(site: Site, stream: IO[str]) -> list[str]:
    return [
        site.template,
        encodable(plain(site.name or "-", 40), stream),
        str(site.calls),
        number(site.tokens),
        number(site.prefix_tokens),
        percent(site.prefix_share),
        _seconds(site.ttft_s),
        _seconds(site.saved_s),
    ]


def _prefix(whole: Site) -> str:
    if not whole.cacheable:
        return "The calls begin with nothing in common that a server could cache."
    saved = "" if whole.saved_s is None else f", {_seconds(whole.saved_s)} of each wait once it is cached"
    shared = f"the same {number(whole.prefix_tokens)} tokens, {percent(whole.prefix_share)} of the log"
    return f"All calls begin with {shared}{saved}."


def _seconds(value: float | None) -> str:
    return duration(None if value is None else 1000 * value)

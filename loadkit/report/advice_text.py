"""What `loadkit advise` prints: the calculation, then the conclusion, then the four layers and what is open."""

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from loadkit.capacity.advise.advice import Advice
from loadkit.capacity.advise.candidates import Candidate
from loadkit.capacity.advise.techniques import Choice, techniques
from loadkit.report.escape import plain
from loadkit.report.grid import grid, unbounded, width_of
from loadkit.report.numbers import number
from loadkit.report.terminal import encodable, say

FORMULAS = (
    "cache = KV bytes per token x context x sequences; need = weights + cache + 1 GB; budget = 0.9 x memory",
    "bound = bandwidth / (weights read for a token + cache), tokens/s of one stream; engines reach about 0.85 of it",
    "a context is cut where it does not fit, or is at least twice the need while the cache takes 20% of the memory",
    "dense layers go to the CPU while at most 30% of the weights lack; a shared prefix decides from half a prompt on",
    "input decides from 80% of a request's time before its first token; weights are touched last, and not below 4 bit",
)


def show(
    advice: Advice,
    sources: Mapping[str, tuple[Any, str]],
    history: Sequence[Mapping[str, Any]],
    *,
    explain: bool = False,
    stream: IO[str] | None = None,
) -> None:
    """Print one piece of advice; `sources` (value and who says it, by field) and formulas with `explain`."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    if advice.calculation:
        console.print(Text("Calculation", style="bold"))
        console.print(Text("\n".join(advice.calculation)))  # our own lines, in columns
    if advice.rejected:
        say(console, f"Not this: {advice.rejected}.", width)
    place = advice.layer if advice.route == "-" else f"{advice.layer}; {advice.route}"
    again = "; free, and taken back by a restart" if advice.reversible else ""
    _lines(console, f"Conclusion ({place}{again})", ())
    say(console, f"{advice.title[:1].upper()}{advice.title[1:]}. {advice.why}", width)
    if advice.launch:
        console.print(Text(f"    {encodable(plain(advice.launch, 1200), console.file)}"))
    for note in advice.notes:
        say(console, f"Note: {note}.", width)
    if advice.stop:
        _lines(console, "Before weights are touched", [f"{each['ask']} {each['known']}" for each in advice.stop])
    if advice.numbers:
        _lines(
            console,
            "Layers, in order",
            [f"{i}. {each['layer']}: {each['conclusion']}" for i, each in enumerate(advice.layers, 1)],
        )
        _lines(console, "Two budgets", _budgets(advice.budgets))
    if advice.questions and advice.numbers:
        _lines(console, "These answers could change it", [f"{each['ask']}" for each in advice.questions])
    if history:
        _history(console, history)
    if explain:
        _lines(console, "Inputs", [f"{name} = {value} ({who})" for name, (value, who) in sources.items()])
        _lines(console, "Rules", FORMULAS)


def show_stop(
    stop: Sequence[Mapping[str, str]], misread: Sequence[Mapping[str, str]], stream: IO[str] | None = None
) -> None:
    """Print the questions before weights are touched, and the sentences that are misread."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    for each in stop:
        say(console, f"{each['ask']} {each['known']}", width)
    show_misreadings(misread, stream)


def show_misreadings(misread: Sequence[Mapping[str, str]], stream: IO[str] | None = None) -> None:
    """Print three sentences people say, and what is true."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    for each in misread:
        say(console, f'"{each["says"]}": {each["is"]}', width)


def show_techniques(choice: Choice | None, stream: IO[str] | None = None) -> None:
    """Print the table of techniques, and what a prefill share picks from it."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    headers = ("technique", "changes", "helps", "what it lowers")
    rows = [[each.name, each.changes, each.helps, ""] for each in techniques()]
    room = max(width - width_of(grid((*headers[:3], ""), rows, left=4)), len(headers[3]))
    costs = ["\n".join(textwrap.wrap(each.cost, room)) for each in techniques()]
    console.print(grid(headers, [[*row[:3], cost] for row, cost in zip(rows, costs, strict=True)], left=4))
    if choice:
        console.print()
        say(console, f"{choice.kind}: {choice.sentence}", width)
        say(console, f"In order: {'; '.join(choice.picks)}.", width)


def show_candidates(ranked: Sequence[Candidate], stream: IO[str] | None = None) -> None:
    """Print candidates in the order in which to try them; sizes in GB, lengths in tokens."""
    stream = stream or sys.stdout
    console, width = unbounded(stream), Console(file=stream).width
    names = [encodable(plain(each.name, 60), stream) for each in ranked]
    rows = [
        [
            "\n".join(textwrap.wrap(name, 24)), f"{each.params / 1e9:.1f}B", f"{each.bits:g}",
            f"{each.weights_gb:.1f}", f"{each.kv_gb:.1f}", f"{each.need_gb:.1f}", str(each.longest),
            number(each.tokens_per_s),
        ]
        for name, each in zip(names, ranked, strict=True)
    ]  # fmt: skip
    headers = ("model", "params", "bits", "weights\nGB", "cache\nGB", "need\nGB", "longest", "tokens/s")
    console.print(grid(headers, rows))
    for name, each in zip(names, ranked, strict=True):
        say(console, f"{name}: {each.reason}", width)


def _budgets(found: Mapping[str, float | None]) -> list[str]:
    total, active = found["largest_total"] or 0.0, found["largest_active"]
    lines = [f"largest total: {total / 1e9:.1f}B parameters at {found['bits']:g} bits fit beside the cache"]
    if active is not None:
        lines.append(f"largest active: {active / 1e9:.1f}B parameters are read fast enough for the target")
    return lines


def _history(console: Console, history: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [
            str(each["number"]), plain(str(each["changed"] or "-"), 20), number(each["before_tps"]),
            number(each["after_tps"]), plain(str(each["conclusion"]), 80), plain(str(each["launch"] or "-"), 200),
        ]
        for each in history
    ]  # fmt: skip
    console.print()
    console.print(grid(("step", "changed", "before", "after", "conclusion", "started with"), rows, left=2))


def _lines(console: Console, title: str, lines: Sequence[str]) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    for line in lines:
        console.print(Text(encodable(plain(line, 600), console.file)))

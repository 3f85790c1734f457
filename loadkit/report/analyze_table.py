"""What `loadkit analyze` found, on a terminal: for each model and machine the report, the price, and why."""

import sys
from collections.abc import Callable, Mapping
from typing import IO, Any

from rich.console import Console
from rich.text import Text

from loadkit.analysis.offline.prices import KINDS
from loadkit.analysis.offline.trace import sentence
from loadkit.report import numbers, terminal, words
from loadkit.report.columns import Column, Group, stat, value
from loadkit.report.escape import plain

_TRACE_CHARS = 400


def show(found: Mapping[str, Any], *, stream: IO[str] | None = None, width: int | None = None) -> None:
    """Print every group of the file and what is noted of it; width in columns, by default the stream's own."""
    stream = stream or sys.stdout
    width = width or Console(file=stream).width
    console = Console(file=stream, width=10_000, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for number, group in enumerate(found["groups"]):
        if number:
            console.print()
        console.print(Text(terminal.encodable(plain(title(group["group"])), stream), style="bold"))
        summary = group["summary"]
        if found["kind"] == "ours":
            terminal.show(summary, stream=stream, width=width)
            console.print()
        rows = _rows(group)
        for name, columns in terminal.fit((_prices(),), rows, width):
            console.print(Text(name, style="bold"))
            console.print(terminal.table(columns, rows))
            console.print()
        for line in [*group["warnings"], *(told(summary) if found["kind"] == "mapped" else ())]:
            terminal.say(console, line, width)
        _explain(console, group, stream)
    console.print()
    for line in [*map(_ratio, found["ratios"]), *found["notes"]]:
        terminal.say(console, line, width)


def told(summary: Mapping[str, Any]) -> list[str]:
    """What is read out of another tool's numbers; of its load generator's health nothing is known."""
    price = summary["price"]
    sentences = [*words.errors(dict(summary)), price["sentence"]]
    if price["verdict"] is None and price["r2_linear"] is not None:
        sentences.append(
            f"So far: TTFT grows to the power {price['slope']:.3f} over {len(price['tiers'])} tiers (R2 of a straight "
            f"line {price['r2_linear']:.4f}), the price by {100 * price['drift']:+.1f} % from the first to the last."
        )
    tpot = summary["tpot_across_tiers"]
    sentences += [tpot["sentence"], *(f"{note}." for note in tpot["notes"])]
    sentences += [summary["knee"]["sentence"], *summary["readings"]]
    return [sentence for sentence in sentences if sentence]


def title(group: Mapping[str, Any]) -> str:
    """The group in words: 'model m, hardware h'."""
    return ", ".join(f"{name} {text}" for name, text in group.items() if text is not None) or "no model is named"


def _ratio(row: Mapping[str, Any]) -> str:
    return f"At {row['tokens']} real tokens a token of {row['b']} costs {row['ratio']:.2f} times that of {row['a']}."


def _explain(console: Console, group: Mapping[str, Any], stream: IO[str]) -> None:
    """One line a number, not wrapped: a line may be searched for. Statistics that are one request's share a line."""
    joined: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in group["trace"] or ():
        one = row["request"] is not None
        same = joined.setdefault((row["cell"], row["number"], row["request"] if one else row["statistic"]), {**row})
        if same["statistic"] != row["statistic"]:
            same |= {"statistic": f"{same['statistic']} {row['statistic']}"}
    for row in joined.values():
        console.print(Text(terminal.encodable(plain(sentence(row), _TRACE_CHARS), stream)))


def _rows(group: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells with their prices beside."""
    prices = {row["cell"]: row for row in group["prices"]}
    return [{**cell, "quotients": prices.get(cell["cell"])} for cell in group["summary"]["cells"]]


def _prices() -> Group:
    return Group(
        "Unit price = TTFT / (prompt - BOS - cached), and what else is off by",
        (
            Column("\nn", value("ok", numbers.count)),
            Column("real\ntokens", value("prefilled_tokens", numbers.count)),
            Column("TTFT ms\np50", stat("ttft_ms", "p50")),
            Column("unit price\nms/token", value("unit_price_ms", _price)),
            *(Column(f"by {kind}\noff by", _off(kind)) for kind in KINDS),
            Column("TPOT ms\np50", stat("tpot_ms", "p50")),
        ),
    )


def _price(ms: float | None) -> str:
    """Four digits: prices of two runs are compared to a tenth of a ms."""
    return numbers.ABSENT if ms is None else f"{ms:.4g}"


def _off(kind: str) -> Callable[[dict[str, Any]], str]:
    def text(row: dict[str, Any]) -> str:
        quotient = (row["quotients"] or {}).get(kind)
        return numbers.ABSENT if quotient is None else f"{100 * quotient['difference']:+.1f}%"

    return text

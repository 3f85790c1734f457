"""The columns of every table of cells: header, where the value comes from in the summary, how it is printed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadkit.record.names import Outcome
from loadkit.report import numbers

Cell = dict[str, Any]
MARKS = {"valid": "", "suspect": " ?", "invalid": " !"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `header` may have two lines, `text` gives the printed value of a cell of the summary."""

    header: str
    text: Callable[[Cell], str]
    right: bool = True


@dataclass(frozen=True, slots=True)
class Group:
    """Columns that are read together, under one title."""

    title: str
    columns: tuple[Column, ...]


def stat(distribution: str, name: str, show: Callable[[Any], str] = numbers.number) -> Callable[[Cell], str]:
    """Prints one statistic of a distribution such as ttft_ms."""
    return lambda cell: show((cell[distribution] or {}).get(name))


def value(name: str, show: Callable[[Any], str] = numbers.number) -> Callable[[Cell], str]:
    """Prints one plain value of the cell."""
    return lambda cell: show(cell[name])


def errors(cell: Cell) -> str:
    """Every outcome but ok with its count, one a line, and the requests that were retried; '-' when there is none."""
    lines = [f"{name} {n}" for name, n in cell["outcomes"].items() if name != Outcome.OK]
    if cell["retried"]:
        lines.append(f"retried {cell['retried']}")
    return "\n".join(lines) or numbers.ABSENT


def tier(cell: Cell) -> str:
    """The tier, marked when the cell is not valid."""
    return numbers.tier(cell["tier_tokens"]) + MARKS[cell["validity"]["status"]]


def prompt_tokens(cell: Cell) -> str:
    """Real prompt tokens: one number, or the range when the requests of the cell differ."""
    extent = cell["prompt_tokens"]
    if extent is None:
        return numbers.ABSENT
    low, high = numbers.count(extent["min"]), numbers.count(extent["max"])
    return low if low == high else f"{low}..{high}"


def streams(cell: Cell) -> str:
    """Streams in flight, or the rate of an open loop."""
    load = numbers.count(cell["concurrency"]) if cell["rate"] is None else f"{cell['rate']:g}/s"
    return load if cell.get("stage") is None else f"#{cell['stage']}: {load}"


KEYS = (Column("\ntier", tier), Column("\nconc", streams))

GROUPS = (
    Group(
        "Latency",
        (
            Column("\nn", value("n", numbers.count)),
            Column("\nok", value("ok", numbers.count)),
            Column("prompt\ntokens", prompt_tokens),
            Column("TTFT ms\np50", stat("ttft_ms", "p50")),
            Column("TTFT ms\np90", stat("ttft_ms", "p90")),
            Column("TTFT ms\nmax", stat("ttft_ms", "max")),
            Column("TPOT ms\np50", stat("tpot_ms", "p50")),
            Column("E2E ms\np50", stat("e2e_ms", "p50")),
        ),
    ),
    Group(
        "Speed and price",
        (
            Column("prefill\ntokens/s", value("prefill_tokens_per_s")),
            Column("decode\ntokens/s", value("decode_tokens_per_s")),
            Column("unit price\nms/token", value("unit_price_ms")),
            Column("prefill ms\nper 1K", value("prefill_ms_per_1k")),
            Column("prefill share\nof E2E", value("prefill_share", numbers.percent)),
        ),
    ),
    Group(
        "Load and outcomes",
        (
            Column("requests\n/s", value("requests_per_s")),
            Column("output\ntokens/s", value("output_tokens_per_s")),
            Column("total\ntokens/s", value("total_tokens_per_s")),
            Column("peak in\nflight", value("peak_in_flight", numbers.count)),
            Column("\nerrors", errors, right=False),
        ),
    ),
)
PARTS = Group(
    "Where TTFT went, by the server's own times",
    (
        Column("queue ms\np50", lambda cell: part(cell, "queue_ms")),
        Column("prefill ms\np50", lambda cell: part(cell, "prefill_ms")),
        Column("network and\nrest ms p50", lambda cell: part(cell, "rest_ms")),
        Column("\nn", lambda cell: part(cell, "n", numbers.count)),
    ),
)


def part(cell: Cell, name: str, show: Callable[[Any], str] = numbers.number) -> str:
    """One part of the TTFT of a cell, where its server tells."""
    return show((cell.get("ttft_parts") or {}).get(name))


def groups_of(cells: list[Cell]) -> tuple[Group, ...]:
    """The groups that have something to show of these cells."""
    return (*GROUPS, PARTS) if any(cell.get("ttft_parts") for cell in cells) else GROUPS

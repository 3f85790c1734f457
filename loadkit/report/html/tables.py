"""The tables of the page: those of the other reports, and every number with all its digits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadkit.report import bends, board_table, findings, numbers, rates, words
from loadkit.report.columns import KEYS, Column, groups_of
from loadkit.report.csvfile import flat
from loadkit.report.escape import plain

Cell = dict[str, Any]
_RUN = ("growth", "price", "tpot_across_tiers", "totals")


@dataclass(frozen=True, slots=True)
class Row:
    """The texts of one row; struck out where its cell is invalid."""

    texts: tuple[str, ...]
    struck: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a name of its own in the page; `left` are the columns of words."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    left: tuple[int, ...] = (0,)


def of_groups(cells: list[Cell]) -> list[Table]:
    """The tables of cells that every report has."""
    return [_group(group.title, (*KEYS, *group.columns), cells) for group in groups_of(cells)] if cells else []


def _group(title: str, columns: tuple[Column, ...], cells: list[Cell]) -> Table:
    rows = tuple(
        Row(tuple(plain(column.text(cell).replace("\n", ", ")) for column in columns), _struck(cell)) for cell in cells
    )
    header = tuple(" ".join(column.header.split()) for column in columns)
    left = tuple(i for i, column in enumerate(columns) if not column.right)
    return Table(title.lower().replace(" ", "-"), title, header, rows, left)


def of_findings(summary: dict[str, Any]) -> list[Table]:
    """The price along the ladder, its steps, and the pace of decode inside answers; without rows there is no table."""
    found: list[tuple[str, str, tuple[str, ...], Sequence[Sequence[str]], tuple[int, ...]]] = [
        ("rates", "Rates of an open loop", rates.HEADERS, rates.rows(summary), (0,)),
        ("board", "Board", board_table.HEADERS, board_table.rows(summary), (0,)),
        ("price", "Price along the ladder", findings.PRICE_HEADERS, findings.prices(summary), (0,)),
        ("steps", "From tier to tier", findings.STEP_HEADERS, findings.steps(summary), (4,)),
    ]
    found += [
        (f"soak-{i}", f"Decode and heat of {cell} against time", board_table.SOAK_HEADERS, minutes, ())
        for i, (cell, minutes) in enumerate(board_table.curves(summary), 1)
    ]
    tables = [
        Table(name, title, headers, tuple(Row(tuple(map(plain, texts))) for texts in rows), left)
        for name, title, headers, rows, left in found
        if rows
    ]
    having = [cell for cell in summary["cells"] if cell["stability"]["n"]]
    if having:
        tables.append(_group("Pace of decode inside answers", (*KEYS, *findings.PACES), having))
    return tables


def every_number(cells: list[Cell]) -> Table:
    """One column for each cell, one row for each number of summary.json, all digits kept; absent is empty."""
    leaves = [dict(flat(cell)) for cell in cells]
    keys = dict.fromkeys(key for found in leaves for key in found)
    rows = tuple(Row((key, *(_exact(found.get(key, "")) for found in leaves))) for key in keys if key != "cell")
    return Table("every-number", "Every number of every cell", ("", *(cell["cell"] for cell in cells)), rows)


def of_run(summary: Mapping[str, Any]) -> Table:
    """What summary.json says of the run as a whole, all digits kept."""
    parts = {key: value for key in _RUN if isinstance(value := summary.get(key), Mapping)}
    rows = tuple(Row((key, _exact(value))) for key, value in flat(parts))
    return Table("run", "Every number of the run", ("", "value"), rows, (0, 1))


def errors(summary: Mapping[str, Any]) -> Table | None:
    """Every outcome that is not ok, with the first words of the server; None where all went well."""
    names = {cell["cell"]: words.name(cell) for cell in summary["cells"]}
    rows = tuple(
        Row(
            (
                plain(str(names.get(error["cell"]) or error["cell"] or numbers.ABSENT)),
                error["outcome"],
                numbers.count(error["n"]),
                numbers.count(error["http_status"]),
                plain(error["message"] or numbers.ABSENT, limit=800),
            )
        )
        for error in summary["errors"]
    )
    header = ("cell", "outcome", "n", "HTTP status", "first message of the server, as it came")
    return Table("errors", "Failures", header, rows, (0, 1, 4)) if rows else None


def knees(summary: Mapping[str, Any], axis: str) -> Table | None:
    """The answers of the knee locator on one axis, length or concurrency; None where it was not asked."""
    found = bends.rows(summary["knee"], axis) if summary.get("knee") else []
    rows = tuple(Row(tuple(map(plain, texts))) for texts in found)
    return Table(f"knee-{axis}", f"Knee in {axis}", bends.HEADERS, rows, (0, 1, 2)) if rows else None


def _struck(cell: Cell) -> bool:
    return bool(cell["validity"]["status"] == "invalid")


def _exact(value: Any) -> str:
    """All digits of a number; a word as it is, without control characters."""
    return repr(value) if isinstance(value, int | float) else plain(str(value))

"""capacity.html: a page that a reader can argue with: inputs, assumptions, charts, tables, every number explained."""

from collections.abc import Mapping
from typing import Any

from loadkit.report.escape import plain
from loadkit.report.html import capacity_charts, shell
from loadkit.report.html.tables import Row, Table
from loadkit.report.sizing import rows
from loadkit.report.sizing.markdown import tables
from loadkit.report.sizing.terminal import sections


def render(answer: Mapping[str, Any]) -> str:
    """The page as text; `answer` is that of `analysis.sizing.answer`."""
    specs = capacity_charts.charts(answer)
    return shell.render(
        "capacity.html",
        specs,
        source=plain(answer["source"]),
        sentence=plain(answer["sentence"], limit=1200),
        inputs=[(plain(name), plain(value)) for name, value in answer["inputs"]],
        assumptions=_lines(answer["assumptions"]),
        figures=capacity_charts.titles(answer),
        tables=[_table(i, title, found) for i, (title, found) in enumerate(tables(answer)) if found[1]],
        sections=[(title, _lines(lines)) for title, lines in sections(answer) if lines and title != "Assumptions"],
        explained=_explained(answer),
        columns=rows.COLUMNS,
    )


def _table(place: int, title: str, found: rows.Table) -> Table:
    headers, texts = found
    wordy = tuple(i for i, header in enumerate(headers) if i == 0 or header in ("note", "holds", "bound by", "at load"))
    return Table(f"capacity-{place}", title, headers, tuple(Row(tuple(map(plain, row))) for row in texts), wordy)


def _explained(answer: Mapping[str, Any]) -> Table:
    found = tuple(
        Row(tuple(plain(text, limit=1200) for text in (item.head, item.formula, item.inputs)))
        for item in rows.explained(answer)
    )
    return Table("explained", "Every number explained", ("number", "formula", "inputs"), found, (0, 1, 2))


def _lines(lines: list[str]) -> list[str]:
    return [plain(line, limit=1200) for line in lines]

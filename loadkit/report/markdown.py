"""report.md: what was asked of whom, the verdict, the tables of cells, and what the numbers mean."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from loadkit.measure.quantile import LEVELS
from loadkit.record.names import Outcome
from loadkit.report import bends, board_table, findings, rates, words
from loadkit.report.columns import KEYS, Cell, Column, groups_of, stat
from loadkit.report.escape import markdown
from loadkit.report.numbers import ABSENT, count, duration, number, tier

_DETAIL = ("mean", "p50", "p90", "p95", "p99", "min", "max")
_DISTRIBUTIONS = {
    "ttft_ms": "TTFT",
    "ttft_content_ms": "TTFT of the first visible token",
    "tpot_ms": "TPOT",
    "itl_ms": "ITL",
    "e2e_ms": "E2E",
}


def render(summary: dict[str, Any], manifest: Mapping[str, Any] | None = None) -> str:
    """The report as Markdown. The manifest may be missing or partial: what it does not say is '-'."""
    cells = summary["cells"]
    parts = [f"# Run {markdown(str(summary['run_id'] or 'without a name'))}", bullets(_head(summary, manifest or {}))]
    doubts, course = words.validity(summary), words.course(summary)
    parts += ["## Validity", bullets(doubts) if doubts else _all_valid(cells)]
    parts += [bullets(course)] if course else []
    if found := words.objectives(summary):
        parts += ["## Objectives", bullets(found)]
    if offered := rates.rows(summary):
        parts += ["## Rates", bullets(rates.sentences(summary)), text_table(rates.HEADERS, offered)]
    else:
        parts += ["## Knee and growth", bullets([*bends.sentences(summary["knee"]), summary["growth"]["sentence"]])]
        parts += _knees(summary)
    parts += _board(summary)
    parts += _findings(summary) if cells else []
    if not cells:
        parts += ["## Cells", "No request of any cell was recorded."]
    for group in groups_of(cells) if cells else ():
        parts += [f"## {group.title}", table((*KEYS, *group.columns), cells)]
    parts += [f"## {title} in ms\n\n{detail}" for title, detail in _details(cells)]
    if found := words.errors(summary):
        parts += ["## Errors", bullets(found)]
    if found := words.notes(summary):
        parts += ["## Notes", bullets(found)]
    parts += ["## Totals", markdown(words.totals(summary), limit=1000), "## Definitions", bullets(words.DEFINITIONS)]
    return "\n\n".join(parts) + "\n"


def bullets(lines: Iterable[str]) -> str:
    """A list, every line inert."""
    return "\n".join(f"- {markdown(line, limit=1200)}" for line in lines)


def table(columns: Iterable[Column], cells: list[Cell]) -> str:
    """A table of cells, one row each; invalid cells are struck out."""
    shown = list(columns)
    rows = [
        "| " + " | ".join(" ".join(column.header.split()) for column in shown) + " |",
        "|" + "|".join("---:" if column.right else ":---" for column in shown) + "|",
    ]
    for cell in cells:
        texts = [markdown(column.text(cell).replace("\n", ", ")) for column in shown]
        if cell["validity"]["status"] == "invalid":
            texts = [f"~~{text}~~" for text in texts]
        rows.append("| " + " | ".join(texts) + " |")
    return "\n".join(rows)


def _knees(summary: dict[str, Any]) -> Iterable[str]:
    """The knees as a table, and the map where there is more than one concurrency."""
    if found := bends.rows(summary["knee"]):
        yield text_table(bends.HEADERS, found)
    headers, rows = bends.ladder_map(summary)
    if len(headers) > 2:
        yield f"{bends.LEGEND}; {bends.MARKED}:"
        yield text_table(headers, rows)


def _board(summary: dict[str, Any]) -> Iterable[str]:
    """The board's table under the articles' names, what stands behind it, and its throttling curves."""
    if found := board_table.rows(summary):
        yield "## Board"
        yield text_table(board_table.HEADERS, found)
        yield bullets(board_table.sentences(summary))
    for cell, minutes in board_table.curves(summary):
        yield f"Decode and heat of {markdown(cell)} against time:"
        yield text_table(board_table.SOAK_HEADERS, minutes)


def _findings(summary: dict[str, Any]) -> Iterable[str]:
    """Price, decode and reading rules as sentences, then their tables."""
    yield "## Price, decode and how to read the outcomes"
    yield bullets(findings.sentences(summary))
    tables = (
        (findings.PRICE_HEADERS, findings.prices(summary)),
        (findings.STEP_HEADERS, findings.steps(summary)),
    )
    yield from (text_table(headers, rows) for headers, rows in tables if rows)
    if having := [cell for cell in summary["cells"] if cell["stability"]["n"]]:
        yield table((*KEYS, *findings.PACES), having)


def text_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text, its first column to the left, the others to the right."""
    lines = [headers, [":---", *["---:"] * (len(headers) - 1)]]
    lines += [[markdown(text) for text in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _details(cells: list[Cell]) -> Iterable[tuple[str, str]]:
    """One table for each distribution that any cell has: all statistics and the interval of the median."""
    for key, title in _DISTRIBUTIONS.items():
        having = [cell for cell in cells if cell[key]]
        if not having:
            continue
        columns = [Column(name, _p99(key) if name == "p99" else stat(key, name)) for name in _DETAIL]
        columns += [Column("90 % interval of p50", _interval(key)), Column("n", stat(key, "n", count))]
        columns += [Column("medians of rounds", _rounds)] if key == "ttft_ms" else []
        yield title, table((*KEYS, *columns), having)
    yield from _with_failures(cells)


def _with_failures(cells: list[Cell]) -> Iterable[tuple[str, str]]:
    """One table for each failure-inflated distribution, of the cells that had failures."""
    for key in ("ttft_ms", "e2e_ms"):
        inflated = f"{key}_with_failures"
        having = [cell for cell in cells if cell[inflated] and cell[inflated]["n"] > (cell[key] or {"n": 0})["n"]]
        if having:
            columns = [Column(name, stat(inflated, name)) for name in LEVELS]
            columns.append(Column("n", stat(inflated, "n", count)))
            yield f"{_DISTRIBUTIONS[key]} with failures as infinitely late", table((*KEYS, *columns), having)


def _rounds(cell: Cell) -> str:
    apart = cell["ttft_ms_of_rounds"]
    return ABSENT if apart is None else f"{number(apart['min'])}..{number(apart['max'])} of {apart['n']}"


def _p99(distribution: str) -> Callable[[Cell], str]:
    return lambda cell: number(cell[distribution]["p99"]) + (" (low_n)" if cell[distribution]["low_n"] else "")


def _interval(distribution: str) -> Callable[[Cell], str]:
    def text(cell: Cell) -> str:
        ci = cell[distribution]["ci"]
        return ABSENT if ci is None else f"{number(ci[0])}..{number(ci[1])}"

    return text


def _all_valid(cells: list[Cell]) -> str:
    return "Every cell is valid." if cells else "Nothing was measured."


def _head(summary: dict[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """Nine lines: model, base URL, key source, date, client, length ladder, repeats, metrics, conclusion."""
    endpoint, versions = _map(manifest, "endpoint"), _map(manifest, "versions")
    cells = summary["cells"]
    tiers = sorted({cell["tier_tokens"] for cell in cells})
    repeats = sorted({cell["rounds"] for cell in cells})
    variable, file = endpoint.get("key_env"), endpoint.get("key_file")
    return [
        f"Model: {_say(endpoint.get('model') or manifest.get('model'))}",
        f"Base URL: {_say(endpoint.get('base_url'))}",
        f"Key: {f'from ${variable}' if variable else 'from a file' if file else ABSENT}",
        f"Date: {_say(manifest.get('started_at'))}",
        f"Client: {', '.join(f'{name} {version}' for name, version in versions.items()) or ABSENT}",
        f"Length ladder: {', '.join(tier(tokens) for tokens in tiers) or ABSENT} tokens",
        f"Answered rounds: {_range(repeats)}",
        "Metrics: TTFT, TPOT, ITL, E2E, prefill and decode tokens per second, unit price",
        f"Conclusion: {_conclusion(cells)}",
    ]


def _conclusion(cells: list[Cell]) -> str:
    """How far the ladder got: the longest tier at its lowest concurrency, how often it answered, how long it took."""
    if not cells:
        return "nothing was measured"
    longest = max(cell["tier_tokens"] for cell in cells)
    cell = next(cell for cell in cells if cell["tier_tokens"] == longest)
    failed = [f"{name} {n}" for name, n in cell["outcomes"].items() if name != Outcome.OK]
    text = f"{words.name(cell)} succeeded {cell['ok']} of {cell['n']}"
    if cell["ttft_ms"]:
        text += f", TTFT p50 {duration(cell['ttft_ms']['p50'])}"
    return text + (f" ({', '.join(failed)})" if failed else "")


def _map(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = manifest.get(name)
    return value if isinstance(value, Mapping) else {}


def _say(value: Any) -> str:
    return ABSENT if value is None else str(value)


def _range(values: list[int]) -> str:
    if not values:
        return ABSENT
    return str(values[0]) if values[0] == values[-1] else f"{values[0]} to {values[-1]}"

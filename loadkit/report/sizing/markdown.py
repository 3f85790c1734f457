"""capacity.md: inputs and assumptions first, so that a reader can argue with the answer, then the tables."""

from collections.abc import Mapping
from typing import Any

from loadkit.report.escape import markdown
from loadkit.report.markdown import bullets, text_table
from loadkit.report.sizing import rows
from loadkit.report.sizing.terminal import sections


def render(answer: Mapping[str, Any]) -> str:
    """The answer as Markdown."""
    parts = ["# Capacity", f"**{markdown(answer['sentence'], limit=1200)}**", "## Inputs"]
    parts.append(bullets(f"{name}: {value}" for name, value in answer["inputs"]))
    parts += ["## Assumptions", bullets(answer["assumptions"])]
    for title, (headers, found) in tables(answer):
        if found:
            parts += [f"## {title}", text_table([markdown(text) for text in headers], found)]
    for title, lines in sections(answer):
        if lines and title != "Assumptions":
            parts += [f"## {title}", bullets(lines)]
    parts += ["## Every number explained", _explained(answer), bullets(f"{n}: {text}" for n, text in rows.COLUMNS)]
    return "\n\n".join(parts) + "\n"


def tables(answer: Mapping[str, Any]) -> list[tuple[str, rows.Table]]:
    """The tables by title; those without rows are empty."""
    return [
        ("Measured loads", rows.points(answer)),
        ("Goodput of a replica", rows.tiers(answer)),
        ("Price and prefill time", rows.prices(answer)),
        ("Further figures", rows.totals(answer)),
        ("Sensitivity", rows.variants(answer["sensitivity"])),
        ("What if", rows.variants(answer["what_if"])),
    ]


def _explained(answer: Mapping[str, Any]) -> str:
    return bullets(
        f"{item.head} = {item.formula}" + (f" with {item.inputs}" if item.inputs else "")
        for item in rows.explained(answer)
    )

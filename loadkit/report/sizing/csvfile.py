"""capacity.csv: one row for each measured load, and one for each figure, numbers with all their digits."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from loadkit.report.csvfile import inert

COLUMNS = (
    "kind", "tier_tokens", "load", "load_unit", "key", "label", "value", "low", "high", "unit", "requests_per_s",
    "output_tokens_per_s", "success", "holds", "goodput", "in_flight", "cost_output", "validity", "why", "formula",
)  # fmt: skip


def render(answer: Mapping[str, Any]) -> str:
    """The table as CSV with a header; `kind` tells measured loads from figures. Objectives are columns of their own."""
    objectives = [f"{item['name']}{'' if item['name'] == 'error_rate' else '_ms'}" for item in answer["objectives"]]
    text = io.StringIO()
    writer = csv.DictWriter(text, (*COLUMNS, *objectives), restval="", lineterminator="\n")
    writer.writeheader()
    for row in (*_points(answer, objectives), *_figures(answer)):
        writer.writerow({key: "" if value is None else inert(value) for key, value in row.items()})
    return text.getvalue()


def _points(answer: Mapping[str, Any], objectives: list[str]) -> Iterator[dict[str, Any]]:
    shared = [name for name in COLUMNS if answer["points"] and name in answer["points"][0]]
    for point in answer["points"]:
        row = {name: point[name] for name in shared}
        row |= {"kind": "load", "load_unit": point["kind"], "why": "; ".join(point["why"])}
        yield row | dict(zip(objectives, point["values"].values(), strict=True))


def _figures(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for figure in answer["figures"]:
        names = ("key", "label", "value", "low", "high", "unit", "formula")
        yield {"kind": "figure", **{name: figure[name] for name in names}}

"""Panels of Grafana as plain dicts, in the classic form that versions 9 to 13 load.

Only fields are used whose form did not change between them. A description is made of the meanings that the metric
table gives for what the panel reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

from loadkit.live.dashboards.promql import metrics_in
from loadkit.live.table import BY_NAME

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
LEGEND = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
TOKENS_PER_S = "suffix: tok/s"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression. `legend` names its series, with labels as {{label}}; `column` its values in a table."""

    expr: str
    legend: str = ""
    column: str = ""
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; its id and place are given by the layout. `config` is its fieldConfig.defaults beside the unit."""

    kind: str
    title: str
    unit: str
    queries: Sequence[Query]
    width: int
    height: int
    note: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    transformations: Sequence[Mapping[str, Any]] = ()
    instant: bool = False
    repeat: str = ""

    @property
    def description(self) -> str:
        """The note, then what the metrics mean."""
        names = dict.fromkeys(name for query in self.queries for name in metrics_in(query.expr))
        return " ".join(filter(None, (self.note, *(BY_NAME[name].help for name in names))))

    def to_json(self, number: int, x: int, y: int) -> dict[str, Any]:
        """The panel with this id, its upper left corner at (x, y) in a grid of 24 columns."""
        found: dict[str, Any] = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": {"unit": self.unit, **self.config}, "overrides": []},
            "options": dict(self.options),
            "targets": [self._target(*pair) for pair in zip(ascii_uppercase, self.queries, strict=False)],
        }
        if self.transformations:
            found["transformations"] = list(self.transformations)
        if self.repeat:
            found |= {"repeat": self.repeat, "repeatDirection": "h", "maxPerRow": 3}
        return found

    def _target(self, letter: str, query: Query) -> dict[str, Any]:
        form = {"table": "table", "heatmap": "heatmap"}.get(self.kind, "time_series")
        return {
            "refId": letter,
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": query.expr,
            "format": form,
            "instant": self.instant,
            "range": not self.instant,
            "legendFormat": query.legend or "__auto",
            "exemplar": query.exemplars,
        }


def lines(
    title: str,
    unit: str,
    *queries: Query,
    note: str = "",
    width: int = 12,
    stacked: bool = False,
    top: float | None = None,
    log: bool = False,
) -> Panel:
    """Values over time; `stacked` ones are bars that add up."""
    custom: dict[str, Any] = {
        "drawStyle": "bars" if stacked else "line",
        "fillOpacity": 60 if stacked else 8,
        "lineWidth": 0 if stacked else 2,
        "showPoints": "never" if stacked else "auto",
        "spanNulls": not stacked,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    config: dict[str, Any] = {"custom": custom, "color": {"mode": "palette-classic"}}
    if not log:
        config["min"] = 0
    if top is not None:
        config["max"] = top
    options = {"legend": LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}}
    return Panel("timeseries", title, unit, queries, width, 8, note, options, config)


def stat(
    title: str, unit: str, query: Query, *, note: str = "", limits: Sequence[tuple[float, str]] = (), width: int = 3
) -> Panel:
    """One number. `limits` are values from which on it has another colour."""
    steps = [{"color": "green", "value": None}, *({"color": colour, "value": at} for at, colour in limits)]
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value" if limits else "none",
        "graphMode": "area",
        "textMode": "name" if unit == "string" else "auto",
        "justifyMode": "auto",
        "orientation": "auto",
    }
    config = {"thresholds": {"mode": "absolute", "steps": steps}, "noValue": "none"}
    return Panel("stat", title, unit, (query,), width, 4, note, options, config, instant=unit == "string")


def bars(title: str, unit: str, *queries: Query, note: str = "", width: int = 12) -> Panel:
    """The last value of each series as a horizontal bar, the smallest first."""
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "displayMode": "basic",
        "orientation": "horizontal",
        "showUnfilled": True,
        "minVizWidth": 0,
        "minVizHeight": 10,
    }
    config = {"min": 0, "color": {"mode": "palette-classic"}, "noValue": "none"}
    return Panel("bargauge", title, unit, queries, width, 8, note, options, config, instant=True)


def heat(title: str, unit: str, query: Query, *, note: str = "", width: int = 12, repeat: str = "") -> Panel:
    """Buckets over time, darker where more values lie."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
        "filterValues": {"le": 1e-9},
        "rowsFrame": {"layout": "auto"},
        "yAxis": {"unit": unit, "axisPlacement": "left", "reverse": False},
        "legend": {"show": True},
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
    }
    config = {"custom": {"scaleDistribution": {"type": "linear"}}}
    return Panel("heatmap", title, unit, (query,), width, 8, note, options, config, repeat=repeat)


def table(
    title: str, unit: str, *queries: Query, hidden: Sequence[str] = (), note: str = "", width: int = 24, height: int = 8
) -> Panel:
    """Rows by label. With several queries rows of the same labels become one, with a column of each query."""
    single = len(queries) == 1
    names = ["Value"] if single else [f"Value #{letter}" for letter, _ in zip(ascii_uppercase, queries, strict=False)]
    columns = {name: query.column for name, query in zip(names, queries, strict=True) if query.column}
    unseen = ["Time", *hidden, *(name for name in names if name not in columns)]
    organize = {"excludeByName": dict.fromkeys(unseen, True), "indexByName": {}, "renameByName": columns}
    steps: list[dict[str, Any]] = [] if single else [{"id": "merge", "options": {}}]
    numbers = [{"targetField": name, "destinationType": "number"} for name in ("tier", "concurrency")]
    if not single:
        steps.append({"id": "convertFieldType", "options": {"conversions": numbers, "fields": {}}})
    steps.append({"id": "organize", "options": organize})
    options = {"showHeader": True, "cellHeight": "sm"}
    config = {"custom": {"align": "auto", "filterable": True}, "noValue": "–"}
    return Panel("table", title, unit, queries, width, height, note, options, config, steps, instant=True)

"""A dashboard: rows of panels laid out on the grid, the variables, and the marks over time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from loadkit.live.dashboards.panel import SOURCE, Panel
from loadkit.live.dashboards.promql import ONE_RUN, RANGE

COLUMNS = 24
SCHEMA = 39  # of Grafana 10.4; 9 reads it as it is, later ones bring it up
NEWEST = f"query_result(sort_desc(max by (run) (max_over_time(timestamp(loadkit_run_info)[{RANGE}:10s]))))"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; a folded one is opened where there is a reason to look."""

    title: str
    panels: Sequence[Panel]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """What differs between dashboards. Its uid stays the same for ever, so that links and provisioning find it."""

    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    variables: Sequence[Json]
    marks: Sequence[Json] = ()
    since: str = "now-15m"
    refresh: str = "5s"

    def to_json(self) -> Json:
        """The classic form."""
        return {
            "id": None,
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["loadkit"],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "fiscalYearStartMonth": 0,
            "liveNow": False,
            "refresh": self.refresh,
            "time": {"from": self.since, "to": "now"},
            "timepicker": {},
            "timezone": "browser",
            "weekStart": "",
            "links": [LINKS],
            "annotations": {"list": [BUILT_IN, *self.marks]},
            "templating": {"list": [DATASOURCE, *self.variables]},
            "panels": list(_placed(self.rows)),
        }


def _placed(rows: Sequence[Row]) -> Iterator[Json]:
    """Every panel from left to right, then downwards, with ids in that order."""
    number, y = 0, 0
    for row in rows:
        number += 1
        heading: Json = {"id": number, "type": "row", "title": row.title, "collapsed": row.folded, "panels": []}
        heading["gridPos"] = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        placed, y = _in_row(row.panels, number, y + 1)
        number += len(placed)
        if row.folded:
            yield heading | {"panels": placed}
            y = heading["gridPos"]["y"] + 1
        else:
            yield heading
            yield from placed


def _in_row(panels: Sequence[Panel], number: int, y: int) -> tuple[list[Json], int]:
    """The panels with ids after `number`, and the first free line below them."""
    placed: list[Json] = []
    x = height = 0
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y, height = 0, y + height, 0
        placed.append(panel.to_json(number + len(placed) + 1, x, y))
        x, height = x + panel.width, max(height, panel.height)
    return placed, y + height


DATASOURCE: Json = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
    "skipUrlSync": False,
}
LINKS: Json = {
    "title": "loadkit",
    "type": "dashboards",
    "tags": ["loadkit"],
    "asDropdown": False,
    "icon": "external link",
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    "tooltip": "",
    "url": "",
}
BUILT_IN: Json = {
    "builtIn": 1,
    "name": "Annotations & Alerts",
    "type": "dashboard",
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
}
STAGES: Json = {
    "name": "Stages",
    "datasource": SOURCE,
    "enable": True,
    "hide": False,
    "iconColor": "purple",
    "expr": f"loadkit_stage_start_timestamp_seconds{{{ONE_RUN}}} * 1000",
    "useValueForTime": True,
    "step": "5s",
    "titleFormat": "{{tier}} tokens x {{concurrency}}",
    "textFormat": "a visit of this cell opened",
    "tagKeys": "tier,concurrency",
}
LOST: Json = {
    "name": "Lost workers",
    "datasource": SOURCE,
    "enable": True,
    "hide": False,
    "iconColor": "red",
    "expr": f"increase(loadkit_worker_lost_total{{{ONE_RUN}}}[$__rate_interval]) > 0",
    "step": "5s",
    "titleFormat": "a worker was lost",
    "textFormat": "the visit it measured is repeated",
    "tagKeys": "",
}


def chosen(
    name: str, label: str, query: str, *, many: bool = False, everything: bool = False, sort: int = 0, pick: str = ""
) -> Json:
    """A variable whose values Prometheus tells. `pick`: a regular expression that takes the value out of a series."""
    every = {"current": {"selected": True, "text": ["All"], "value": ["$__all"]}} if everything else {}
    return every | {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": f"variable-{name}"},
        "hide": 0,
        "includeAll": everything,
        "multi": many,
        "options": [],
        "refresh": 2,
        "regex": pick,
        "skipUrlSync": False,
        "sort": sort,
    }


def run_variable(name: str = "run", label: str = "Run", *, many: bool = False) -> Json:
    """Runs that were on in what is shown, the newest first."""
    return chosen(name, label, NEWEST, many=many, everything=many, pick='/run="([^"]+)"/')


def place_variables(run: str = ONE_RUN) -> list[Json]:
    """Endpoint, tier and concurrency, each of what the choices before it leave."""
    requests = f'label_values(loadkit_requests_total{{{run}, endpoint=~"$endpoint"'
    endpoints = f"label_values(loadkit_endpoint_info{{{run}}}, endpoint)"
    return [
        chosen("endpoint", "Endpoint", endpoints, many=True, everything=True, sort=1),
        chosen("tier", "Tier", f"{requests}}}, tier)", many=True, everything=True, sort=3),
        chosen("concurrency", "Concurrency", f"{requests}}}, concurrency)", many=True, everything=True, sort=3),
    ]


WINDOW_VARIABLE: Json = {
    "name": "window",
    "label": "Window of quantiles",
    "type": "interval",
    "query": "1m,2m,5m,15m,1h",
    "auto": False,
    "auto_count": 30,
    "auto_min": "10s",
    "current": {"selected": True, "text": "1m", "value": "1m"},
    "hide": 0,
    "options": [{"selected": at == "1m", "text": at, "value": at} for at in ("1m", "2m", "5m", "15m", "1h")],
    "refresh": 2,
    "skipUrlSync": False,
}

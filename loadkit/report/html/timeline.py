"""The run second by second: which cell was measured, and how healthy the load generator was meanwhile."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.analysis.reading import number, rows
from loadkit.analysis.window import wall_seconds
from loadkit.measure.validity import HEALTH_LIMITS
from loadkit.report.html.scales import Spec, chart, layer, names, tip
from loadkit.report.html.spread import ROW
from loadkit.report.words import name

MOMENTS = 300  # marks along the axis; a longer run shows the worst of each
COLOURS = {"suspect": "$warn", "invalid": "$bad"}
_PANEL = 110  # px
_EDGE = {"minExtent": 66, "maxExtent": 66}  # px; the panels begin at the same place


def timeline(
    summary: dict[str, Any], manifest: Mapping[str, Any], telemetry: Iterable[Mapping[str, Any]]
) -> dict[str, Spec]:
    """Visits, event loop lag, CPU and streams over one axis of time; what was not recorded is left out."""
    own = (row for row in telemetry if row.get("kind", "telemetry") == "telemetry")  # not of a server or a board
    samples = [(at, row) for row in own if (at := wall_seconds(row)) is not None]
    visits = list(_visits(manifest))
    times = [at for at, _ in samples] + [at for visit in visits for at in visit[1:]]
    if not times or max(times) <= min(times):
        return {}
    axis = _Axis(min(times), max(times))
    moments = _moments(samples, axis)
    found = {"visits": _gantt(summary, visits, axis)} if visits else {}
    if any(row["lag"] is not None for row in moments):
        found["lag"] = _lag(summary, moments, visits, axis)
    if any(row["cpu"] is not None for row in moments):
        found["cpu"] = _cpu(moments, axis)
    if any(row["streams"] is not None for row in moments):
        found["streams"] = _streams(moments, axis)
    return found


class _Axis:
    """Time since the start of the run, in seconds, or in minutes where it is long."""

    def __init__(self, first: float, last: float) -> None:
        self.first = first
        self.unit, self.seconds = ("min", 60.0) if last - first > 600 else ("s", 1.0)
        self.end = (last - first) / self.seconds
        self.step = self.end / MOMENTS

    def at(self, wall: float) -> float:
        """The place of a wall clock time on the axis."""
        return (wall - self.first) / self.seconds

    def channel(self, *, title: bool = False) -> Spec:
        """The x channel that all panels share."""
        return {
            "field": "at",
            "type": "quantitative",
            "title": f"time since the start, {self.unit}" if title else None,
            "scale": {"domain": [0, self.end], "nice": False},
            "axis": {"grid": False, "tickCount": 6},
        }


def _visits(manifest: Mapping[str, Any]) -> Iterable[tuple[str, float, float]]:
    """(cell, opened, closed) of every visit with both times, in seconds of the wall clock."""
    for visit in rows(manifest, "visits"):
        opened, closed = (wall_seconds({"timestamp": visit.get(key)}) for key in ("opened_at", "closed_at"))
        if opened is not None and closed is not None and closed >= opened:
            yield str(visit.get("cell")), opened, closed


def _moments(samples: list[tuple[float, Mapping[str, Any]]], axis: _Axis) -> list[Spec]:
    """Rows of all workers joined: the worst lag and CPU of any, the streams and users of all together."""
    bins: dict[int, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for at, row in samples:
        bins[int(axis.at(at) / axis.step)][str(row.get("worker"))].append(row)
    return [
        {
            "at": place * axis.step,
            "lag": _most(values.values(), "hub_lag_p99_ms"),
            "cpu": _most(values.values(), "cpu"),
            "streams": _sum(values.values(), "streams_in_flight"),
            "planned": _sum(values.values(), "users_planned"),
        }
        for place, values in sorted(bins.items())
    ]


def _most(workers: Iterable[list[Mapping[str, Any]]], key: str) -> float | None:
    return max((v for mine in workers for row in mine if (v := number(row, key)) is not None), default=None)


def _sum(workers: Iterable[list[Mapping[str, Any]]], key: str) -> float | None:
    found = [most for mine in workers if (most := _most([mine], key)) is not None]
    return sum(found) if found else None


def _gantt(summary: dict[str, Any], visits: list[tuple[str, float, float]], axis: _Axis) -> Spec:
    """A bar for every visit in the row of its cell, in the colour of the cell's validity."""
    cells = {cell["cell"]: cell for cell in summary["cells"]}
    bars = [
        {
            "cell": name(cells[cell]) if cell in cells else cell,
            "at": axis.at(opened),
            "to": max(axis.at(closed), axis.at(opened) + axis.step),
            "status": cells[cell]["validity"]["status"] if cell in cells else "not measured",
            "seconds": f"{closed - opened:.1f}",
        }
        for cell, opened, closed in visits
    ]
    order = list(dict.fromkeys([*map(name, cells.values()), *(str(bar["cell"]) for bar in bars)]))
    tones = {"valid": "$good", **COLOURS, "not measured": "$muted"}
    tones = {status: tone for status, tone in tones.items() if any(bar["status"] == status for bar in bars)}
    scale = {"domain": list(tones), "range": list(tones.values())}
    colour = {"field": "status", "type": "nominal", "title": None, "scale": scale, "legend": {"orient": "top"}}
    shown = tip(("cell", "cell"), ("seconds", "seconds"), ("status", "validity"))
    bar = {"type": "bar", "height": {"band": 0.7}, "cornerRadius": 2}
    x, y = axis.channel(), names("cell", order)
    y["axis"] |= _EDGE
    return chart(
        (ROW - 8) * len(order),
        [layer(bars, bar, x=x, x2={"field": "to"}, y=y, color=colour, tooltip=shown)],
    )


def _lag(summary: dict[str, Any], moments: list[Spec], visits: list[tuple[str, float, float]], axis: _Axis) -> Spec:
    """Event loop lag p99 of each moment, and what the cell open at that time allows."""
    gaps = {cell["cell"]: (cell["itl_ms"] or cell["tpot_ms"] or {}).get("p50") or 0.0 for cell in summary["cells"]}
    allowed = [
        {"at": axis.at(opened), "to": axis.at(closed), "limit": limit.status}
        | {"value": max(limit.lag_ms, limit.itl_share * gaps.get(cell, 0.0))}
        for limit in HEALTH_LIMITS
        for cell, opened, closed in visits
    ]
    lags = [row for row in moments if row["lag"] is not None]
    scale = {"type": "symlog", "constant": 0.2}
    y = {
        "field": "lag",
        "type": "quantitative",
        "title": None,
        "stack": None,
        "scale": scale,
        "axis": {"tickCount": 4} | _EDGE,
    }
    x = axis.channel()
    layers = [
        layer(lags, {"type": "area", "color": "$c0", "opacity": 0.25, "line": {"color": "$c0"}}, x=x, y=y),
        *(
            layer(
                [row for row in allowed if row["limit"] == limit],
                {"type": "rule", "color": colour, "strokeWidth": 2},
                x=x,
                x2={"field": "to"},
                y=y | {"field": "value"},
                tooltip=tip(("limit", "above it"), ("value", "ms")),
            )
            for limit, colour in COLOURS.items()
        ),
    ]
    return chart(_PANEL, [each for each in layers if each["data"]["values"]])


def _cpu(moments: list[Spec], axis: _Axis) -> Spec:
    """CPU of the busiest process of the load generator, and its limits."""
    x = axis.channel()
    scale = {"domain": [0, max(1.0, *(row["cpu"] or 0.0 for row in moments))]}
    y = {
        "field": "cpu",
        "type": "quantitative",
        "title": None,
        "scale": scale,
        "axis": {"format": "%", "tickCount": 4} | _EDGE,
    }
    area = {"type": "area", "color": "$c0", "opacity": 0.25, "line": {"color": "$c0"}}
    layers = [layer([row for row in moments if row["cpu"] is not None], area, x=x, y=y)]
    for limit in HEALTH_LIMITS:
        rule = {"type": "rule", "color": COLOURS[limit.status], "strokeWidth": 1.5}
        layers.append(layer([{"cpu": limit.cpu}], rule, y=y))
    return chart(_PANEL, layers)


def _streams(moments: list[Spec], axis: _Axis) -> Spec:
    """Streams in flight, and the users that were planned."""
    x = axis.channel(title=True)
    y = {"field": "streams", "type": "quantitative", "title": None, "axis": {"tickCount": 4} | _EDGE}
    area = {"type": "area", "interpolate": "step-after", "color": "$c2", "opacity": 0.3}
    line = {"type": "line", "interpolate": "step-after", "color": "$muted", "strokeDash": [4, 3]}
    planned = [row for row in moments if row["planned"] is not None]
    layers = [layer([row for row in moments if row["streams"] is not None], area, x=x, y=y)]
    layers += [layer(planned, line, x=x, y=y | {"field": "planned"})] if planned else []
    return chart(_PANEL, layers)

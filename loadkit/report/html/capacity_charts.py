"""Charts of a capacity answer: requests/s against load, and each objective against load with its line."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from loadkit.plan.tiers import tier_name
from loadkit.report.html.scales import Spec, chart, colours, layer, quantity, tip
from loadkit.report.sizing.rows import exact

LABEL = {"streams": "requests in flight (streams)", "requests/s offered": "requests/s offered"}


def charts(answer: Mapping[str, Any]) -> dict[str, Spec]:
    """{goodput, objective_0, objective_1, ...}; open and closed loops have axes of their own."""
    found: dict[str, Spec] = {}
    for kind in dict.fromkeys(point["kind"] for point in answer["points"]):
        mine = [point for point in answer["points"] if point["kind"] == kind]
        suffix = "" if kind == "streams" else "_open"
        found[f"goodput{suffix}"] = _goodput(mine, kind)
        for place, item in enumerate(answer["objectives"]):
            having = [point for point in mine if point["values"][item["name"]] is not None]
            if having and item["name"] != "error_rate":
                found[f"objective_{place}{suffix}"] = _objective(having, kind, item)
    return found


def titles(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(chart, its title) of every chart that may be there, in order."""
    found = [("goodput", "Requests completed per second against concurrency"), ("goodput_open", "The same, open loop")]
    for place, item in enumerate(answer["objectives"]):
        title = f"{item['name']} against load; the line is the objective, {exact(item['limit'])} ms"
        found += [(f"objective_{place}", title), (f"objective_{place}_open", f"{title} (open loop)")]
    return found


def _goodput(points: Sequence[Mapping[str, Any]], kind: str) -> Spec:
    rows = [_row(point, point["requests_per_s"]) for point in points]
    x, y = _loads(points, kind), quantity("value", "requests/s of a replica", [row["value"] for row in rows])
    return _chart(rows, x, y, 300, ())


def _objective(points: Sequence[Mapping[str, Any]], kind: str, item: Mapping[str, Any]) -> Spec:
    rows = [_row(point, point["values"][item["name"]]) for point in points]
    y = quantity("value", f"{item['name']}, ms", [*(row["value"] for row in rows), item["limit"]])
    line = layer(
        [{"value": item["limit"]}], {"type": "rule", "color": "$bad", "strokeWidth": 2, "strokeDash": [6, 4]}, y=y
    )
    return _chart(rows, _loads(points, kind), y, 220, (line,))


def _loads(points: Sequence[Mapping[str, Any]], kind: str) -> Spec:
    return quantity("load", LABEL[kind], [point["load"] for point in points]) | {"title": LABEL[kind]}


def _row(point: Mapping[str, Any], value: float) -> Spec:
    return {
        "tier": tier_name(point["tier_tokens"]),
        "load": point["load"],
        "value": value,
        "said": exact(value),
        "holds": "holds" if point["holds"] else "; ".join(point["why"])[:200] or "does not hold",
        "good": point["holds"],
        "best": point["goodput"],
    }


def _chart(rows: Sequence[Spec], x: Spec, y: Spec, height: int, more: Iterable[Spec]) -> Spec:
    """Lines by tier; a full dot holds, a cross does not, a ring is the goodput."""
    colour = colours("tier", list(dict.fromkeys(row["tier"] for row in rows)), "tier")
    shown = tip(("tier", "tier"), ("load", "load"), ("said", "value"), ("holds", "objectives"))
    good, bad = ([row for row in rows if row["good"] is good] for good in (True, False))
    best = [row for row in rows if row["best"]]
    layers = [
        layer(rows, {"type": "line", "strokeWidth": 1.8, "opacity": 0.55}, x=x, y=y, color=colour),
        layer(good, {"type": "circle", "size": 70, "opacity": 1}, x=x, y=y, color=colour, tooltip=shown),
        layer(bad, {"type": "point", "shape": "cross", "size": 70, "color": "$bad"}, x=x, y=y, tooltip=shown),
        layer(best, {"type": "point", "size": 260, "color": "$knee", "strokeWidth": 2.5}, x=x, y=y, tooltip=shown),
        *more,
    ]
    return chart(height, [each for each in layers if each["data"]["values"]])

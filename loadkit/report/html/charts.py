"""How latency and price grow with context, and the maps of tier and concurrency."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from loadkit.analysis.bend_words import about
from loadkit.analysis.strata import Stratum
from loadkit.report import numbers, words
from loadkit.report.html.samples import thinned
from loadkit.report.html.scales import Spec, chart, colours, layer, names, quantity, said, tip, tokens

Cell = dict[str, Any]
REACH = 4.0  # a mark further than so many times beyond the longest prompt is told in words, not drawn
MAPS = {
    "map_ttft": (("ttft_ms", "p50"), "TTFT p50, ms"),
    "map_tpot": (("tpot_ms", "p50"), "TPOT p50, ms"),
    "map_output": (("output_tokens_per_s",), "output tokens/s"),
}


def growth_charts(summary: dict[str, Any], strata: Iterable[Stratum]) -> dict[str, Spec]:
    """TTFT against context, and the unit price of a token of it; a chart without data is left out."""
    cells = [cell for cell in summary["cells"] if length(cell) and cell["ttft_ms"]]
    charts = {"ttft": ttft(summary, cells, list(strata))} if cells else {}
    priced = [cell for cell in cells if cell["unit_price_ms"]]
    if len({length(cell) for cell in priced}) > 1:
        charts["price"] = price(priced)
    return charts


def ttft(summary: dict[str, Any], cells: list[Cell], strata: list[Stratum]) -> Spec:
    """Every repeat, the medians, the straight line through them, the knee with its interval, the predicted one."""
    places = sorted({length(cell) for cell in cells})
    repeats = list(_repeats(cells, strata))
    marks = _marks(summary, places[-1])
    x = tokens("tokens", places, [mark["tokens"] for mark in marks])
    y = quantity("ms", "TTFT, ms", [row["ms"] for row in repeats])
    colour = colours("streams", _streams(cells), "concurrency")
    shown = tip(("cell", "cell"), ("said", "TTFT ms"))
    usable, invalid = _medians(cells, "ttft_ms")
    layers = [
        *_interval(summary, x),
        layer(
            _fit(summary, y), {"type": "line", "strokeDash": [5, 4], "color": "$muted", "strokeWidth": 1.5}, x=x, y=y
        ),
        layer(repeats, {"type": "circle", "size": 26, "opacity": 0.38}, x=x, y=y, color=colour, tooltip=shown),
        layer(usable, {"type": "line", "strokeWidth": 2.2, "point": {"size": 55}}, x=x, y=y, color=colour),
        layer(usable, {"type": "point", "opacity": 0, "size": 160}, x=x, y=y, tooltip=shown),
        layer(invalid, {"type": "point", "shape": "cross", "size": 90, "color": "$bad"}, x=x, y=y, tooltip=shown),
        *_rules(marks, x),
    ]
    return chart(340, [each for each in layers if each["data"]["values"]])


def price(cells: list[Cell]) -> Spec:
    """The unit price in ms per prompt token, medians of each cell."""
    places = sorted({length(cell) for cell in cells})
    rows = [_row(cell, cell["unit_price_ms"]) for cell in cells]
    x, y = tokens("tokens", places), quantity("ms", "ms per prompt token")
    colour = colours("streams", _streams(cells), "concurrency")
    good = [row for row in rows if not row["invalid"]]
    bad = [row for row in rows if row["invalid"]]
    shown = tip(("cell", "cell"), ("said", "ms per token"))
    layers = [
        layer(good, {"type": "line", "strokeWidth": 2.2, "point": {"size": 55}}, x=x, y=y, color=colour, tooltip=shown),
        layer(bad, {"type": "point", "shape": "cross", "size": 90, "color": "$bad"}, x=x, y=y, tooltip=shown),
    ]
    return chart(240, [each for each in layers if each["data"]["values"]])


def maps(summary: dict[str, Any]) -> dict[str, Spec]:
    """Tier x concurrency, one map for each quantity of MAPS, where the run has more than one concurrency."""
    if len({cell["concurrency"] for cell in summary["cells"]}) < 2:
        return {}
    broken = {item["cell"] for item in summary["objectives"] if item["met"] is False}
    found = {name: _squares(summary["cells"], path, broken) for name, (path, _) in MAPS.items()}
    return {name: _map(rows, MAPS[name][1]) for name, rows in found.items() if any(row["value"] for row in rows)}


def _map(rows: list[Spec], title: str) -> Spec:
    tiers = list(dict.fromkeys(row["tier"] for row in rows))
    streams = sorted({row["streams"] for row in rows}, key=int)
    x, y = names("streams", streams, "concurrency"), names("tier", tiers[::-1], "tier")
    usable = [row for row in rows if row["value"] and not row["invalid"]]
    low, high = _shades([row["value"] for row in rows])
    scale = {"type": "log", "domain": [low, high], "range": ["$low", "$high"]}
    colour = {"field": "value", "type": "quantitative", "scale": scale, "legend": None}
    shown = tip(("cell", "cell"), ("said", title), ("status", "validity"), ("objective", "objectives"))
    text = {"field": "said", "type": "nominal"}
    plain = {"type": "text", "fontSize": 12, "fontWeight": 600}
    layers = [
        layer(rows, {"type": "rect", "fill": "$empty"}, x=x, y=y),
        layer(usable, {"type": "rect", "cornerRadius": 3}, x=x, y=y, color=colour, tooltip=shown),
        layer(
            _where(rows, "broken"), {"type": "rect", "filled": False, "stroke": "$bad", "strokeWidth": 2.5}, x=x, y=y
        ),
        layer(_where(usable, "strong"), plain | {"color": "$onhigh"}, x=x, y=y, text=text),
        layer([row for row in usable if not row["strong"]], plain | {"color": "$onlow"}, x=x, y=y, text=text),
        layer(_where(rows, "invalid"), {"type": "text", "color": "$bad"}, x=x, y=y, text={"value": "invalid"}),
    ]
    spec = chart(34 * len(tiers), [each for each in layers if each["data"]["values"]])
    return spec | {"encoding": {"x": {"scale": {"padding": 0.06}}, "y": {"scale": {"padding": 0.06}}}}


def _squares(cells: list[Cell], path: tuple[str, ...], broken: set[str]) -> list[Spec]:
    """One row for each cell of the map; `strong` where its colour nears the high end."""
    values = {cell["cell"]: _at(cell, path) or 0.0 for cell in cells}
    low, high = _shades(list(values.values()))
    return [
        {
            "cell": words.name(cell),
            "tier": numbers.tier(cell["tier_tokens"]),
            "streams": str(cell["concurrency"]),
            "value": values[cell["cell"]],
            "said": said(values[cell["cell"]]),
            "strong": values[cell["cell"]] ** 2 > low * high,
            "status": cell["validity"]["status"],
            "invalid": cell["validity"]["status"] == "invalid",
            "broken": cell["cell"] in broken,
            "objective": "missed" if cell["cell"] in broken else "-",
        }
        for cell in cells
    ]


def _shades(values: Sequence[float]) -> tuple[float, float]:
    """The values of the palest and the deepest colour: apart by two at least, so that noise does not look like more."""
    found = [value for value in values if value > 0] or [1.0]
    return min(found), max(max(found), 2 * min(found))


def length(cell: Cell) -> int:
    """Prompt tokens of the cell as counted, or as planned where nothing counted them."""
    return (cell["prompt_tokens"] or {}).get("median") or cell["tier_tokens"]


def _at(cell: Cell, path: Sequence[str]) -> float | None:
    """The number under the names, each one deeper; None where it is absent."""
    found: Any = cell
    for name in path:
        found = (found or {}).get(name)
    return found


def _where(rows: list[Spec], name: str) -> list[Spec]:
    return [row for row in rows if row[name]]


def _row(cell: Cell, value: float) -> Spec:
    return {
        "cell": words.name(cell),
        "tokens": length(cell),
        "ms": value,
        "said": said(value),
        "streams": str(cell["concurrency"]),
        "invalid": cell["validity"]["status"] == "invalid",
    }


def _medians(cells: list[Cell], name: str) -> tuple[list[Spec], list[Spec]]:
    """The medians of usable cells, and those of invalid ones."""
    rows = [_row(cell, cell[name]["p50"]) for cell in cells if cell[name]["p50"] > 0]
    return [row for row in rows if not row["invalid"]], [row for row in rows if row["invalid"]]


def _repeats(cells: list[Cell], strata: list[Stratum]) -> Iterable[Spec]:
    by_name = {stratum.name: stratum for stratum in strata}
    for cell in cells:
        stratum = by_name.get(cell["cell"])
        for value in thinned(stratum.values["ttft_ms"]) if stratum else []:
            if value > 0:
                yield _row(cell, value)


def _streams(cells: list[Cell]) -> list[str]:
    return [str(streams) for streams in sorted({cell["concurrency"] for cell in cells})]


def _fit(summary: dict[str, Any], y: Spec) -> list[Spec]:
    """The straight line a + b n of `analysis.growth`, where the axis of times holds it."""
    line = summary["growth"]
    if line["slope_ms_per_token"] is None:
        return []
    low, high = y["scale"].get("domain", (0.0, math.inf))
    places = np.geomspace(line["tokens_first"], line["tokens_last"], 200)
    heights = [(float(n), float(line["intercept_ms"] + line["slope_ms_per_token"] * n)) for n in places]
    return [{"tokens": n, "ms": ms} for n, ms in heights if low <= ms <= high]


def _marks(summary: dict[str, Any], longest: float) -> list[Spec]:
    """The knee in length and what the model card predicts, where the axis reaches them."""
    knee = summary.get("knee") or {}
    measured, predicted = knee.get("length") or {}, knee.get("predicted") or {}
    found = [
        (measured.get("knee"), "knee", "$knee"),
        (predicted.get("k25_tokens"), "predicted knee", "$predicted"),
        (predicted.get("crossover_tokens"), "predicted crossover", "$predicted"),
    ]
    return [
        {"tokens": place, "label": f"{label} {about(place)}", "colour": colour, "row": row}
        for row, (place, label, colour) in enumerate(found)
        if place and place <= REACH * longest
    ]


def _rules(marks: list[Spec], x: Spec) -> Iterable[Spec]:
    """A line for each mark, and over all lines their labels, each on the side that has room."""
    low, high = x["scale"]["domain"]
    for mark in marks:
        dash = [2, 3] if mark["colour"] == "$predicted" else []
        yield layer([mark], {"type": "rule", "color": mark["colour"], "strokeWidth": 2, "strokeDash": dash}, x=x)
    for mark in marks:
        side = {"align": "right", "dx": -5} if mark["tokens"] ** 2 > low * high else {"align": "left", "dx": 5}
        text = {"type": "text", "fontWeight": 600, **side}
        halo = {"color": "$card", "stroke": "$card", "strokeWidth": 5, "strokeJoin": "round"}
        for style in (halo, {"color": mark["colour"]}):
            yield layer([mark], text | style, x=x, y={"value": 12 + 16 * mark["row"]}, text={"field": "label"})


def _interval(summary: dict[str, Any], x: Spec) -> Iterable[Spec]:
    """The 90 % interval of the knee as a band, cut to the axis."""
    ci = ((summary.get("knee") or {}).get("length") or {}).get("ci")
    if ci:
        low, high = x["scale"]["domain"]
        row = {"tokens": min(max(ci[0], low), high), "to": max(min(ci[1], high), low)}
        yield layer([row], {"type": "rect", "color": "$knee", "opacity": 0.13}, x=x, x2={"field": "to"})

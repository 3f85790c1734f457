"""What the charts share: the frame of a specification, axes, colours, and how values are said in a tooltip."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from loadkit.report import numbers

Spec = dict[str, Any]
SERIES = ("$c0", "$c1", "$c2", "$c3", "$c4", "$c5", "$c6")
_TIER = "datum.value >= 1048576 && datum.value % 1048576 == 0 ? datum.value / 1048576 + 'M' : "
_TIER += "datum.value >= 1024 && datum.value % 1024 == 0 ? datum.value / 1024 + 'K' : datum.value"
_WIDE = 8  # a range this many times its start is read on a logarithmic axis


def chart(height: int, layers: Sequence[Spec], **more: Any) -> Spec:
    """A chart as wide as its place in the page, `height` px high."""
    return {
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "layer": list(layers),
        **more,
    }


def layer(rows: Iterable[Spec], mark: Spec, **encoding: Any) -> Spec:
    """One layer: its rows, its mark, its channels."""
    return {"data": {"values": list(rows)}, "mark": mark, "encoding": encoding}


def quantity(field: str, title: str | None, values: Sequence[float] = (), *, log: bool = False) -> Spec:
    """A numeric channel for the values; logarithmic where they span enough for it, or where it is asked for."""
    found = [value for value in values if value > 0]
    axis: Spec = {"format": ",.6~g", "tickCount": 6}
    scale: Spec = {"zero": True}
    if found and (log or min(found) * _WIDE <= max(found)):
        low, high = min(found), max(found)
        axis = {"format": ",.6~g", "values": round_numbers(low, high), "labelOverlap": True}
        scale = {"type": "log", "domain": [low / 1.1, high * 1.1], "nice": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10 and so on from low to high, 0 < low <= high; more within a decade, only tens over more than three."""
    steps = (1, 1.5, 2, 3, 4, 5, 6, 8) if high < 10 * low else (1, 2, 5) if high <= 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [value for power in powers for step in steps if low <= (value := float(f"{step}e{power}")) <= high]


def tokens(field: str, places: Sequence[float], beyond: Sequence[float] = ()) -> Spec:
    """The axis of prompt tokens with a label at each tested length; `beyond` are other places it must reach."""
    low, high = min([*places, *beyond]), max([*places, *beyond])
    axis = {"values": list(places), "labelExpr": _TIER, "labelOverlap": "greedy", "labelSeparation": 6, "grid": False}
    scale = {"type": "log", "domain": [low / 1.15, high * 1.15], "nice": False}
    return {"field": field, "type": "quantitative", "title": "prompt tokens", "scale": scale, "axis": axis}


def names(field: str, order: Sequence[str], title: str | None = None) -> Spec:
    """An axis of names in the given order."""
    axis = {"ticks": False, "domain": False, "grid": False, "labelPadding": 6, "labelAngle": 0}
    return {"field": field, "type": "nominal", "title": title, "sort": list(order), "axis": axis}


def colours(field: str, domain: Sequence[str], title: str | None, palette: Sequence[str] = SERIES) -> Spec:
    """A colour for each name; names beyond the palette begin it again."""
    scale = {"domain": list(domain), "range": [palette[i % len(palette)] for i in range(len(domain))]}
    legend = {"orient": "top", "symbolType": "circle", "symbolOpacity": 1, "columns": 4, "labelLimit": 160}
    return {"field": field, "type": "nominal", "title": title, "scale": scale, "legend": legend}


def tip(*fields: tuple[str, str]) -> list[Spec]:
    """The lines of a tooltip as (field, what it is called)."""
    return [{"field": field, "title": title} for field, title in fields]


def said(value: float | str | None) -> str:
    """The value as tables print it."""
    return numbers.number(value)

"""Distributions and outcomes, one row for each cell."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from loadkit.analysis.strata import Stratum
from loadkit.record.names import Outcome
from loadkit.report import words
from loadkit.report.html.samples import shares, span
from loadkit.report.html.scales import Spec, chart, colours, layer, names, quantity, said, tip

ROW = 26  # px
TICKS = {"p50": "$ink", "p90": "$c1", "p99": "$bad"}
FAILURES = ("$bad", "$c1", "$c2", "$c3", "$c4", "$c5", "$c6", "$muted")


def distributions(summary: dict[str, Any], strata: Iterable[Stratum]) -> dict[str, Spec]:
    """How TTFT and ITL are distributed in each cell; cells whose percentiles are withheld are left out."""
    found = list(strata)
    charts = {
        "spread_ttft": _strips(summary, found, "ttft_ms", "TTFT, ms", lambda stratum: stratum.values["ttft_ms"]),
        "spread_itl": _strips(summary, found, "itl_ms", "ITL, ms", lambda stratum: stratum.itl),
    }
    return {name: spec for name, spec in charts.items() if spec}


def _strips(
    summary: dict[str, Any],
    strata: list[Stratum],
    key: str,
    title: str,
    samples: Callable[[Stratum], Sequence[float]],
) -> Spec | None:
    cells = {cell["cell"]: cell for cell in summary["cells"] if cell[key]}
    groups = {s.name: samples(s) for s in strata if s.name in cells}
    groups = {cell: values for cell, values in groups.items() if len(values)}
    if not groups:
        return None
    ends = span(list(groups.values()), [cells[cell][key]["p50"] for cell in groups])
    order = [words.name(cells[cell]) for cell in groups]
    x, y = quantity("ms", title, ends, log=True), names("cell", order)
    bins = [row for cell, values in groups.items() for row in _bins(cells[cell], values, ends)]
    layers = [
        layer(
            bins,
            {"type": "rect", "color": "$c0", "height": {"band": 0.72}},
            x=x,
            x2={"field": "to"},
            y=y,
            opacity={"field": "depth", "type": "quantitative", "scale": {"range": [0.12, 1]}, "legend": None},
            tooltip=tip(("cell", "cell"), ("range", "ms"), ("said", "share")),
        ),
        layer(
            [_tick(cells[cell], key, name, ends[0]) for cell in groups for name in TICKS],
            {"type": "tick", "thickness": 2.5, "height": {"band": 0.86}},
            x=x,
            y=y,
            color=colours("name", list(TICKS), None, list(TICKS.values())),
            tooltip=tip(("cell", "cell"), ("name", "percentile"), ("said", "ms")),
        ),
    ]
    return chart(ROW * len(order), layers)


def _bins(cell: dict[str, Any], values: Sequence[float], ends: tuple[float, float]) -> Iterable[Spec]:
    """The filled bins of a cell; `depth` is 1 where most of its samples are."""
    found = shares(values, *ends)
    most = max(share for _, _, share in found)
    for low, high, share in found:
        yield {
            "cell": words.name(cell),
            "ms": low,
            "to": high,
            "depth": share / most,
            "said": f"{100 * share:.1f}%",
            "range": f"up to {said(high)}" if low <= ends[0] else f"{said(low)} to {said(high)}",
        }


def _tick(cell: dict[str, Any], key: str, name: str, low: float) -> Spec:
    value = cell[key][name]
    return {"cell": words.name(cell), "name": name, "ms": max(value, low), "said": said(value)}


def outcomes(summary: dict[str, Any]) -> dict[str, Spec]:
    """How the measured requests of each cell ended, as shares of all of them."""
    rows = [
        {"cell": words.name(cell), "outcome": name, "n": n, "of": cell["n"]}
        for cell in summary["cells"]
        for name, n in cell["outcomes"].items()
        if n
    ]
    if not rows:
        return {}
    failed = sorted({row["outcome"] for row in rows} - {Outcome.OK.value})
    order = list(dict.fromkeys(row["cell"] for row in rows))
    palette = ["$good", *(FAILURES[i % len(FAILURES)] for i in range(len(failed)))]
    x = {"field": "n", "type": "quantitative", "stack": "normalize", "title": "share of the measured requests"}
    colour = colours("outcome", [Outcome.OK.value, *failed], None, palette)
    shown = tip(("cell", "cell"), ("outcome", "outcome"), ("n", "requests"), ("of", "of"))
    axis = {"format": "%", "tickCount": 5}
    bar = {"type": "bar", "height": {"band": 0.72}}
    return {
        "outcomes": chart(
            ROW * len(order),
            [layer(rows, bar, x=x | {"axis": axis}, y=names("cell", order), color=colour, tooltip=shown)],
        )
    }

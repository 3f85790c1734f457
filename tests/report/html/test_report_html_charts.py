"""The charts as specifications: what they hold is what was measured, and Vega-Lite can draw them."""

import json
import re
from importlib import resources
from itertools import pairwise

import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from loadkit.analysis.summary import summarise
from loadkit.report.html import charts, overview, samples, scales, spread, timeline

TIMES = st.lists(st.floats(0, 1e7, allow_subnormal=False), min_size=1, max_size=200)
KNEE = {
    "length": {"kind": "hinge", "knee": 700.0, "ci": [500.0, 4000.0], "reason": "", "probability": 0.9},
    "predicted": {"model": "m", "source": "s", "crossover_tokens": 1600.0, "k25_tokens": 4e5},
}


@pytest.fixture
def drawn(run):
    """Every chart of the run, and its summary."""
    summary, strata = run.examine()
    specs = {
        **charts.growth_charts(summary, strata),
        **charts.maps(summary),
        **spread.distributions(summary, strata),
        **spread.outcomes(summary),
        **timeline.timeline(summary, run.manifest, run.telemetry),
    }
    return specs, summary


def rows(spec, *fields):
    """The rows of all layers that have the fields."""
    found = [row for layer in spec["layer"] for row in layer["data"]["values"]]
    return [row for row in found if all(field in row for field in fields)]


def marks(spec, kind):
    """The rows of the layers with a mark of that kind."""
    return [row for layer in spec["layer"] if layer["mark"]["type"] == kind for row in layer["data"]["values"]]


def test_vega_lite_takes_every_chart(drawn):
    """Each specification compiles to Vega; every colour in it is a variable that the style defines for both schemes."""
    specs, _ = drawn
    style = resources.files("loadkit.report.html").joinpath("style.css").read_text("utf-8")
    light, dark = style.split("prefers-color-scheme: dark")
    names = set()
    for spec in specs.values():
        bare = re.sub(r'"\$(\w+)"', lambda match: names.add(match[1]) or '"#123456"', json.dumps(spec))
        assert vl_convert.vegalite_to_vega(json.loads(bare))["marks"]
    assert {"c0", "good", "bad"} <= names
    for name in names:
        assert f"--{name}:" in light
        assert f"--{name}:" in dark


def test_ttft_has_every_repeat_and_the_medians_of_the_summary(drawn, run):
    """Dots are the samples; lines join the medians of cells that are not invalid; the invalid one is a cross."""
    specs, summary = drawn
    spec = specs["ttft"]
    dots = sorted(row["ms"] for row in marks(spec, "circle"))
    assert dots == sorted(record["ttft_ms"] for record in run.records if record.get("ttft_ms"))
    medians = {cell["cell"].replace("x", " x "): cell["ttft_ms"]["p50"] for cell in summary["cells"]}
    joined = {row["cell"].replace("K", ""): row["ms"] for row in marks(spec, "line") if "cell" in row}
    assert sorted(joined.values()) == sorted(v for cell, v in medians.items() if cell != "2048 x 2")
    crosses = [layer for layer in spec["layer"] if layer["mark"].get("shape") == "cross"]
    assert [row["ms"] for layer in crosses for row in layer["data"]["values"]] == [medians["2048 x 2"]]


def test_the_fit_is_the_line_of_the_growth(drawn):
    """The dashed line is a + b n of summary.json."""
    specs, summary = drawn
    line = summary["growth"]
    fit = [row for row in marks(specs["ttft"], "line") if "cell" not in row]
    assert len(fit) > 50
    for row in fit:
        assert row["ms"] == pytest.approx(line["intercept_ms"] + line["slope_ms_per_token"] * row["tokens"])


def test_the_knee_its_interval_and_the_prediction_are_drawn(run):
    """A rule at the knee, a band cut to the axis, a rule at what is predicted within reach, none far beyond."""
    summary, strata = run.examine()
    spec = charts.growth_charts({**summary, "knee": KNEE}, strata)["ttft"]
    assert [row["tokens"] for row in marks(spec, "rule")] == [700.0, 1600.0]
    top = spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1]
    assert [(row["tokens"], row["to"]) for row in marks(spec, "rect")] == [(500.0, top)]
    assert {row["label"] for row in marks(spec, "text")} == {"knee 700", "predicted crossover 1600"}


def test_the_maps_mark_what_is_missed_and_what_is_invalid(drawn):
    """A square for every cell with the number of the summary; a frame where an objective is missed."""
    specs, summary = drawn
    spec = specs["map_ttft"]
    coloured = [layer for layer in spec["layer"] if layer["encoding"].get("color")]
    values = {row["cell"]: row["value"] for layer in coloured for row in layer["data"]["values"]}
    usable = [cell for cell in summary["cells"] if cell["validity"]["status"] != "invalid"]
    assert sorted(values.values()) == sorted(cell["ttft_ms"]["p50"] for cell in usable)
    framed = [layer for layer in spec["layer"] if layer["mark"].get("filled") is False]
    missed = {item["cell"] for item in summary["objectives"] if item["met"] is False}
    assert len(framed[0]["data"]["values"]) == len(missed) > 0
    assert [row["status"] for row in marks(spec, "text") if row["invalid"]] == ["invalid"]


def test_one_concurrency_has_no_map(request_of):
    """A ladder is not a map."""
    assert charts.maps(summarise([request_of(128, 1, 0, 5.0), request_of(256, 1, 9, 9.0)])) == {}


def test_distributions_are_whole_and_carry_the_percentiles(drawn):
    """The shares of each cell sum to one; ticks stand at the percentiles of the summary."""
    specs, summary = drawn
    ticks = {(row["cell"], row["name"]): row["ms"] for row in marks(specs["spread_ttft"], "tick")}
    assert len(ticks) == 3 * len(summary["cells"])
    assert ticks["128 x 1", "p99"] == summary["cells"][0]["ttft_ms"]["p99"]
    shown = [float(row["said"][:-1]) for row in marks(specs["spread_ttft"], "rect") if row["cell"] == "128 x 2"]
    assert sum(shown) == pytest.approx(100, abs=0.1 * len(shown))


def test_outcomes_are_counts_of_the_summary(drawn):
    """Every outcome of every cell with its count."""
    specs, summary = drawn
    shown = [(row["outcome"], row["n"]) for row in rows(specs["outcomes"], "outcome")]
    assert shown == [pair for cell in summary["cells"] for pair in cell["outcomes"].items()]
    assert ("rate_limited", 1) in shown


def test_the_timeline_joins_workers_and_keeps_the_worst(run):
    """Two workers in one second: lag and CPU of the worse, streams of both."""
    summary, _ = run.examine()
    at = "2026-01-01T00:00:0{}Z"
    telemetry = [
        {"timestamp": at.format(1), "worker": w, "hub_lag_p99_ms": lag, "cpu": cpu, "streams_in_flight": n}
        for w, lag, cpu, n in (("a", 0.5, 0.2, 3), ("b", 7.0, 0.1, 2))
    ]
    specs = timeline.timeline(summary, {}, [*telemetry, {"timestamp": at.format(9), "worker": "a", "cpu": 0.3}])
    assert rows(specs["lag"], "lag")[0]["lag"] == 7.0
    assert [row["cpu"] for row in rows(specs["cpu"], "at")] == [0.2, 0.3]
    assert rows(specs["streams"], "streams")[0]["streams"] == 5
    assert "visits" not in specs


def test_a_long_timeline_shows_the_worst_of_each_moment(run):
    """Hours of seconds become a few hundred marks, and the one bad second is still there."""
    summary, _ = run.examine()
    seconds = [f"2026-01-01T{s // 3600:02}:{s // 60 % 60:02}:{s % 60:02}Z" for s in range(7200)]
    telemetry = [{"timestamp": at, "worker": "w", "cpu": 0.1 if i != 5000 else 0.97} for i, at in enumerate(seconds)]
    spec = timeline.timeline(summary, {}, telemetry)["cpu"]
    shown = rows(spec, "at")
    assert len(shown) <= timeline.MOMENTS + 1
    assert max(row["cpu"] for row in shown) == 0.97
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"][1] == pytest.approx(7199 / 60)


def test_the_limits_of_lag_are_those_of_the_open_cell(drawn):
    """At an ITL of 25 ms a cell is suspect above 1.25 ms and invalid above 6.25 ms."""
    specs, _ = drawn
    limits = {(row["limit"], round(row["value"], 6)) for row in rows(specs["lag"], "limit")}
    assert limits == {("suspect", 1.25), ("invalid", 6.25)}


@given(TIMES)
def test_bins_hold_every_sample(values):
    """Shares sum to one, bins do not overlap, and they lie within the axis; zeros included."""
    low, high = samples.span([values], [sorted(values)[len(values) // 2]])
    found = samples.shares(values, low, high)
    assert 0 < low < high
    assert sum(share for _, _, share in found) == pytest.approx(1)
    assert all(low * 0.999 <= a < b <= high * 1.001 for a, b, _ in found)
    assert all(one[1] <= two[0] * 1.000001 for one, two in pairwise(found))


def test_a_burst_does_not_stretch_the_axis():
    """Gaps of nearly nothing stand at the low end, a thirtieth of the median, and are counted there."""
    values = [0.0, 0.0001, 20.0, 21.0, 30.0]
    low, high = samples.span([values], [20.0])
    assert (low, high) == (pytest.approx(20 / 30), 30.0)
    assert samples.shares(values, low, high)[0][2] == pytest.approx(0.4)


def test_noise_does_not_look_like_more(drawn):
    """TPOT is the same everywhere: the map's colours span a factor of two all the same."""
    specs, _ = drawn
    domain = next(
        e["color"]["scale"]["domain"] for layer in specs["map_tpot"]["layer"] if "color" in (e := layer["encoding"])
    )
    assert domain == [25.0, 50.0]


@given(TIMES)
def test_thinned_samples_keep_their_ends(values):
    """Few enough, out of the samples, smallest and largest among them."""
    found = samples.thinned(values)
    assert len(found) == min(len(values), samples.POINTS)
    assert (found[0], found[-1]) == (min(values), max(values))
    assert set(found) <= {float(value) for value in values}


@given(st.floats(1e-6, 1e9), st.floats(1, 1e8))
def test_the_labels_of_an_axis_lie_on_it(low, factor):
    """1, 2, 5, 10 and so on within the ends, ascending, not too many to read."""
    found = scales.round_numbers(low, low * factor)
    assert found == sorted(found)
    assert all(low <= value <= low * factor for value in found)
    assert len(found) <= 12


@pytest.mark.parametrize(
    ("length", "value"),
    [({"knee": 700.0, "kind": "hinge", "ci": [500, 900], "reason": ""}, "700 tokens"), (None, None)],
)
def test_the_card_of_the_knee(summary, length, value):
    """The place where there is one; no card where it was not looked for."""
    found = {card.label: card.value for card in overview.cards({**summary, "knee": {"length": length}})}
    assert found.get("Knee in context") == value


def test_a_knee_that_is_none_gives_its_reason(summary):
    """None is an answer, with the reason in words."""
    knee = {"length": {"knee": None, "kind": "none", "ci": None, "reason": "excess_below_gate"}}
    card = overview.cards({**summary, "knee": knee})[0]
    assert (card.value, card.note) == ("none", "excess below gate")


def test_invalid_cells_do_not_make_the_findings(run):
    """The longest tier of the findings is the longest usable one, and the best throughput is of a usable cell."""
    summary, _ = run.examine()
    for cell in summary["cells"]:
        if cell["tier_tokens"] == 2048:
            cell["validity"]["status"] = "invalid"
    found = {card.label: card for card in overview.cards(summary)}
    assert "TTFT p50, 1K x 1" in found
    usable = [cell for cell in summary["cells"] if cell["validity"]["status"] != "invalid"]
    best = max(cell["output_tokens_per_s"] for cell in usable)
    assert float(found["Greatest output"].value.split()[0]) == pytest.approx(best, rel=0.01)

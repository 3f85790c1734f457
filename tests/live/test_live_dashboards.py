"""The dashboards: rules that a Grafana would not tell, and every expression read by a parser of PromQL."""

import json
import re
from itertools import combinations

import promql_parser
import pytest

from loadkit.live.dashboards import promql
from loadkit.live.dashboards.board import WINDOW_VARIABLE
from loadkit.live.dashboards.files import DASHBOARDS, DATASOURCES, SCRAPE_S
from loadkit.live.table import BY_NAME

MADE = {name: make().to_json() for name, make in DASHBOARDS.items()}
LEAST_WINDOW_S = 4 * SCRAPE_S
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {
    "s", "short", "reqps", "percentunit", "suffix: tok/s", "hertz", "celsius", "watt", "Bps", "bytes", "string",
    "bool_yes_no",
}  # fmt: skip


def all_panels(board):
    """Every panel and row, also those in folded rows."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def drawn(board):
    return [panel for panel in all_panels(board) if panel["type"] != "row"]


EACH = [pytest.param(board, id=name) for name, board in MADE.items()]
PANELS = [pytest.param(panel, id=f"{name}-{panel['id']}") for name, board in MADE.items() for panel in drawn(board)]
TARGETS = [
    pytest.param(panel, target, id=f"{name}-{panel['id']}-{target['refId']}")
    for name, board in MADE.items()
    for panel in drawn(board)
    for target in panel["targets"]
]


def plain(expr):
    """An expression as Prometheus would get it, with some value for each variable."""
    times = {"$__rate_interval": "20s", "$window": "1m", "$__range": "15m", "$__interval": "5s"}
    for name, value in times.items():
        expr = expr.replace(name, value)
    return re.sub(r"\$[a-z]+", "x", expr)


def nodes(tree):
    """Every node of a parsed expression."""
    found = []
    promql_parser.walk(tree, lambda node: found.append(node) or True)
    return found


@pytest.mark.parametrize("board", EACH)
def test_a_dashboard_says_what_it_is(board):
    """A fixed uid, no id of some database, not to be edited, and a form that the oldest Grafana we name reads."""
    assert re.fullmatch(r"loadkit-[a-z]+", board["uid"])
    assert board["id"] is None
    assert board["editable"] is False
    assert board["title"]
    assert board["description"]
    assert board["schemaVersion"] == 39
    assert "elements" not in board  # of the newer form, which Grafana 12 and older do not know
    assert len({board["uid"] for board in MADE.values()}) == len({board["title"] for board in MADE.values()}) == 3


@pytest.mark.parametrize("board", EACH)
def test_ids_are_there_once(board):
    """Two panels of one id show each other's data; two of one title cannot be told apart."""
    ids = [panel["id"] for panel in all_panels(board)]
    assert sorted(ids) == list(range(1, len(ids) + 1))
    named = [(panel["type"], panel["title"]) for panel in drawn(board)]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("board", EACH)
def test_panels_do_not_overlap(board):
    """Each has its place in the grid of 24 columns; what is in a folded row lies below its heading."""
    groups = [[panel for panel in board["panels"] if not panel.get("panels")]]
    groups += [row["panels"] for row in board["panels"] if row.get("panels")]
    for group in groups:
        for panel in group:
            place = panel["gridPos"]
            assert 0 <= place["x"] <= place["x"] + place["w"] <= 24
        for one, other in combinations([panel["gridPos"] for panel in group], 2):
            apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            assert apart_x or apart_y, (one, other)


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_explains_itself(panel):
    """A title, a unit that Grafana has, a description with a whole sentence, and something to show."""
    assert panel["title"]
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["description"].endswith(".")
    assert panel["targets"]
    letters = [target["refId"] for target in panel["targets"]]
    assert len(letters) == len(set(letters))


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_the_datasource_is_a_variable(panel, target):
    """A uid that is written down is that of one Grafana only."""
    assert panel["datasource"] == target["datasource"] == SOURCE


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_an_expression_is_one(panel, target):
    """A parser of PromQL reads it, and every metric in it is on the page with the labels it asks for."""
    selectors = [n for n in nodes(promql_parser.parse(plain(target["expr"]))) if hasattr(n, "matchers")]
    assert selectors
    for selector in selectors:
        metric = BY_NAME.get(selector.name) or BY_NAME[promql.base(selector.name)]
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= {"run", *metric.labels}
        assert (selector.name == metric.name) != (metric.kind == "histogram")


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_no_run_is_written_down(panel, target):
    """Every selector takes its run, and its place in the plan where it has one, from the variables."""
    for name, matchers in re.findall(r"(loadkit_\w+)(?:\{([^}]*)\})?", target["expr"]):
        assert re.search(r'run=~?"\$(run|base)"', matchers), target["expr"]
        metric = BY_NAME.get(name) or BY_NAME[promql.base(name)]
        for label in {"endpoint", "tier", "concurrency"} & set(metric.labels):
            assert f'{label}=~"${label}"' in matchers


@pytest.mark.parametrize("board", EACH)
def test_every_variable_that_is_used_is_there(board):
    """And every one that is there is used."""
    ours = {variable["name"] for variable in board["templating"]["list"]}
    text = json.dumps({**board, "templating": [v.get("query") for v in board["templating"]["list"]]})
    used = set(re.findall(r"\$\{?([a-z]+)\}?", text))
    assert used == ours
    assert {"datasource", "run"} <= ours
    if board["uid"] != "loadkit-fleet":
        assert {"endpoint", "tier", "concurrency"} <= ours


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_a_rate_has_four_scrapes(panel, target):
    """Two samples make a rate and a scrape may be lost; $__interval is one scrape and shows nothing on short ranges."""
    assert "$__interval" not in target["expr"]
    for window in re.findall(r"\[([^\]:]+)", target["expr"]):
        if not window.startswith("$"):
            assert promql_parser.parse_duration(window).total_seconds() >= LEAST_WINDOW_S
        else:
            assert window in ("$__rate_interval", "$window", "$__range")


def test_the_windows_to_choose_have_four_scrapes():
    """Of the interval that the datasource is told."""
    assert f"timeInterval: {SCRAPE_S}s" in DATASOURCES
    for window in WINDOW_VARIABLE["query"].split(","):
        assert promql_parser.parse_duration(window).total_seconds() >= LEAST_WINDOW_S


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_a_counter_is_a_rate_or_a_last_value(panel, target):
    """A bare counter only says how long a run has been going, and is gone when the run is."""
    names = re.findall(r"(\w+\()?(loadkit_\w+)\{", target["expr"])
    for call, name in names:
        counts = name not in BY_NAME or BY_NAME[name].kind == "counter"
        if counts and name != "loadkit_worker_lost_total":
            assert call in ("rate(", "increase(", "last_over_time("), target["expr"]


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_a_legend_names_what_its_series_have(panel, target):
    """A legend is there where series are told apart by one, and its labels are left by the aggregation."""
    expr, legend = target["expr"], target["legendFormat"]
    if panel["type"] == "table":
        return
    assert legend != "__auto"
    labels = set(re.findall(r"\{\{(\w+)\}\}", legend))
    outer = re.search(r"by \(([^)]*)\)", expr)
    if outer:
        kept = {label.strip() for label in outer[1].split(",")}
        assert labels <= kept
        assert (kept - {"le"} if panel["type"] != "heatmap" else kept) <= labels | {"run"}
    else:
        metrics = promql.metrics_in(expr)
        assert labels <= {"run", *(label for name in metrics for label in BY_NAME[name].labels)}


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_an_idle_time_is_empty_not_nan(panel, target):
    """A quantile of nothing and a share of nothing are NaN, which Grafana draws as a hole or as 0 %."""
    if "histogram_quantile" in target["expr"]:
        assert target["expr"].endswith(" >= 0")
    for divisor in re.findall(r" / (.*)", target["expr"]):
        assert divisor.endswith("> 0)") or "loadkit_stage_quantile_seconds" in divisor


def test_an_instant_is_asked_for_where_time_is_no_axis():
    """Tables and bars ask for one moment; lines and heat maps for a range."""
    kinds = {"table": True, "bargauge": True, "timeseries": False, "heatmap": False}
    for board in MADE.values():
        for panel in drawn(board):
            for target in panel["targets"]:
                assert target["instant"] != target["range"]
                assert target["instant"] == kinds.get(panel["type"], target["instant"])
                assert (target["format"] == "heatmap") == (panel["type"] == "heatmap")


def test_every_metric_is_shown_somewhere():
    """What is worth a series is worth a look; when each cell began is what the marks are made of."""
    shown = {
        name
        for board in MADE.values()
        for text in (
            *(target["expr"] for panel in drawn(board) for target in panel["targets"]),
            *(mark.get("expr", "") for mark in board["annotations"]["list"]),
        )
        for name in promql.metrics_in(text)
    }
    assert set(BY_NAME) - shown == set()


def test_a_selector_that_cannot_be_is_refused():
    """A misspelt name or label fails where it is written, not as an empty panel."""
    with pytest.raises(KeyError):
        promql.of("loadkit_ttft_second")
    with pytest.raises(ValueError, match="loadkit_users has no label tier"):
        promql.of("loadkit_users", 'tier="1"')
    assert promql.of("loadkit_inflight", 'worker="w"') == 'loadkit_inflight{run="$run", worker="w"}'
    assert promql.base("loadkit_ttft_seconds_bucket") == "loadkit_ttft_seconds"

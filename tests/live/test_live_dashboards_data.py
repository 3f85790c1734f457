"""Every query of every panel, asked of a real Prometheus that scraped a real fleet: there is something to draw.

Two reasons excuse an empty panel: there is no board, and the server has no metrics of its own. What the run found out,
or did not (a knee, an exact ITL), is shown exactly where its report has it.
"""

import math
import re

import pytest

from loadkit.live.dashboards.files import DASHBOARDS
from loadkit.live.dashboards.promql import metrics_in
from loadkit.live.exporter import Exporter
from loadkit.live.registry import About, Registry

PLAN = ("--tiers", "96,160,256,400", "--concurrency", "1,2,4", "--rounds", "2", "--max-tokens", "8", "--seed", "5")
REASONS = {"loadkit_board_": "no board", "loadkit_server_": "no server metrics"}
SIM = (
    "--ttft-ms", "30", "--hinge-at", "200", "--hinge-per-token-ms", "1", "--itl-ms", "10", "--slots", "2",
    "--error-rate", "0.1", "--retry-after", "0.2",
)  # fmt: skip
SERVER_ROW = {
    "kind": "server", "running": 2.0, "waiting": 1.0, "kv_usage": 0.5, "preemptions": 0.0, "prefix_hit": 0.25,
    "queue_ms": 3.0, "prefill_ms": 90.0, "ttft_ms": 95.0,
}  # fmt: skip
BOARD_ROW = {
    "kind": "board", "frequency_hz": {"big": 2.3e9}, "temperature_c": {"soc": 61.0}, "power_w": {"in": 7.5},
    "memory_bytes_per_s": {"all": 1e10}, "cooling": {"cpu": 1.0}, "load": {"npu": 0.9}, "memory": {"total": 8e9},
}  # fmt: skip


def drawn(board):
    for panel in board["panels"]:
        yield from panel.get("panels") or [panel]


TARGETS = [
    pytest.param(panel, target, id=f"{name}-{panel['id']}-{target['refId']}")
    for name, make in DASHBOARDS.items()
    for panel in drawn(make().to_json())
    for target in panel.get("targets", ())
]


@pytest.fixture(scope="module")
def seen(make_prometheus, free_port, loadkit, make_sim, until):
    """The Prometheus, the run, and when its first and its last scrape were (Unix time)."""
    port = free_port()
    prometheus = make_prometheus([f"127.0.0.1:{port}"])
    words = ("--workers", "2", "--metrics-port", port, "--slo", "ttft=2s", *PLAN)
    run = loadkit("run", make_sim(*SIM), *words)
    run.said("live page:")
    run.watch = loadkit("watch", f"127.0.0.1:{port}", "--no-browser")
    assert run.end() in (0, 3, 6), run.err
    until(lambda: prometheus.one("up") == 0, "a scrape after the run: what came before is kept")
    (info,) = prometheus.api("query", query=f'loadkit_run_info{{run="{run.label}"}}[1h]')["result"]
    (first, _), *_, (last, _) = info["values"]
    return prometheus, run, first, last


def asked(expr, run):
    """An expression as Grafana would send it with everything chosen and a scrape every second."""
    variables = {
        "$__rate_interval": "4s", "$__range": "1h", "$window": "1m", "$run": run.label, "$base": run.label,
        "$endpoint": ".*", "$tier": ".*", "$concurrency": ".*",
    }  # fmt: skip
    for name, value in variables.items():
        expr = expr.replace(name, value)
    assert "$" not in expr
    return expr


def answered(seen, target):
    """Every finite value of the answer."""
    prometheus, run, first, last = seen
    expr = asked(target["expr"], run)
    if target["instant"]:
        rows = prometheus.api("query", query=expr, time=last)["result"]
        values = [float(row["value"][1]) for row in rows]
    else:
        rows = prometheus.api("query_range", query=expr, start=first, end=last + 1, step=1)["result"]
        values = [float(value) for row in rows for _, value in row["values"]]
    return [value for value in values if math.isfinite(value)]


@pytest.fixture(scope="module")
def sampled(make_prometheus, until):
    """A Prometheus that scrapes a run on a board, against a server that tells of itself."""
    registry = Registry(About("r1", "e", ((96, 1),)))
    registry.health(SERVER_ROW)
    registry.health(BOARD_ROW)
    exporter = Exporter(registry, port=0)
    exporter.start()
    prometheus = make_prometheus([f"127.0.0.1:{exporter.port}"])
    until(lambda: prometheus.one("count_over_time(loadkit_run_info[1m])"), "a scrape")
    yield prometheus
    exporter.stop()


@pytest.mark.parametrize(
    ("panel", "target"),
    [param for param in TARGETS if any(prefix in param.values[1]["expr"] for prefix in REASONS)],
)
def test_a_server_and_a_board_that_are_sampled_are_drawn(sampled, panel, target):
    """What the two reasons excuse elsewhere has a finite number here."""
    expr = re.sub(r"\$run", "r1", target["expr"])
    values = sampled.ask(f"last_over_time({expr}[1m])").values()
    assert len(values) == 1, panel["title"]
    assert all(map(math.isfinite, values))


def told(summary, expr):
    """Whether the report has what an expression shows; None where that does not depend on what was found."""
    knee = summary["knee"]
    rates = [found for found in knee["concurrency"] if found["metric"] == "throughput"]
    if "loadkit_knee_context_tokens" in expr:
        return bool(knee["length"]) and knee["length"]["knee"] is not None
    if "loadkit_knee_concurrency" in expr:
        return any(found["knee"] is not None for found in rates)
    if "loadkit_knee_confidence_ratio" in expr:
        return any(found["probability"] is not None for found in [*rates, knee["length"]] if found)
    if "loadkit_slo_met" in expr:
        return any(found["met"] is not None for found in summary["objectives"])
    if 'metric="itl"' in expr:
        return any(cell["itl_ms"] for cell in summary["cells"])
    return None


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_a_panel_has_something_to_draw(seen, panel, target):
    """Finite numbers, or one of the two reasons; what was found out is there where the report has it."""
    values = answered(seen, target)
    names = metrics_in(target["expr"])
    reason = next((why for prefix, why in REASONS.items() if all(n.startswith(prefix) for n in names)), None)
    if reason is not None:
        assert values == [], f"{panel['title']}: {reason}, yet something is drawn"
        return
    wanted = told(seen[1].summary, target["expr"])
    assert bool(values) == (wanted is None or wanted), f"{panel['title']}: {target['expr']}"


def test_a_run_is_its_own_equal(seen):
    """Compared with itself every ratio is one."""
    ratios = [
        answered(seen, target)
        for panel in drawn(DASHBOARDS["loadkit-compare"]().to_json())
        if "share of the base" in panel["title"]
        for target in panel["targets"]
    ]
    assert len(ratios) == 4
    assert {value for values in ratios for value in values} == {1.0}


def test_the_variables_find_the_run_and_its_place(seen):
    """What a person chooses from: the run, its endpoint, its tiers and concurrencies."""
    prometheus, run, first, last = seen
    variables = {v["name"]: v for v in DASHBOARDS["loadkit-live"]().to_json()["templating"]["list"]}
    newest = re.fullmatch(r"query_result\((.*)\)", variables["run"]["query"]["query"])[1]
    rows = prometheus.api("query", query=asked(newest, run), time=last)["result"]
    assert [row["metric"] for row in rows] == [{"run": run.label}]
    assert re.findall(variables["run"]["regex"].strip("/"), f'{{run="{run.label}"}}') == [run.label]
    cells = run.summary["cells"]
    wanted = {
        "endpoint": {run.manifest["endpoint"]["name"]},
        "tier": {str(cell["tier_tokens"]) for cell in cells},
        "concurrency": {str(cell["concurrency"]) for cell in cells},
    }
    for name, values in wanted.items():
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variables[name]["query"]["query"]).groups()
        found = prometheus.api("series", **{"match[]": asked(selector, run), "start": first, "end": last})
        assert {row[label] for row in found} == values


def test_every_visit_has_its_mark(seen):
    """The values of the query for marks are the moments, in ms, at which visits opened."""
    prometheus, run, first, last = seen
    marks = {mark["name"]: mark for mark in DASHBOARDS["loadkit-live"]().to_json()["annotations"]["list"]}
    expr = asked(marks["Stages"]["expr"], run)
    rows = prometheus.api("query_range", query=expr, start=first, end=last + 1, step=1)["result"]
    cells = {(row["metric"]["tier"], row["metric"]["concurrency"]) for row in rows}
    assert cells == {(str(c["tier_tokens"]), str(c["concurrency"])) for c in run.summary["cells"]}
    moments = {float(value) / 1e3 for row in rows for _, value in row["values"]}
    assert all(first - 60 <= moment <= last for moment in moments)
    assert prometheus.ask(asked(marks["Lost workers"]["expr"], run), last) == {}


def test_a_run_is_watched_with_one_command(seen):
    """While it goes on `loadkit watch` finds the page at the address the run prints."""
    _, run, _, _ = seen
    assert run.watch.end() == 0, run.watch.err
    (line,) = [line for line in run.err.splitlines() if line.startswith("live page:")]
    assert line in run.watch.err

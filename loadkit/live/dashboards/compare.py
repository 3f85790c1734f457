"""The dashboard that puts runs beside one another, cell by cell, also of runs that were brought in later."""

from loadkit.live.dashboards.board import Dashboard, Row, place_variables, run_variable
from loadkit.live.dashboards.panel import TOKENS_PER_S, Panel, Query, bars, table
from loadkit.live.dashboards.promql import RANGE, RUNS, by, last, of, share
from loadkit.live.labels import TIMES

CELL = "tier, concurrency"
OF_CELL = "{{run}}: {{tier}} x {{concurrency}}"
EXACT = "loadkit_stage_quantile_seconds"
BASE = 'run="$base"'
SHOWN = {"ttft": "TTFT", "itl": "Inter-token latency", "tpot": "Time per output token", "e2e": "End to end"}


def runs() -> Row:
    """What was run."""
    join = "* on (run) group_left (version, locust_version, plan, seed, target)"
    about = f"{last('loadkit_endpoint_info', run=RUNS)} {join} {last('loadkit_run_info', run=RUNS)}"
    return Row("Runs", (table("What was loaded", "short", Query(about), hidden=("job", "instance", "Value")),))


def times() -> Row:
    """Exact medians of each cell, and what they are of those of the base."""
    return Row("Latency, exact medians", [panel for metric in TIMES for panel in _pair(metric)])


def _pair(metric: str) -> tuple[Panel, Panel]:
    mine, base = _median(metric, RUNS, f"run, {CELL}"), _median(metric, BASE, CELL)
    ratio = f"{mine} / on ({CELL}) group_left () {base}"
    name = SHOWN[metric]
    return (
        bars(f"{name} by cell", "s", Query(f"sort({mine})", OF_CELL)),
        bars(
            f"{name} as a share of the base",
            "percentunit",
            Query(f"sort({ratio})", OF_CELL),
            note="100 % is as slow as the base. `loadkit diff` says whether a difference is one.",
        ),
    )


def _median(metric: str, run: str, labels: str) -> str:
    return by(labels, last(EXACT, f'metric="{metric}"', 'q="0.5"', run=run), "max")


def yields() -> Row:
    """What came out, and how it ended."""
    output = of("loadkit_tokens_total", 'direction="output"', run=RUNS)
    peak = f"max_over_time({by('run', f'rate({output}[1m])')}[{RANGE}:15s])"
    bad = by("run", last("loadkit_requests_total", 'outcome!="ok"', run=RUNS))
    met, judged = (by("run, slo", last(name, run=RUNS)) for name in ("loadkit_slo_ok_total", "loadkit_slo_total"))
    return Row(
        "Yield",
        (
            bars("Most tokens generated over a minute", TOKENS_PER_S, Query(f"sort({peak})", "{{run}}"), width=8),
            bars(
                "Requests that failed",
                "percentunit",
                Query(share(bad, by("run", last("loadkit_requests_total", run=RUNS))), "{{run}}"),
                width=8,
            ),
            bars("Objectives met", "percentunit", Query(share(met, judged), "{{run}}: {{slo}}"), width=8),
        ),
    )


def knees() -> Row:
    """Where each run bent."""
    names = ("loadkit_knee_context_tokens", "loadkit_knee_concurrency", "loadkit_knee_confidence_ratio")
    length, streams, confidence = (last(name, run=RUNS) for name in names)
    verdicts = by("run, status", last("loadkit_cell_validity", run=RUNS))
    return Row(
        "Knees and verdicts",
        (
            bars("Knee over length", "short", Query(length, "{{run}}"), width=6, note="In prompt tokens."),
            bars("Knee over concurrency", "short", Query(streams, "{{run}}: {{tier}} tokens"), width=6),
            bars("Confidence in a knee", "percentunit", Query(confidence, "{{run}}: {{axis}}"), width=6),
            bars("Cells by verdict", "short", Query(verdicts, "{{run}}: {{status}}"), width=6),
        ),
    )


def dashboard() -> Dashboard:
    """Compare runs."""
    return Dashboard(
        "loadkit-compare",
        "loadkit: compare runs",
        "Runs beside one another, cell by cell; choose the time in which they were, and one as the base.",
        (runs(), times(), yields(), knees()),
        (run_variable(many=True, label="Runs"), run_variable("base", "Base"), *place_variables(RUNS)),
        since="now-24h",
        refresh="",
    )

"""Rows of the live dashboard that say how requests end, what was found, and whether the numbers may be believed."""

from loadkit.live.dashboards.board import Row
from loadkit.live.dashboards.panel import Panel, Query, bars, lines, stat, table
from loadkit.live.dashboards.promql import WINDOW, by, last, of, rate, share
from loadkit.live.table import BY_NAME
from loadkit.measure.validity import HEALTH_LIMITS

INVALID = HEALTH_LIMITS[0]
CELL = "tier, concurrency"


def outcomes() -> Row:
    """How requests end."""
    return Row(
        "Outcomes",
        (
            lines(
                "Requests by outcome",
                "reqps",
                Query(by("outcome", rate("loadkit_requests_total")), "{{outcome}}"),
                width=8,
                stacked=True,
            ),
            lines(
                "Attempts by HTTP status",
                "reqps",
                Query(by("code", rate("loadkit_attempts_total")), "{{code}}"),
                width=8,
                stacked=True,
            ),
            lines(
                "Retries by HTTP status",
                "reqps",
                Query(by("code", rate("loadkit_retries_total")), "{{code}}"),
                width=8,
                stacked=True,
            ),
            lines(
                "Time waited before retries",
                "s",
                Query(by("code", rate("loadkit_retry_wait_seconds_total")), "{{code}}"),
                note="Seconds in each second, over all streams.",
                width=8,
            ),
            lines(
                "Arrivals of an open loop",
                "reqps",
                Query(by("", rate("loadkit_arrivals_total")), "came due"),
                Query(by("", rate("loadkit_dropped_arrivals_total")), "dropped"),
                note="What found no free stream is dropped. In a closed loop both are 0.",
                width=8,
            ),
            lines(
                "Objectives met over time",
                "percentunit",
                Query(
                    share(
                        by("slo", rate("loadkit_slo_ok_total", window=WINDOW)),
                        by("slo", rate("loadkit_slo_total", window=WINDOW)),
                    ),
                    "{{slo}}",
                ),
                width=8,
                top=1,
            ),
            bars(
                "Requests so far",
                "short",
                Query(f"sort({by('outcome', last('loadkit_requests_total'))} > 0)", "{{outcome}}"),
                width=12,
            ),
            lines(
                "Connections opened while measuring",
                "short",
                Query(by("endpoint", last("loadkit_connect_seconds_count")), "{{endpoint}}"),
                note="Few where streams keep theirs.",
            ),
        ),
    )


def findings() -> Row:
    """Cells that were visited, and the knees."""
    exact = "loadkit_stage_quantile_seconds"

    def column(metric: str, q: str, title: str) -> Query:
        return Query(by(CELL, last(exact, f'metric="{metric}"', f'q="{q}"'), "max"), column=title)

    verdict = by(f"{CELL}, status", last("loadkit_cell_validity"), "max") + " == 1"
    samples = by(CELL, last("loadkit_stage_samples", 'metric="ttft"'))
    met = by(CELL, last("loadkit_slo_met"), "min")
    return Row(
        "Cells and knees so far",
        (
            table(
                "Cells, exact",
                "s",
                column("ttft", "0.5", "TTFT p50"),
                column("ttft", "0.95", "TTFT p95"),
                column("itl", "0.5", "ITL p50"),
                column("tpot", "0.5", "TPOT p50"),
                column("e2e", "0.5", "E2E p50"),
                Query(verdict),
                width=24,
                note="`status` is the verdict, once the run is over.",
            ),
            bars(
                "Samples of TTFT",
                "short",
                Query(f"sort({samples})", "{{tier}} x {{concurrency}}"),
                width=8,
                note="p95 wants 20 and p99 100.",
            ),
            bars(
                "Every objective met",
                "bool_yes_no",
                Query(met, "{{tier}} x {{concurrency}}"),
                width=8,
            ),
            *_knees(),
        ),
    )


def _knees() -> list[Panel]:
    length, streams = last("loadkit_knee_context_tokens"), last("loadkit_knee_concurrency")
    confidence = last("loadkit_knee_confidence_ratio")
    return [
        stat("Knee over length", "short", Query(length, "{{endpoint}}"), width=4, note="In prompt tokens."),
        stat("Confidence in a knee", "percentunit", Query(confidence, "{{axis}}"), width=4),
        bars("Knee over concurrency", "short", Query(streams, "{{tier}}"), width=8),
    ]


def generator() -> Row:
    """Whether the numbers may be believed."""
    lag = "loadkit_worker_loop_lag_seconds"
    limit = f"Above {INVALID.lag_ms:g} ms, and a quarter of the gap between tokens, a cell is invalid."
    return Row(
        "Load generator",
        (
            lines(
                "Event loop lag",
                "s",
                Query(of(lag, 'q="0.99"'), "{{worker}} p99"),
                Query(of(lag, 'q="1"'), "{{worker}} worst"),
                note=limit,
                width=8,
            ),
            lines(
                "CPU of each process",
                "percentunit",
                Query(of("loadkit_worker_cpu_ratio"), "{{worker}}"),
                note=f"Above {INVALID.cpu:.0%} of a core a cell is invalid.",
                width=8,
            ),
            lines(
                "Values left out",
                "short",
                Query(by("metric", last("loadkit_rejected_samples_total")), "{{metric}}"),
                width=8,
            ),
        ),
    )


def server() -> Row:
    """What the target says of itself."""
    time_names = ("queue", "prefill", "ttft")
    note = "Only of targets whose /metrics is known: vLLM, SGLang, llama.cpp, TGI, our engine."
    return Row(
        "Server",
        (
            lines(
                "Requests in the server",
                "short",
                Query(of("loadkit_server_running_requests"), "running"),
                Query(of("loadkit_server_waiting_requests"), "waiting"),
                note=note,
                width=8,
            ),
            lines(
                "Where the server spends TTFT",
                "s",
                *(Query(of(f"loadkit_server_{name}_seconds"), name) for name in time_names),
                note=note,
                width=8,
            ),
            lines(
                "Caches of the server",
                "percentunit",
                Query(of("loadkit_server_kv_usage_ratio"), "KV cache in use"),
                Query(of("loadkit_server_prefix_hit_ratio"), "prefix hits"),
                note=note,
                width=8,
                top=1,
            ),
            lines("Preemptions", "short", Query(of("loadkit_server_preemptions"), "so far"), note=note, width=8),
        ),
        folded=True,
    )


def edge() -> Row:
    """The board the target runs on; one panel for each of its metrics."""
    units = {"hertz": "hertz", "celsius": "celsius", "watts": "watt", "bytes per second": "Bps", "bytes": "bytes"}
    metrics = [metric for name, metric in BY_NAME.items() if name.startswith("loadkit_board_")]
    return Row(
        "Board",
        [
            lines(
                metric.help.rstrip("."),
                units.get(metric.unit, "percentunit" if metric.name.endswith("_ratio") else "short"),
                Query(of(metric.name), "{{sensor}}"),
                note="Only where the target runs on a board that is sampled.",
            )
            for metric in metrics
        ],
        folded=True,
    )

"""The one table of the live metrics. Exporter, docs/metrics.md, rules, dashboards and their tests are made from it.

Every series also carries `run`, the id of the run, so that two runs after one another never mix. Label values come from
closed sets or from the plan; text of a server is never one.
"""

from dataclasses import dataclass

from loadkit.live.labels import PLACE
from loadkit.measure.histogram import (
    E2E_BOUNDS_S,
    ITL_BOUNDS_S,
    TPOT_BOUNDS_S,
    TTFT_BOUNDS_S,
    UNIT_PRICE_BOUNDS_S,
)

CONNECT_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One family. `labels` are those beside `run`; `source` says where its values come from; bounds in its unit."""

    name: str
    kind: str  # counter, gauge, histogram or info
    unit: str
    labels: tuple[str, ...]
    help: str
    source: str
    bounds: tuple[float, ...] = ()

    @property
    def base(self) -> str:
        """The family's name in OpenMetrics, which leaves out what its samples end in."""
        return self.name.removesuffix({"counter": "_total", "info": "_info"}.get(self.kind, ""))

    @property
    def place(self) -> int:
        """How many of its labels, from the first, say where in the plan it belongs."""
        return sum(mine == name for mine, name in zip(self.labels, PLACE, strict=False))

    @property
    def lines(self) -> int:
        """Series of one set of labels: each finite bound, +Inf, sum and count of a histogram, else one."""
        return len(self.bounds) + 3 if self.kind == "histogram" else 1


MEASURED = "records of phase measure and outcome ok"
TELEMETRY = "telemetry, once a second and where a visit opens or closes"
SUMMARY = "the summary, when the run is over"
STAGE = "raw samples of the cell when a visit of it closes; the summary when the run is over"
BOARD = "samples of an edge board"
SERVER = "the target's own /metrics"

METRICS: tuple[Metric, ...] = (
    Metric(
        "loadkit_run_info",
        "info",
        "",
        ("version", "locust_version", "plan", "seed", "target"),
        "The run that is served.",
        "the plan",
    ),
    Metric(
        "loadkit_endpoint_info",
        "info",
        "",
        ("endpoint", "model", "protocol", "host"),
        "What is loaded: join it on run and endpoint.",
        "the plan",
    ),
    Metric(
        "loadkit_ttft_seconds",
        "histogram",
        "seconds",
        PLACE,
        "Time from the first byte sent to the first event with generated content.",
        f"ttft_ms; {MEASURED}",
        TTFT_BOUNDS_S,
    ),
    Metric(
        "loadkit_itl_seconds",
        "histogram",
        "seconds",
        PLACE,
        "Gaps between token events.",
        f"itl_ms; {MEASURED}",
        ITL_BOUNDS_S,
    ),
    Metric(
        "loadkit_tpot_seconds",
        "histogram",
        "seconds",
        PLACE,
        "Time per output token of a request, after its first event.",
        f"tpot_ms; {MEASURED}",
        TPOT_BOUNDS_S,
    ),
    Metric(
        "loadkit_e2e_seconds",
        "histogram",
        "seconds",
        PLACE,
        "Time from the first byte sent to the last token.",
        f"e2e_ms; {MEASURED}",
        E2E_BOUNDS_S,
    ),
    Metric(
        "loadkit_connect_seconds",
        "histogram",
        "seconds",
        ("endpoint",),
        "DNS, TCP and TLS of connections that were opened; kept out of TTFT.",
        f"connect_ms; {MEASURED}",
        CONNECT_BOUNDS_S,
    ),
    Metric(
        "loadkit_prefill_seconds_per_token",
        "histogram",
        "seconds per token",
        ("endpoint", "tier"),
        "Unit price of the prompt: TTFT over prompt tokens without BOS and cached ones, at concurrency 1.",
        f"unit_price_ms; {MEASURED}, concurrency 1",
        UNIT_PRICE_BOUNDS_S,
    ),
    Metric(
        "loadkit_requests_total",
        "counter",
        "requests",
        (*PLACE, "phase", "outcome", "code"),
        "Requests that ended, by how and by the HTTP status of the last attempt.",
        "outcome, http_status, phase; every record",
    ),
    Metric(
        "loadkit_attempts_total",
        "counter",
        "attempts",
        ("endpoint", "tier", "code"),
        "HTTP attempts, the ones tried again included.",
        "attempts; every record",
    ),
    Metric(
        "loadkit_retries_total",
        "counter",
        "attempts",
        ("endpoint", "tier", "code"),
        "Attempts that were followed by another.",
        "attempts; every record",
    ),
    Metric(
        "loadkit_retry_wait_seconds_total",
        "counter",
        "seconds",
        ("endpoint", "tier", "code"),
        "Time waited after such attempts, by Retry-After or our own back-off.",
        "attempts; every record",
    ),
    Metric(
        "loadkit_tokens_total",
        "counter",
        "tokens",
        (*PLACE, "phase", "direction"),
        "Tokens of ended requests: read by the server (input), of those from a cache (cached), generated (output).",
        "prompt_tokens, cached_tokens, output_tokens; every record that knows them",
    ),
    Metric(
        "loadkit_arrivals_total",
        "counter",
        "requests",
        PLACE,
        "Requests of an open loop that came due by its schedule; 0 in a closed one.",
        TELEMETRY,
    ),
    Metric(
        "loadkit_dropped_arrivals_total",
        "counter",
        "requests",
        PLACE,
        "Of these the ones that found no free stream (--max-in-flight), and were not sent.",
        TELEMETRY,
    ),
    Metric(
        "loadkit_slo_total",
        "counter",
        "requests",
        (*PLACE, "slo"),
        "Measured requests that an objective says something about.",
        "--slo; records of phase measure",
    ),
    Metric(
        "loadkit_slo_ok_total",
        "counter",
        "requests",
        (*PLACE, "slo"),
        "Measured requests that met the objective; a failed one did not.",
        "--slo; records of phase measure",
    ),
    Metric(
        "loadkit_rejected_samples_total",
        "counter",
        "samples",
        ("metric",),
        "Values left out of the histograms because they were missing, negative or not finite.",
        MEASURED,
    ),
    Metric(
        "loadkit_stage_quantile_seconds",
        "gauge",
        "seconds",
        (*PLACE, "metric", "q"),
        "Exact nearest-rank quantiles of a cell; ITL is left out where reads or events held several tokens. Beyond 4 "
        "million values of a cell (32 MB) they come with the summary only.",
        STAGE,
    ),
    Metric(
        "loadkit_stage_samples",
        "gauge",
        "samples",
        (*PLACE, "metric"),
        "How many values stand behind the quantiles.",
        STAGE,
    ),
    Metric(
        "loadkit_stage_start_timestamp_seconds",
        "gauge",
        "seconds",
        PLACE,
        "When the last visit of the cell opened, in Unix time.",
        "stage events",
    ),
    Metric(
        "loadkit_cell_validity",
        "gauge",
        "",
        (*PLACE, "status"),
        "1 for the verdict on the cell, 0 for the others; all 0 while there is none.",
        SUMMARY,
    ),
    Metric(
        "loadkit_slo_met",
        "gauge",
        "",
        (*PLACE, "slo"),
        "1 where a cell meets the objective, 0 where it does not.",
        SUMMARY,
    ),
    Metric(
        "loadkit_knee_context_tokens",
        "gauge",
        "tokens",
        ("endpoint",),
        "Prompt length at the knee of TTFT at concurrency 1; absent without one.",
        SUMMARY,
    ),
    Metric(
        "loadkit_knee_concurrency",
        "gauge",
        "streams",
        ("endpoint", "tier"),
        "Streams at the knee of throughput of a tier; absent without one.",
        SUMMARY,
    ),
    Metric(
        "loadkit_knee_confidence_ratio",
        "gauge",
        "",
        ("endpoint", "axis"),
        "Probability that there is a knee within what was tested; over concurrency the greatest of all tiers.",
        SUMMARY,
    ),
    Metric("loadkit_users", "gauge", "users", (), "Streams that are there, of those the visit needs.", TELEMETRY),
    Metric("loadkit_target_users", "gauge", "users", (), "Streams that the open visit needs.", TELEMETRY),
    Metric(
        "loadkit_target_concurrency",
        "gauge",
        "streams",
        (),
        "Concurrency of the open visit; 0 between.",
        "stage events",
    ),
    Metric(
        "loadkit_phase",
        "gauge",
        "",
        ("state",),
        "1 for what the run does now: idle between visits, a visit, linger.",
        "stage events",
    ),
    Metric("loadkit_workers", "gauge", "workers", ("state",), "Worker processes, planned and live.", TELEMETRY),
    Metric("loadkit_worker_lost_total", "counter", "workers", (), "Workers that were lost.", "the master"),
    Metric("loadkit_inflight", "gauge", "requests", ("worker",), "Streams in flight.", TELEMETRY),
    Metric("loadkit_worker_users", "gauge", "users", ("worker",), "Streams the process has.", TELEMETRY),
    Metric("loadkit_worker_cpu_ratio", "gauge", "", ("worker",), "Share of one core the process used.", TELEMETRY),
    Metric(
        "loadkit_worker_loop_lag_seconds",
        "gauge",
        "seconds",
        ("worker", "q"),
        "How late the event loop woke in the last sample: the error bar of every time; q 1 is the worst.",
        TELEMETRY,
    ),
    Metric(
        "loadkit_worker_report_age_seconds",
        "gauge",
        "seconds",
        ("worker",),
        "How long ago the process was last heard of.",
        "telemetry, at the moment of the scrape",
    ),
    Metric("loadkit_board_frequency_hertz", "gauge", "hertz", ("sensor",), "Clock of a unit of the board.", BOARD),
    Metric("loadkit_board_temperature_celsius", "gauge", "celsius", ("sensor",), "Temperature on the board.", BOARD),
    Metric("loadkit_board_power_watts", "gauge", "watts", ("sensor",), "Power the board takes.", BOARD),
    Metric("loadkit_board_memory_bytes_per_second", "gauge", "bytes per second", ("sensor",), "Memory traffic.", BOARD),
    Metric("loadkit_board_cooling_state", "gauge", "", ("sensor",), "State of a cooling device; 0 is off.", BOARD),
    Metric("loadkit_board_load_ratio", "gauge", "", ("sensor",), "Share of a unit of the board that is busy.", BOARD),
    Metric("loadkit_board_memory_bytes", "gauge", "bytes", ("sensor",), "Memory and swap of the board.", BOARD),
    Metric("loadkit_server_running_requests", "gauge", "requests", (), "Requests the server works on.", SERVER),
    Metric("loadkit_server_waiting_requests", "gauge", "requests", (), "Requests that wait in the server.", SERVER),
    Metric("loadkit_server_kv_usage_ratio", "gauge", "", (), "Share of the KV cache in use.", SERVER),
    Metric("loadkit_server_preemptions", "gauge", "requests", (), "Preemptions the server has counted.", SERVER),
    Metric("loadkit_server_prefix_hit_ratio", "gauge", "", (), "Share of prompt tokens found in a cache.", SERVER),
    Metric(
        "loadkit_server_queue_seconds", "gauge", "seconds", (), "Mean wait for a slot since the last sample.", SERVER
    ),
    Metric(
        "loadkit_server_prefill_seconds", "gauge", "seconds", (), "Mean prefill time since the last sample.", SERVER
    ),
    Metric(
        "loadkit_server_ttft_seconds",
        "gauge",
        "seconds",
        (),
        "Mean TTFT as the server sees it, since the last sample; what the client sees beyond it is the network.",
        SERVER,
    ),
    Metric(
        "loadkit_last_scrape_timestamp_seconds",
        "gauge",
        "seconds",
        (),
        "When this page was last asked for, in Unix time; 0 before.",
        "the exporter",
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}

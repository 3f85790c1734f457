"""The dashboard of the processes that load: are all there, and does each keep up?"""

from loadkit.live.dashboards.board import LOST, STAGES, Dashboard, Row, run_variable
from loadkit.live.dashboards.panel import Query, bars, lines, stat
from loadkit.live.dashboards.promql import by, last, of
from loadkit.measure.validity import HEALTH_LIMITS

INVALID, SUSPECT = HEALTH_LIMITS
LAG = "loadkit_worker_loop_lag_seconds"


def fleet() -> Row:
    """The fleet as a whole."""
    cpu, age = (by("", of(f"loadkit_worker_{name}"), "max") for name in ("cpu_ratio", "report_age_seconds"))
    seen = f"time() - {of('loadkit_last_scrape_timestamp_seconds')}"
    return Row(
        "Fleet",
        (
            stat("Workers planned", "short", Query(of("loadkit_workers", 'state="planned"'), "planned"), width=4),
            stat("Workers live", "short", Query(of("loadkit_workers", 'state="live"'), "live"), width=4),
            stat("Lost", "short", Query(last("loadkit_worker_lost_total"), "lost"), limits=((1, "red"),), width=4),
            stat(
                "Busiest process",
                "percentunit",
                Query(cpu, "CPU"),
                limits=((SUSPECT.cpu, "orange"), (INVALID.cpu, "red")),
                width=4,
            ),
            stat("Longest silence", "s", Query(age, "age"), limits=((5, "orange"), (10, "red")), width=4),
            stat("Last scrape", "s", Query(seen, "ago"), note="Of whoever asks, this Prometheus too.", width=4),
        ),
    )


def streams() -> Row:
    """Who has how many."""
    return Row(
        "Streams",
        (
            lines(
                "Workers",
                "short",
                Query(of("loadkit_workers"), "{{state}}"),
                Query(of("loadkit_worker_lost_total"), "lost"),
                width=8,
            ),
            lines("Streams of each worker", "short", Query(of("loadkit_worker_users"), "{{worker}}"), width=8),
            lines("In flight in each worker", "short", Query(of("loadkit_inflight"), "{{worker}}"), width=8),
            lines(
                "Streams, planned and live",
                "short",
                Query(of("loadkit_target_users"), "planned"),
                Query(of("loadkit_users"), "live"),
            ),
            lines("Silence of each process", "s", Query(of("loadkit_worker_report_age_seconds"), "{{worker}}")),
        ),
    )


def health() -> Row:
    """How well each keeps up."""
    limit = f"Suspect above {SUSPECT.lag_ms:g} ms, invalid above {INVALID.lag_ms:g} ms and a share of the token gap."
    return Row(
        "Health",
        (
            lines("Event loop lag, p99", "s", Query(of(LAG, 'q="0.99"'), "{{worker}}"), note=limit),
            lines("Event loop lag, worst", "s", Query(of(LAG, 'q="1"'), "{{worker}}"), note=limit),
            lines(
                "CPU of each process",
                "percentunit",
                Query(of("loadkit_worker_cpu_ratio"), "{{worker}}"),
                note=f"Suspect above {SUSPECT.cpu:.0%} of a core, invalid above {INVALID.cpu:.0%}.",
            ),
            bars("Values left out", "short", Query(last("loadkit_rejected_samples_total"), "{{metric}}")),
        ),
    )


def dashboard() -> Dashboard:
    """Fleet health."""
    return Dashboard(
        "loadkit-fleet",
        "loadkit: fleet health",
        "The processes that load: whether all are there and keep up.",
        (fleet(), streams(), health()),
        (run_variable(),),
        (STAGES, LOST),
    )

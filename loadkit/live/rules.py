"""Recording and alert rules of Prometheus, made from the table; `python -m loadkit.live` writes grafana/rules/.

The limits are those by which the report judges, so that an alert and a verdict do not contradict each other.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from loadkit.live.families import number
from loadkit.live.labels import PLACE, RUN
from loadkit.live.table import BY_NAME
from loadkit.measure.validity import HEALTH_LIMITS

INVALID = HEALTH_LIMITS[0]
WINDOW = "1m"
ERROR_SHARE = 0.05
OVERFLOW_SHARE = 0.01
STALE_S = 10
HOT_CELSIUS = 85  # where the boards we know begin to slow down
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
CELL = ", ".join((RUN, *PLACE))
TIMES = ("loadkit_ttft_seconds", "loadkit_itl_seconds", "loadkit_tpot_seconds", "loadkit_e2e_seconds")
REFUSED = "auth|forbidden"
LIMITED = "rate_limited|quota_exhausted|overloaded"


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that is worked out at every evaluation."""

    record: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition a person should know of. `wait` is how long it has to hold."""

    name: str
    expr: str
    wait: str
    severity: str  # warning: the numbers need a look; critical: they may not be used
    summary: str


def recordings() -> Iterator[Recording]:
    """Quantiles by cell, rates and shares by run."""
    for name in TIMES:
        rate = f"sum by (le, {CELL}) (rate({name}_bucket[{WINDOW}]))"
        for shown, q in QUANTILES.items():
            yield Recording(f"cell:{name}:{shown}_{WINDOW}", f"histogram_quantile({q}, {rate})")
    gaps = f"sum by (le, {RUN}) (rate(loadkit_itl_seconds_bucket[{WINDOW}]))"
    yield Recording(f"run:loadkit_itl_seconds:p50_{WINDOW}", f"histogram_quantile(0.5, {gaps})")
    tokens = f'rate(loadkit_tokens_total{{direction="output"}}[{WINDOW}])'
    yield Recording(f"endpoint:loadkit_output_tokens:rate{WINDOW}", f"sum by ({RUN}, endpoint) ({tokens})")
    yield Recording(f"endpoint:loadkit_requests:rate{WINDOW}", _share_of("", f"sum by ({RUN}, endpoint)"))
    yield Recording(f"endpoint:loadkit_error:ratio{WINDOW}", _share('outcome!="ok"'))
    met = f"sum by ({CELL}, slo) (increase(loadkit_slo_ok_total[5m]))"
    yield Recording("cell:loadkit_slo:ratio5m", f"{met} / sum by ({CELL}, slo) (increase(loadkit_slo_total[5m]))")


def alerts() -> Iterator[Alert]:
    """What may be wrong with the server, the load generator, or the numbers."""
    yield Alert(
        "LoadkitErrorRatioHigh",
        f'{_share(f"""outcome!~"ok|{REFUSED}|{LIMITED}" """.strip())} > {ERROR_SHARE}',
        "30s",
        "warning",
        f"More than {ERROR_SHARE:.0%} of the measured requests fail, refused keys and rate limits left out",
    )
    yield Alert(
        "LoadkitUnauthorised",
        f'{_share(f"""outcome=~"{REFUSED}" """.strip())} > 0',
        "0s",
        "critical",
        "The endpoint refuses the key",
    )
    yield Alert(
        "LoadkitRateLimited",
        f'{_share(f"""outcome=~"{LIMITED}" """.strip())} > {ERROR_SHARE}',
        "30s",
        "warning",
        f"More than {ERROR_SHARE:.0%} of the measured requests are rate limited: lower the concurrency",
    )
    yield Alert(
        "LoadkitWorkerLost",
        "increase(loadkit_worker_lost_total[5m]) > 0",
        "0s",
        "critical",
        "A worker was lost: the visit it measured is repeated",
    )
    yield Alert(
        "LoadkitGeneratorSaturated",
        f"loadkit_worker_cpu_ratio > {INVALID.cpu} or {_late()}",
        "10s",
        "critical",
        "The load generator, not the server, is what is measured",
    )
    yield Alert(
        "LoadkitNothingFinishes",
        f"sum by ({RUN}) (loadkit_inflight) > 0 and sum by ({RUN}) (increase(loadkit_requests_total[10m])) == 0",
        "10m",
        "warning",
        "Requests are in flight and none has ended for ten minutes",
    )
    yield from map(_overflow, TIMES)
    yield Alert(
        "LoadkitTargetConcurrencyNotReached",
        "loadkit_users < loadkit_target_users",
        "15s",
        "critical",
        "Fewer streams are there than the visit needs",
    )
    yield Alert(
        "LoadkitWorkerSilent",
        f"loadkit_worker_report_age_seconds > {STALE_S}",
        "0s",
        "warning",
        f"A process has not been heard of for {STALE_S} s",
    )
    yield Alert(
        "LoadkitBoardHot",
        f"loadkit_board_temperature_celsius > {HOT_CELSIUS}",
        "10s",
        "warning",
        f"The board is hotter than {HOT_CELSIUS} °C, where it slows down",
    )


def _share(outcomes: str) -> str:
    """The share of the measured requests that ended so, by endpoint."""
    by = f"sum by ({RUN}, endpoint)"
    return f"{_share_of(outcomes, by)} / {_share_of('', by)}"


def _share_of(outcomes: str, by: str) -> str:
    chosen = ", ".join(part for part in ('phase="measure"', outcomes) if part)
    return f"{by} (rate(loadkit_requests_total{{{chosen}}}[{WINDOW}]))"


def _late() -> str:
    """The event loop is later than the limit, and than the share of the gaps it has to resolve where there are some."""
    late = 'loadkit_worker_loop_lag_seconds{q="0.99"}'
    gap = f"{INVALID.itl_share} * run:loadkit_itl_seconds:p50_{WINDOW}"
    return f"({late} > {INVALID.lag_ms / 1e3} unless ({late} <= on ({RUN}) group_left () ({gap})))"


def _overflow(name: str) -> Alert:
    top = number(BY_NAME[name].bounds[-1])
    below = f'sum by ({CELL}) ({name}_bucket{{le="{top}"}}) / sum by ({CELL}) ({name}_count)'
    short = name.removeprefix("loadkit_").removesuffix("_seconds").upper()
    return Alert(
        f"LoadkitHistogramOverflow{short}",
        f"1 - {below} > {OVERFLOW_SHARE}",
        "0s",
        "warning",
        f"More than {OVERFLOW_SHARE:.0%} of {short} lies above {top} s: its quantiles read as that bound",
    )


def rules_yaml() -> str:
    """grafana/rules/loadkit.rules.yaml. JSON strings are YAML strings."""
    lines = ["# Made by `python -m loadkit.live`; change loadkit/live/rules.py.", "groups:"]
    lines += ["  - name: loadkit-recording", "    interval: 5s", "    rules:"]
    for recording in recordings():
        lines += [f"      - record: {recording.record}", f"        expr: {json.dumps(recording.expr)}"]
    lines += ["  - name: loadkit-alerts", "    interval: 5s", "    rules:"]
    for alert in alerts():
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.wait}",
            f"        labels: {{severity: {alert.severity}}}",
            f"        annotations: {{summary: {json.dumps(alert.summary, ensure_ascii=False)}}}",
        ]
    return "\n".join(lines) + "\n"

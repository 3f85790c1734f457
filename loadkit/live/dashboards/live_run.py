"""The dashboard of one run while it goes on, or after it."""

from loadkit.live.dashboards.board import LOST, STAGES, WINDOW_VARIABLE, Dashboard, Row, place_variables, run_variable
from loadkit.live.dashboards.panel import TOKENS_PER_S, Panel, Query, bars, heat, lines, stat, table
from loadkit.live.dashboards.promql import STEP, WINDOW, by, last, of, quantile, rate, share, total
from loadkit.live.dashboards.run_verdicts import edge, findings, generator, outcomes, server
from loadkit.measure.validity import HEALTH_LIMITS

INVALID, SUSPECT = HEALTH_LIMITS
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
ROLLING = "Over the chosen window, at most 28 % off; the exact ones are in the table of cells."


def now() -> Row:
    """One line of numbers, and what is loaded with what."""
    requests, bad = total("loadkit_requests_total"), total("loadkit_requests_total", 'outcome!="ok"')
    met, judged = (total(name, window=WINDOW) for name in ("loadkit_slo_ok_total", "loadkit_slo_total"))
    output = total("loadkit_tokens_total", 'direction="output"')
    lag = by("", of("loadkit_worker_loop_lag_seconds", 'q="0.99"'), "max")
    run = "on (run) group_left (version, plan, seed, target)"
    about = f"{last('loadkit_endpoint_info')} * {run} {last('loadkit_run_info')}"
    return Row(
        "Now",
        (
            stat("State", "string", Query(f"{of('loadkit_phase')} == 1", "{{state}}")),
            stat("Concurrency of the visit", "short", Query(of("loadkit_target_concurrency"), "streams")),
            stat("Streams in flight", "short", Query(f"sum({of('loadkit_inflight')})", "streams")),
            stat("Requests", "reqps", Query(requests, "requests")),
            stat("Generated", TOKENS_PER_S, Query(output, "output")),
            stat(
                "Failing",
                "percentunit",
                Query(share(bad, requests), "share"),
                limits=((0.01, "orange"), (0.05, "red")),
            ),
            stat(
                "Objectives met",
                "percentunit",
                Query(share(met, judged), "share"),
                note="Of all objectives together; none without --slo.",
            ),
            stat(
                "Lag of the generator",
                "s",
                Query(lag, "p99"),
                limits=((SUSPECT.lag_ms / 1e3, "orange"), (INVALID.lag_ms / 1e3, "red")),
            ),
            table("What is loaded", "short", Query(about), hidden=("job", "instance", "Value"), height=4),
        ),
    )


def load() -> Row:
    """What the plan wants against what there is, and what comes out of it."""
    tokens = by("direction", rate("loadkit_tokens_total"))
    return Row(
        "Load",
        (
            lines(
                "Streams, planned and live",
                "short",
                Query(of("loadkit_target_users"), "planned"),
                Query(of("loadkit_users"), "live"),
                Query(f"sum({of('loadkit_inflight')})", "in flight"),
                note="A visit whose planned and live streams differ is invalid.",
            ),
            lines("Tokens", TOKENS_PER_S, Query(tokens, "{{direction}}"), note="Counted when their request ends."),
        ),
    )


def first_token() -> Row:
    """TTFT by length."""
    name = "loadkit_ttft_seconds"
    rolling = [
        Query(quantile(q, name, "tier"), f"{{{{tier}}}} {shown}", exemplars=shown == "p95") for shown, q in QUANTILES
    ]
    exact = by("tier, concurrency", last("loadkit_stage_quantile_seconds", 'metric="ttft"', 'q="0.5"'), "max")
    density = by("le", f"increase({of(f'{name}_bucket')}[{STEP}])")
    return Row(
        "Time to first token",
        (
            lines("TTFT by tier", "s", *rolling, note=ROLLING, log=True),
            bars("TTFT by cell, exact median so far", "s", Query(f"sort({exact})", "{{tier}} x {{concurrency}}")),
            heat("TTFT of ${tier} tokens", "s", Query(density, "{{le}}"), width=24, repeat="tier"),
        ),
    )


def tokens() -> Row:
    """What comes after the first token, and what a token of prompt costs."""
    gaps = by("le", f"increase({of('loadkit_itl_seconds_bucket')}[{STEP}])")
    return Row(
        "Tokens after the first",
        (
            _rolling("Inter-token latency", "loadkit_itl_seconds"),
            _rolling("Time per output token", "loadkit_tpot_seconds"),
            _rolling("End to end", "loadkit_e2e_seconds"),
            heat("Gaps between tokens", "s", Query(gaps, "{{le}}")),
            lines(
                "Prefill price of a prompt token",
                "s",
                Query(quantile(0.5, "loadkit_prefill_seconds_per_token", "tier"), "{{tier}} p50"),
                note="Flat over the tiers while prefill is linear.",
            ),
        ),
    )


def _rolling(title: str, name: str) -> Panel:
    queries = [
        Query(quantile(q, name, "concurrency"), f"{{{{concurrency}}}} streams {shown}") for shown, q in QUANTILES
    ]
    return lines(title, "s", *queries, note=ROLLING, width=8)


def dashboard() -> Dashboard:
    """Live run."""
    return Dashboard(
        "loadkit-live",
        "loadkit: live run",
        "One run while it goes on: load, TTFT, tokens, outcomes, knees, and whether the numbers may be believed.",
        (now(), load(), first_token(), tokens(), outcomes(), findings(), generator(), server(), edge()),
        (run_variable(), *place_variables(), WINDOW_VARIABLE),
        (STAGES, LOST),
    )

"""What is counted, under which labels, and what is not."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.live.labels import CODES, MAX_CELLS, MAX_SERIES, OUTCOMES, PHASES, USUAL_CODES, code_of
from loadkit.live.registry import About, Registry
from loadkit.live.table import METRICS
from loadkit.live.workers import BOARD_KEYS, MAX_NAMES
from loadkit.measure.histogram import Histogram
from loadkit.record.names import Outcome

PLACE = ("e", "4096", "1")


def value(registry, name, *labels):
    return registry.families[name].value(labels)


def histogram(registry, name, *labels):
    return registry.families[name].buckets(labels).histogram


def test_every_outcome_is_there_at_zero(registry):
    """A page that is asked for before anything was sent has every outcome of every cell and phase, with value 0."""
    made = registry()
    found = dict(made.families["loadkit_requests_total"].scalars())
    for place in (PLACE, ("e", "4096", "2")):
        for phase in PHASES:
            assert {labels[4] for labels in found if labels[:4] == (*place, phase)} == set(OUTCOMES)
    assert set(found.values()) == {0}


def test_arrivals_of_an_open_loop_are_counted_as_telemetry_tells():
    """Rows of any process add up; a cell of a closed loop stays at zero."""
    made = Registry(About("r", "e", ((1024, "2rps"), (1024, 4))))
    place = ("e", "1024", "2rps")
    assert dict(made.families["loadkit_arrivals_total"].scalars()) == {place: 0, ("e", "1024", "4"): 0}
    for cells in ({"1024@2rps": [5, 0]}, {"1024@2rps": [7, 3], "1024@8rps#2": [1, 1]}, None):
        made.health({"kind": "telemetry", "worker": "w", **({} if cells is None else {"arrivals": cells})})
    assert value(made, "loadkit_arrivals_total", *place) == 12
    assert value(made, "loadkit_dropped_arrivals_total", *place) == 3
    assert value(made, "loadkit_dropped_arrivals_total", "e", "1024", "8rps#2") == 1


def test_every_outcome_has_a_usual_code():
    """The table of codes covers the closed set of outcomes, with codes of the closed set."""
    assert set(USUAL_CODES) == set(Outcome)
    assert {code for codes in USUAL_CODES.values() for code in codes} <= set(CODES)


@given(st.one_of(st.none(), st.integers(0, 999)))
def test_a_status_becomes_a_code_of_the_closed_set(status):
    """Whatever a server answers."""
    assert code_of(status) in CODES


def test_a_measured_answer_goes_into_counters_and_histograms(registry, answer):
    """Times in seconds, each gap once, tokens by direction."""
    made = registry()
    made.observe(answer(cached_tokens=7))
    assert value(made, "loadkit_requests_total", *PLACE, "measure", "ok", "200") == 1
    assert value(made, "loadkit_tokens_total", *PLACE, "measure", "input") == 4096
    assert value(made, "loadkit_tokens_total", *PLACE, "measure", "output") == 3
    assert value(made, "loadkit_tokens_total", *PLACE, "measure", "cached") == 7
    sums = {name: histogram(made, f"loadkit_{name}_seconds", *PLACE) for name in ("ttft", "itl", "tpot", "e2e")}
    assert {name: (one.count, one.sum_s) for name, one in sums.items()} == {
        "ttft": (1, 0.4), "itl": (2, 0.04), "tpot": (1, 0.02), "e2e": (1, 0.44),
    }  # fmt: skip
    assert histogram(made, "loadkit_prefill_seconds_per_token", "e", "4096").sum_s == 1e-4


@pytest.mark.parametrize("changes", [{"phase": "warmup"}, {"phase": "drain"}, {"outcome": "reset"}])
def test_only_measured_answers_go_into_histograms(registry, answer, changes):
    """Warm-up, drain and failures are counted as requests and nowhere else."""
    made = registry(slo="ttft=1s")
    made.observe(answer(**changes))
    assert sum(count for _, count in made.families["loadkit_requests_total"].scalars()) == 1
    for metric in METRICS:
        if metric.kind == "histogram":
            assert all(not one.histogram.count for _, one in made.families[metric.name].histograms())
    assert value(made, "loadkit_slo_total", *PLACE, "ttft.p95") == (changes.get("phase") is None)


def test_values_that_are_none_are_rejected_and_counted(registry, answer):
    """NaN, a negative time, none and infinity: one good value is left, its sum is its value."""
    made = registry()
    for ttft in (math.nan, -5.0, None, math.inf, 400.0):
        made.observe(answer(ttft_ms=ttft))
    kept = histogram(made, "loadkit_ttft_seconds", *PLACE)
    assert (kept.count, kept.sum_s) == (1, 0.4)
    assert value(made, "loadkit_rejected_samples_total", "ttft") == 4


def test_an_answer_of_one_token_has_no_tpot_and_rejects_nothing(registry, answer):
    """Absent is not wrong."""
    made = registry()
    made.observe(answer(tpot_ms=None, itl_ms=[], unit_price_ms=None))
    assert histogram(made, "loadkit_tpot_seconds", *PLACE).count == 0
    assert sum(count for _, count in made.families["loadkit_rejected_samples_total"].scalars()) == 0


def test_long_prefills_have_buckets_of_their_own(registry, answer):
    """From 30 ms to 25 minutes each TTFT has a bucket, none is beyond all bounds."""
    made = registry()
    for seconds in (0.03, 0.9, 12, 95, 410, 1500):
        made.observe(answer(ttft_ms=seconds * 1e3))
    counts = histogram(made, "loadkit_ttft_seconds", *PLACE).counts
    assert (sum(1 for count in counts if count), counts[-1]) == (6, 0)


def test_attempts_and_waits_are_counted_by_code(registry, answer):
    """Two refusals and an answer are three attempts, two retries and the sum of both waits."""
    attempts = [{"http_status": 429, "wait_ms": 100.0}, {"http_status": 503, "wait_ms": 250.0}]
    made = registry()
    made.observe(answer(attempts=[*attempts, {"http_status": 200, "wait_ms": None}]))
    for code in ("429", "503", "200"):
        assert value(made, "loadkit_attempts_total", "e", "4096", code) == 1
    assert value(made, "loadkit_retries_total", "e", "4096", "429") == 1
    assert value(made, "loadkit_retry_wait_seconds_total", "e", "4096", "503") == 0.25
    assert sum(count for _, count in made.families["loadkit_retries_total"].scalars()) == 2


def test_objectives_are_counted_per_request(registry, answer):
    """An answer that is late for one objective and in time for the other."""
    made = registry(slo="ttft=300ms,tpot=50ms,error_rate=1%")
    made.observe(answer())
    made.observe(answer(outcome="reset"))
    counted = {name: value(made, name, *PLACE, "ttft.p95") for name in ("loadkit_slo_total", "loadkit_slo_ok_total")}
    assert counted == {"loadkit_slo_total": 2, "loadkit_slo_ok_total": 0}
    assert value(made, "loadkit_slo_ok_total", *PLACE, "tpot.p95") == 1


def test_series_do_not_grow_with_requests(registry, answer):
    """5,000 requests with ids, messages and failures of their own: the series there were at the start, no more."""
    made = registry(cells=[(128, 1), (1024, 1), (4096, 1)])
    before = made.series
    failures = ["ok", "rate_limited", "reset", "server_error"]
    codes = {"ok": 200, "rate_limited": 429, "reset": None, "server_error": 500}
    for number in range(5000):
        outcome = failures[number % 4]
        made.observe(
            answer(
                request_id=f"x{number}", tier_tokens=(128, 1024, 4096)[number % 3], outcome=outcome,
                http_status=codes[outcome], error_message=f"no {number}", response_model=f"m{number}",
            )
        )  # fmt: skip
    assert made.series == before
    buckets = sum(family.series for family in made.families.values() if family.metric.kind == "histogram")
    assert before - buckets < 600


def test_strange_values_are_other_and_more_cells_than_the_budget_share_one(registry, answer):
    """Cells nobody planned, outcomes and phases nobody knows: the number of series stays under the budget."""
    made = registry(cells=[])
    for number in range(3 * MAX_CELLS):
        made.observe(answer(tier_tokens=number, concurrency=number, outcome="new", phase="new", endpoint=f"e{number}"))
    places = {labels[:3] for labels, _ in made.families["loadkit_requests_total"].scalars()}
    assert len(places) == MAX_CELLS + 1
    assert ("other", "other", "other") in places
    assert made.series < MAX_SERIES
    assert sum(count for _, count in made.families["loadkit_requests_total"].scalars()) == 3 * MAX_CELLS


def test_the_greatest_registry_is_within_the_budget(registry):
    """More tiers than have series of their own, every objective there can be, hundreds of workers and sensors."""
    quantiles = ("p50", "p90", "p95", "p99", "mean", "max")
    every = ",".join(f"{name}.{q}=1s" for name in ("ttft", "itl", "tpot", "e2e") for q in quantiles)
    made = registry(cells=[(n, 1) for n in range(1, 300)], slo=every, workers=MAX_NAMES)
    assert 45_000 < made.planned_series + len(BOARD_KEYS) * (MAX_NAMES + 1) <= MAX_SERIES


def test_the_series_told_at_the_start_are_those_of_the_end(registry, answer):
    """The budget is an upper bound, and for a run that visited every cell it is close."""
    cells = [(128, 1), (4096, 1), (4096, 4)]
    made = registry(cells=cells, slo="ttft=1s")
    told = made.planned_series
    for tier, concurrency in cells:
        made.stage(f"{tier}x{concurrency}", "open")
        made.observe(answer(tier_tokens=tier, concurrency=concurrency))
        made.stage(f"{tier}x{concurrency}", "done")
    made.health({"kind": "telemetry", "worker": "p", "users_live": 1, "users_planned": 1, "streams_in_flight": 1,
                 "cpu": 0.1, "hub_lag_p99_ms": 0.1, "hub_lag_max_ms": 0.2})  # fmt: skip
    assert made.series <= told
    assert told - made.series < 40


def test_stage_quantiles_are_exact_when_a_visit_closes(registry, answer):
    """Nearest rank over the raw values, not read off buckets; n stands beside them."""
    made = registry()
    made.stage("4096x1", "open")
    for ttft in (411.0, 402.0, 433.0):
        made.observe(answer(ttft_ms=ttft))
    assert value(made, "loadkit_phase", "visit") == 1
    assert value(made, "loadkit_target_concurrency") == 1
    made.stage("4096x1", "done")
    quantiles = [value(made, "loadkit_stage_quantile_seconds", *PLACE, "ttft", q) for q in ("0.5", "0.9", "0.99")]
    assert quantiles == [0.411, 0.433, 0.433]
    assert value(made, "loadkit_stage_samples", *PLACE, "itl") == 6
    assert value(made, "loadkit_phase", "idle") == 1


def test_gaps_that_are_no_gaps_have_no_quantile(registry, answer):
    """One answer whose reads held several events, and the ITL of its cell is withheld, as in the report."""
    made = registry()
    made.observe(answer())
    made.observe(answer(flags=["bursty"]))
    made.stage("4096x1", "done")
    assert value(made, "loadkit_stage_quantile_seconds", *PLACE, "itl", "0.5") is None
    assert value(made, "loadkit_stage_quantile_seconds", *PLACE, "tpot", "0.5") == 0.02


def test_the_summary_has_the_last_word(registry, answer):
    """Quantiles, verdicts, objectives and knees of the report replace what was said before it."""
    made = registry()
    made.observe(answer())
    made.stage("4096x1", "done")
    times = {"p50": 300.0, "p90": 310.0, "p95": 320.0, "p99": 330.0, "n": 9}
    cell = {"tier_tokens": 4096, "concurrency": 1, "ttft_ms": times, "itl_ms": None, "tpot_ms": times,
            "e2e_ms": times, "validity": {"status": "suspect"}}  # fmt: skip
    rate = {"tier_tokens": 4096, "metric": "throughput", "knee": 4.0, "probability": 0.8}
    made.summary(
        {
            "cells": [cell],
            "objectives": [{"cell": "4096x1", "name": "ttft.p95", "met": True}],
            "knee": {"length": {"knee": 9000.0, "probability": 0.9}, "concurrency": [rate]},
        }
    )
    assert value(made, "loadkit_stage_quantile_seconds", *PLACE, "ttft", "0.95") == 0.32
    assert value(made, "loadkit_stage_quantile_seconds", *PLACE, "itl", "0.95") is None
    assert [value(made, "loadkit_cell_validity", *PLACE, s) for s in ("valid", "suspect", "invalid")] == [0, 1, 0]
    assert value(made, "loadkit_slo_met", *PLACE, "ttft.p95") == 1
    assert value(made, "loadkit_knee_context_tokens", "e") == 9000
    assert value(made, "loadkit_knee_concurrency", "e", "4096") == 4
    assert value(made, "loadkit_knee_confidence_ratio", "e", "concurrency") == 0.8


def test_no_knee_is_no_series(registry):
    """A knee that was not found has a probability and no place."""
    made = registry()
    nothing = {"knee": None, "probability": 0.1}
    made.summary({"cells": [], "objectives": [], "knee": {"length": nothing, "concurrency": []}})
    assert value(made, "loadkit_knee_context_tokens", "e") is None
    assert value(made, "loadkit_knee_confidence_ratio", "e", "length") == 0.1
    assert value(made, "loadkit_knee_confidence_ratio", "e", "concurrency") is None


def row(worker, **changes):
    plain = {"kind": "telemetry", "worker": worker, "users_live": 2, "users_planned": 4, "streams_in_flight": 2,
             "cpu": 0.5, "hub_lag_p99_ms": 1.5, "hub_lag_max_ms": 4.0}  # fmt: skip
    return {**plain, **changes}


def workers(registry):
    return {labels[0] for labels, _ in registry.families["loadkit_worker_cpu_ratio"].scalars()}


def test_a_lost_worker_takes_its_series_with_it(registry):
    """Its gauges go, what it counted stays, and the loss is counted."""
    made = registry()
    for worker in ("w1", "w2"):
        made.health(row(worker))
    made.scraped()
    made.worker_lost("w1")
    for family in made.families.values():
        if "worker" in family.metric.labels:
            assert all("w1" not in labels for labels, _ in family.scalars())
    assert workers(made) == {"w2"}
    assert value(made, "loadkit_worker_lost_total") == 1


def test_rows_that_come_after_their_worker_was_lost_set_nothing(registry):
    """They were on their way; one that speaks again later is there again."""
    clock = [1000.0]
    made = registry(now=lambda: clock[0])
    made.health(row("w1"))
    made.worker_lost("w1")
    clock[0] = 1001.0
    made.health(row("w1"))
    assert workers(made) == set()
    clock[0] = 1006.0
    made.health(row("w1"))
    assert workers(made) == {"w1"}


def test_a_silent_worker_ages_and_then_goes(registry):
    """Its age is of the moment of the scrape; after a minute it is not there any more."""
    clock = [1000.0]
    made = registry(now=lambda: clock[0])
    made.health(row("w1"))
    clock[0] = 1012.5
    made.scraped()
    assert value(made, "loadkit_worker_report_age_seconds", "w1") == 12.5
    clock[0] = 1061.0
    made.scraped()
    assert workers(made) == set()


def test_the_master_speaks_for_the_run_and_not_for_streams(registry):
    """Users of the run come from its row; streams in flight are summed over workers, so it has none."""
    made = registry(process="m")
    made.health(row("m", users_live=4, workers_planned=2, workers_live=2))
    made.health(row("w1"))
    made.health(row("w2"))
    assert (value(made, "loadkit_users"), value(made, "loadkit_target_users")) == (4, 4)
    assert sum(count for _, count in made.families["loadkit_inflight"].scalars()) == 4
    assert value(made, "loadkit_workers", "live") == 2


def test_the_end_leaves_no_gauge_behind(registry):
    """After the run nobody is in flight and no process is stale."""
    made = registry()
    made.health(row("p"))
    made.finished()
    made.scraped()
    assert workers(made) == set()
    assert value(made, "loadkit_users") == 0
    assert value(made, "loadkit_phase", "linger") == 1


def test_names_from_elsewhere_are_tamed(registry):
    """A model's or a sensor's name is letters and digits, clipped, and there are only so many of them."""
    made = registry(model='m"\n{x}' + "y" * 200)
    ((labels, _),) = made.families["loadkit_endpoint_info"].scalars()
    assert labels[1] == ("m_x_" + "y" * 200)[:100]
    made.health({"kind": "board", "temperature_c": {f"s {n}": 40.0 for n in range(1000)}})
    found = Counter(labels[0] for labels, _ in made.families["loadkit_board_temperature_celsius"].scalars())
    assert len(found) == 301
    assert "s_0" in found


def test_the_run_label_is_short_and_plain():
    """[a-z0-9-], at most 32, whatever the id is."""
    assert About("2B958d7d-20261130T174900", "e", ()).run == "2b958d7d-20261130t174900"
    assert About('a"b' * 40, "e", ()).run == ("a-b" * 40)[:32]


ANY_TIME = st.floats(0.01, 1e6) | st.floats(allow_nan=True, allow_infinity=True) | st.none()


@given(st.lists(st.lists(st.floats(0.01, 1e6), max_size=20) | st.lists(ANY_TIME, max_size=20), min_size=1, max_size=5))
def test_who_measured_does_not_change_what_is_counted(parts):
    """Rows of several workers give the histogram of all values together."""
    made, whole = Registry(About("r", "e", ((1, 1),))), Histogram(Registry(About("r", "e", ())).families[
        "loadkit_itl_seconds"].metric.bounds)  # fmt: skip
    for values in parts:
        rejected = made.families["loadkit_itl_seconds"].buckets(("e", "1", "1")).observe_all(values)
        assert rejected == sum(not whole.add(one) for one in values)
    merged = histogram(made, "loadkit_itl_seconds", "e", "1", "1")
    assert (merged.counts, merged.sum_ns) == (whole.counts, whole.sum_ns)


def test_a_quantile_beyond_all_bounds_says_so():
    """The last bound is what is answered, and the share above it is known: reading 10 s as a time would be wrong."""
    coarse = Histogram((1.0, 5.0, 10.0))
    coarse.counts = [0, 0, 2, 98]
    assert (coarse.quantile(0.99), coarse.overflow_share) == (10.0, 0.98)


def test_quantiles_of_a_fleet_come_from_summed_buckets():
    """Not from averages of its workers' quantiles: 5.05 s, where the average would be 5.25 s."""
    first, second = Histogram((1.0, 10.0)), Histogram((1.0, 10.0))
    first.counts, second.counts = [100, 0, 0], [0, 10, 0]
    first.merge(second)
    assert first.quantile(0.95) == pytest.approx(5.05)

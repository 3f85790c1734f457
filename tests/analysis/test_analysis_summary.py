"""summary.json: its keys, its totals, and that any input gives one."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.summary import summarise
from loadkit.measure.slo import parse
from loadkit.record.jsonl import Rows, Writer
from loadkit.record.record import FIELDS

SCHEMA_KEYS = {
    *("schema", "run_id", "percentile_method", "cells", "growth", "knee", "totals", "exit_code"),
    *("price", "tpot_across_tiers", "readings"),
}
CELL_KEYS = {
    *("rounds_ttft_ms", "ttft_ms_of_rounds", "stability"),
    *("cell", "tier_tokens", "concurrency", "n", "ok", "outcomes", "validity", "peak_in_flight", "prefill_share"),
    *("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "prefill_ms_per_1k", "unit_price_ms"),
    *("prefill_tokens_per_s", "decode_tokens_per_s", "requests_per_s", "output_tokens_per_s", "total_tokens_per_s"),
}


def test_the_keys_are_those_of_the_contract(ladder):
    """Every key of the run folder's contract is there, with the statistics of a distribution."""
    summary = summarise(ladder({100: 50.0}), {"run_id": "abc"})
    assert set(summary) >= SCHEMA_KEYS
    assert set(summary["cells"][0]) >= CELL_KEYS
    assert {"mean", "p50", "p90", "p95", "p99", "min", "max", "ci"} <= set(summary["cells"][0]["ttft_ms"])
    assert (summary["run_id"], summary["percentile_method"]) == ("abc", "nearest-rank")
    assert summary["exit_code"] == 3  # a manifest without an end: the run was cut
    assert summarise([])["exit_code"] is None


def test_the_run_is_known_from_its_records(ladder):
    """Without a manifest the run id is that of the records."""
    assert summarise(ladder({100: 50.0}))["run_id"] == "run-1"
    assert summarise([])["run_id"] is None


def test_totals_hold_every_phase_and_attempt(request_of):
    """Warm-up, failed and retried requests are in the totals, tokens by where their count comes from."""
    retried = request_of(100, 1, ttft=50, attempts=[{"outcome": "overloaded"}, {"outcome": "ok"}])
    totals = summarise(
        [
            request_of(100, 1, ttft=50, phase="warmup", cached_tokens=60),
            request_of(100, 1, ttft=50, output_tokens_source="events"),
            retried,
            request_of(100, 1, outcome="rate_limited"),
        ]
    )["totals"]
    assert totals == {
        "requests": 4,
        "ok": 3,
        "attempts": 5,
        "retried": 1,
        "phases": {"measure": 3, "warmup": 1},
        "outcomes": {"ok": 3, "rate_limited": 1},
        "prompt_tokens": {"usage": 300},
        "cached_tokens": {"usage": 60},
        "output_tokens": {"events": 5, "usage": 10},
        "unanswered_prompt_tokens": 200,
    }


def test_errors_keep_the_first_words_of_the_server(request_of):
    """One entry for each cell and outcome, with count, status and first message."""
    failed = [request_of(100, 1, outcome="rate_limited", http_status=429, error_message=m) for m in ("slow", "down")]
    (error,) = summarise(failed)["errors"]
    assert error == {"cell": "100x1", "outcome": "rate_limited", "n": 2, "http_status": 429, "message": "slow"}


def test_an_slo_reads_a_cell(ladder):
    """The cells are what the SLO grammar of `measure` judges."""
    cell = summarise(ladder({100: 50.0}))["cells"][0]
    assert [slo.holds(cell) for slo in parse("ttft=60ms,tpot.p50=5ms,itl.max=10ms,e2e.mean=1s,error_rate=1%")] == [
        True, False, True, True, True,
    ]  # fmt: skip


def test_rows_of_other_kinds_are_no_requests(request_of):
    """A header or a telemetry row in the file is not counted."""
    assert summarise([{"kind": "header"}, request_of(100, 1, ttft=5), {"kind": "load"}])["totals"]["requests"] == 1


anything = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    *(st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)),
    st.sampled_from(["measure", "ok", "request", 1, 2]),
)
rows = st.lists(st.dictionaries(st.sampled_from(FIELDS), anything, max_size=30), max_size=4)


PARTS = ["visits", "run_id", "ended_at", "plan", "fault", "prompts", "target", "endpoint", "check"]


@given(rows, st.dictionaries(st.sampled_from(PARTS), anything | st.dictionaries(st.text(), anything)), rows)
def test_any_records_give_a_summary_that_is_json(records, manifest, telemetry):
    """Values of any type in any field never raise, and what comes out is strict JSON."""
    for record in records:
        record.setdefault("tier_tokens", 100)
        record.setdefault("concurrency", 1)
    summary = summarise(records, manifest, telemetry)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


sizes = st.one_of(st.integers(-5, 5), st.floats(1e-9, 1e14), st.floats(-1e14, -1e-9), st.just(0.0))
numeric = ("ttft_ms", "tpot_ms", "e2e_ms", "prompt_tokens", "target_tokens", "bos_tokens", "cached_tokens", "start_ms")
answers = st.fixed_dictionaries(
    {
        "outcome": st.just("ok"),
        "phase": st.just("measure"),
        "round": st.integers(0, 4),
        "tier_tokens": st.sampled_from([-1, 0, 1, 100, 200, 400, 800]),
        "concurrency": st.sampled_from([0, 1, 2]),
        "prompt_tokens_source": st.just("usage"),
        "unit_price_ms": sizes,
        "itl_ms": st.lists(sizes, min_size=8, max_size=10),
        "event_read": st.lists(st.integers(0, 3), max_size=3),
        **dict.fromkeys(numeric, sizes),
    }
)


@pytest.mark.filterwarnings("error")
@settings(max_examples=60, deadline=None)
@given(st.lists(answers, max_size=12))
def test_any_numbers_give_a_summary_that_is_json(records):
    """Zero, negative and absurd times and lengths: strict JSON, and not a warning on the way."""
    summary = summarise(records)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_long_run_is_read_in_little_memory(tmp_path, request_of):
    """Of 1,500 answers with 128 gaps each only the numbers are kept: less than the file, let alone its objects."""
    path = tmp_path / "records.jsonl"
    gaps = [20.0 + i / 128 for i in range(128)]
    with Writer(path) as writer:
        for i in range(1500):
            writer.write(request_of(100, 1, at=i, ttft=50.0, round=i, itl_ms=gaps, event_read=list(range(129))))
    summarise(Rows(path))
    tracemalloc.start()
    summary = summarise(Rows(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summary["totals"]["requests"] == 1500
    assert peak < path.stat().st_size

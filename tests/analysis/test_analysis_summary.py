"""summary.json: its keys, its totals, and that any input gives one."""

import json

from hypothesis import given
from hypothesis import strategies as st

from loadkit.analysis.summary import summarise
from loadkit.measure.slo import parse
from loadkit.record.record import FIELDS

SCHEMA_KEYS = {"schema", "run_id", "percentile_method", "cells", "growth", "knee", "totals", "exit_code"}
CELL_KEYS = {
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
    assert (summary["run_id"], summary["percentile_method"], summary["knee"]) == ("abc", "nearest-rank", None)
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


@given(rows, st.dictionaries(st.sampled_from(["visits", "run_id", "ended_at", "plan", "fault"]), anything), rows)
def test_any_records_give_a_summary_that_is_json(records, manifest, telemetry):
    """Values of any type in any field never raise, and what comes out is strict JSON."""
    for record in records:
        record.setdefault("tier_tokens", 100)
        record.setdefault("concurrency", 1)
    summary = summarise(records, manifest, telemetry)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary

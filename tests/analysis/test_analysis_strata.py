"""Records become cells: the right requests in the right numbers."""

import pytest

from loadkit.analysis.strata import strata


def cell_of(records):
    (stratum,) = strata(records)
    return stratum.summary()


@pytest.fixture
def cell(request_of):
    """Five measured requests at concurrency 2 (four answers, one refusal) between a warm-up and a drain request."""
    records = [
        request_of(100, 2, at=-9, ttft=9999, phase="warmup", round=0),
        *(
            request_of(100, 2, at=0.0, ttft=50, tpot=10, round=1),
            request_of(100, 2, at=0.0, ttft=100, tpot=20, round=1),
        ),
        *(request_of(100, 2, at=1.0, ttft=60, tpot=10, round=2), request_of(100, 2, at=1.0, ttft=80, tpot=40, round=3)),
        request_of(100, 2, at=1.2, outcome="rate_limited", http_status=429, round=3),
        request_of(100, 2, at=2, ttft=9999, phase="drain"),
    ]
    records[4]["attempts"] = [{"outcome": "overloaded"}, {"outcome": "ok"}]
    return cell_of(records)


def test_only_measured_answers_enter_percentiles(cell):
    """TTFT of 50, 60, 80, 100 ms: p50 60, p90 to max 100, mean 72.5; warm-up, drain and failures are not in it."""
    assert (cell["cell"], cell["n"], cell["ok"], cell["rounds"]) == ("100x2", 5, 4, 3)
    ttft = cell["ttft_ms"]
    assert [ttft[k] for k in ("mean", "p50", "p90", "p95", "p99", "min", "max", "n")] == [
        72.5, 60, 100, 100, 100, 50, 100, 4,
    ]  # fmt: skip


def test_failures_stand_beside(cell):
    """Outcomes of last and first attempts, and a percentile under its own name that counts failures as infinite."""
    assert cell["outcomes"] == {"ok": 4, "rate_limited": 1}
    assert cell["first_attempt_outcomes"] == {"ok": 3, "overloaded": 1, "rate_limited": 1}
    assert cell["retried"] == 1
    assert cell["ttft_ms_with_failures"] == {"p50": 80, "p90": "failed", "p95": "failed", "p99": "failed", "n": 5}


def test_prefill_and_decode_stay_apart(cell):
    """Medians of each: TTFT 60 of 100 tokens is 0.6 ms a token and 1000 tokens/s; TPOT 10 is 100 tokens/s."""
    assert cell["unit_price_ms"] == pytest.approx(0.6)
    assert cell["prefill_ms_per_1k"] == pytest.approx(600)
    # Four rates: 2000, 1667, 1250 and 1000; the nearest-rank median is the second from below.
    assert cell["prefill_tokens_per_s"] == pytest.approx(1250)
    # Four rates: 100, 100, 50, 25.
    assert cell["decode_tokens_per_s"] == pytest.approx(50)
    # E2E 90, 180, 100, 240: shares .556, .556, .6, .333.
    assert cell["prefill_share"] == pytest.approx(50 / 90)


def test_throughput_is_over_the_measured_window(cell):
    """From 0 s to 1.24 s: 4 answers, 20 output and 400 prompt tokens."""
    assert cell["window_s"] == pytest.approx(1.24, abs=1e-5)
    assert cell["requests_per_s"] == pytest.approx(4 / 1.24, rel=1e-4)
    assert cell["output_tokens_per_s"] == pytest.approx(20 / 1.24, rel=1e-4)
    assert cell["total_tokens_per_s"] == pytest.approx(420 / 1.24, rel=1e-4)
    assert cell["peak_in_flight"] == 3


def test_gaps_are_pooled_over_requests(cell):
    """Four gaps of each request: eight of 10 ms, four of 20, four of 40."""
    assert (cell["itl_ms"]["n"], cell["itl_ms"]["p50"], cell["itl_ms"]["max"]) == (16, 10, 40)
    assert cell["itl_ms"]["mean"] == pytest.approx(20)


@pytest.mark.parametrize("flag", ["bursty", "tokens_per_event_gt_1"])
def test_itl_is_withheld_with_its_reason(request_of, flag):
    """One flagged request withholds the ITL percentiles of the cell; TPOT stays."""
    cell = cell_of([request_of(100, 1, ttft=50), request_of(100, 1, at=1, ttft=50, flags=[flag])])
    assert cell["itl_ms"] is None
    assert cell["itl_withheld"] == [flag]
    assert cell["flags"] == {flag: 1}
    assert cell["tpot_ms"]["n"] == 2


def test_rounds_have_their_own_medians(cell):
    """Round 1 answered in 50 and 100 ms, 2 and 3 in 60 and 80: medians 50, 60, 80, and how far they lie apart."""
    assert cell["rounds_ttft_ms"] == [50, 60, 80]
    assert cell["ttft_ms_of_rounds"] == {"median": 60, "min": 50, "max": 80, "n": 3}


def test_records_without_rounds_have_no_medians_of_rounds(request_of):
    """Absent is absent."""
    cell = cell_of([request_of(100, 1, ttft=50, round=None)])
    assert (cell["rounds_ttft_ms"], cell["ttft_ms_of_rounds"]) == ([], None)


def test_what_was_computed_is_without_bos_and_cache(request_of):
    """100 prompt tokens, 1 of them BOS, 16 cached: 83 were prefilled."""
    cell = cell_of([request_of(100, 1, ttft=50, bos_tokens=1, cached_tokens=16)])
    assert cell["prefilled_tokens"] == 83
    assert cell_of([request_of(100, 1, ttft=50, cached_tokens=100)])["prefilled_tokens"] is None


def test_a_gap_before_several_tokens_is_shared_by_them(request_of):
    """An event of 3 tokens after 30 ms gives three gaps of 10 ms."""
    cell = cell_of([request_of(100, 1, ttft=50, itl_ms=[12.0, 30.0], event_tokens=[1, 1, 3])])
    assert (cell["itl_ms"]["n"], cell["itl_ms"]["mean"], cell["itl_ms"]["max"]) == (4, pytest.approx(10.5), 12)


def test_a_failed_first_round_does_not_drop_the_tier(request_of):
    """Rounds failed, ok, ok: the median of the two answers, 2 of 3."""
    records = [request_of(100, 1, round=1), *(request_of(100, 1, at=r, ttft=40 + r, round=r) for r in (2, 3))]
    cell = cell_of(records)
    assert (cell["n"], cell["ok"], cell["rounds"], cell["ttft_ms"]["p50"]) == (3, 2, 2, 42)


def test_a_cell_of_errors_has_counts_and_no_numbers(request_of):
    """All requests failed: every quantity is absent, none is zero, and the counts are there."""
    cell = cell_of([request_of(100, 1, outcome="ttft_timeout") for _ in range(3)])
    assert (cell["n"], cell["ok"], cell["outcomes"]) == (3, 0, {"ttft_timeout": 3})
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "unit_price_ms", "prefill_share", "prompt_tokens"):
        assert cell[name] is None
    assert cell["ttft_ms_with_failures"] == {"p50": "failed", "p90": "failed", "p95": "failed", "p99": "failed", "n": 3}


def test_what_we_stopped_ourselves_is_no_failure_of_the_server(request_of):
    """An aborted request is counted by name and left out of the failure-inflated percentiles."""
    cell = cell_of([request_of(100, 1, ttft=50), request_of(100, 1, at=1, outcome="aborted")])
    assert cell["outcomes"] == {"aborted": 1, "ok": 1}
    assert cell["ttft_ms_with_failures"]["n"] == 1


def test_few_samples_are_said(request_of):
    """Under 100 answers p99 is low_n; under three rounds there is no verdict to be had."""
    assert cell_of([request_of(100, 1, ttft=50)])["cell_flags"] == ["too_few_rounds", "low_n"]
    many = [request_of(100, 1, at=i, ttft=50, round=1 + i % 3) for i in range(100)]
    assert cell_of(many)["cell_flags"] == []


def test_all_rounds_of_one_visit_count_as_turns_of_its_streams(request_of):
    """Six answers of two streams without a round number are three rounds."""
    assert cell_of([request_of(100, 2, ttft=50, round=0) for _ in range(6)])["rounds"] == 3


def test_outcomes_stay_a_closed_set(request_of):
    """A name from outside becomes 'unknown': text of a foreign file is never a key."""
    cell = cell_of([request_of(100, 1, outcome="<b>"), request_of(100, 1, outcome=None)])
    assert cell["outcomes"] == {"unknown": 2}


def test_cells_come_in_order(request_of):
    """Ascending by tier, then by concurrency, whatever the order of the records."""
    records = [request_of(t, c, ttft=50) for t, c in ((200, 1), (100, 2), (100, 1))]
    assert [(s.tier_tokens, s.concurrency) for s in strata(records)] == [(100, 1), (100, 2), (200, 1)]

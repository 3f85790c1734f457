"""Marks into values: the numbers of complaints of other tools' users, and the general rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.measure.quantile import nearest_rank
from loadkit.measure.timing import (
    decode_tokens_per_s,
    difference_ms,
    gaps_are_bursty,
    gaps_ms,
    is_bursty,
    itl_ms,
    itl_per_token_ms,
    ms,
    peak_in_flight,
    prefill_tokens_per_s,
    tpot_ms,
    unit_price_ms,
)

TIMES = st.lists(st.floats(0, 1e6), max_size=40).map(sorted)
INTERVALS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def test_decode_metrics_start_at_the_first_token():
    """P21: five tokens 50 ms apart after a prefill of 8 s are 50 ms each, not 1640 ms."""
    times = [8000, 8050, 8100, 8150, 8200]
    tpot = tpot_ms(times[0], times[-1], len(times))
    assert tpot == 50.0
    assert decode_tokens_per_s(tpot) == 20.0
    assert itl_ms(times) == [50, 50, 50, 50]


def test_several_tokens_per_event():
    """P17: 13 tokens in four events 40 ms apart are 10 ms per token; each gap is spread over the tokens behind it."""
    times, tokens = [100, 140, 180, 220], [1, 4, 4, 4]
    assert itl_ms(times) == [40, 40, 40]
    assert tpot_ms(100, 220, 13) == 10.0
    assert itl_per_token_ms(times, tokens) == [10.0] * 12


def test_tokens_of_the_first_event_are_not_decoded_after_it():
    """An event of three tokens is the first mark: only the rest is divided by."""
    assert tpot_ms(100, 200, 13, first_event_tokens=3) == 10.0
    assert tpot_ms(100, 200, 3, first_event_tokens=3) is None


@pytest.mark.parametrize("tokens", [0, 1, None])
def test_below_two_tokens_there_is_no_tpot(tokens):
    """P18: absent, not 0 and not a division by zero."""
    assert tpot_ms(90, 90, tokens) is None
    assert itl_ms([90]) == []
    assert itl_ms([]) == []


def test_tpot_of_missing_marks_is_absent_and_of_swapped_marks_a_bug():
    """P18: a negative value must raise, not be averaged."""
    assert tpot_ms(None, 10, 5) is None
    assert tpot_ms(10, None, 5) is None
    with pytest.raises(ValueError, match="before the first"):
        tpot_ms(20, 10, 5)


def test_everything_in_one_read_is_no_decode_speed():
    """P11-a: 60 tokens at one instant; a TPOT of 0 would be an infinite speed."""
    times = [16500] * 60
    assert is_bursty(times)
    assert nearest_rank(itl_ms(times), 0.5) == 0
    assert tpot_ms(times[0], times[-1], 60) is None
    assert decode_tokens_per_s(None) is None


def test_an_even_stream_is_not_bursty():
    """P11-b: 60 tokens, one every 250 ms."""
    times = [500 + 250 * i for i in range(60)]
    assert not is_bursty(times)
    assert nearest_rank(itl_ms(times), 0.5) == 250


def test_a_proxy_that_holds_65_events_back_is_bursty():
    """P11-c: three bursts, 16.5 s apart."""
    times = [17500] * 65 + [34000] * 65 + [50500] * 65
    assert is_bursty(times)
    assert nearest_rank(itl_ms(times), 0.5) == 0
    assert tpot_ms(times[0], times[-1], 195) == pytest.approx(33000 / 194)


def test_a_burst_that_arrives_as_several_reads_is_still_a_burst():
    """A flush of 16 KiB comes as packets a fraction of a ms apart."""
    times = [flush * 2000 + i * 0.05 for flush in range(3) for i in range(20)]
    assert is_bursty(times, event_read=list(range(60)))


@pytest.mark.parametrize(("per_read", "bursty"), [(1, False), (2, True), (4, True)])
def test_events_that_share_reads_are_bursty(per_read, bursty):
    """With two or four events in every read, the gaps are those of the reads and zeros."""
    reads = [i // per_read for i in range(64)]
    assert is_bursty([80.0 * read for read in reads], reads) is bursty


def test_a_stray_coalesced_read_does_not_withhold_a_stream():
    """One shared read among 128 events leaves the percentiles usable."""
    times = [20.0 * i for i in range(128)]
    times[64] = times[63]
    assert not is_bursty(times, [*range(64), 63, *range(65, 128)])
    assert not is_bursty([5.0])
    assert not is_bursty([])


def test_coordinated_omission_is_visible():
    """P16: from sending every TTFT is 500 ms; from the schedule the queue shows."""
    scheduled, sent, first = [0, 100, 200, 300], [0, 500, 1000, 1500], [500, 1000, 1500, 2000]
    ttft = [ms(t0 * 10**6, at * 10**6) for t0, at in zip(sent, first, strict=True)]
    before = [difference_ms(at, t0) for at, t0 in zip(scheduled, sent, strict=True)]
    assert ttft == [500, 500, 500, 500]
    assert [difference_ms(a, b) for a, b in zip(ttft, before, strict=True)] == [500, 900, 1300, 1700]
    assert min(before) == -1200
    assert difference_ms(None, 1.0) is None
    assert difference_ms(1.0, None) is None


def test_retries_have_two_clocks():
    """P46: two refusals, then an answer; the attempt took 670 ms, its user waited 3900 ms."""
    starts, first_token = [0, 1120, 3230], 3900
    assert ms(starts[-1] * 10**6, first_token * 10**6) == 670
    assert ms(starts[0] * 10**6, first_token * 10**6) == 3900


@pytest.mark.parametrize(
    ("ttft", "prompt", "bos", "cached", "price"),
    [
        (512.0, 513, 1, 0, 1.0),  # P51-c
        (1536.0, 1025, 1, 0, 1.5),  # P51-d: 1536 / 1024; dividing by 1025 would count BOS
        (512.0, 1025, 1, 512, 1.0),  # cached tokens were not prefilled
        (512.0, 512, None, None, 1.0),
        (60.0, 21000, 8, 20992, None),  # all of it from the cache
        (None, 512, 1, 0, None),
        (512.0, None, 1, 0, None),
    ],
)
def test_unit_price(ttft, prompt, bos, cached, price):
    """P51: only tokens that were computed cost prefill time."""
    assert unit_price_ms(ttft, prompt, bos, cached) == price


def test_prefill_speed():
    """Prompt tokens over TTFT; absent where one of them is."""
    assert prefill_tokens_per_s(4096, 2048.0) == 2000.0
    assert prefill_tokens_per_s(None, 10.0) is None
    assert prefill_tokens_per_s(10, None) is None
    assert prefill_tokens_per_s(10, 0.0) is None


@given(TIMES, st.integers(0, 50), st.integers(1, 5))
def test_tpot_is_absent_or_positive(times, tokens, first_tokens):
    """Never 0, never negative, never NaN, for any ordered marks."""
    if times:
        value = tpot_ms(times[0], times[-1], tokens, first_tokens)
        assert value is None or value > 0


@given(TIMES)
def test_gaps_add_up_to_the_decode_time(times):
    """No gap is lost, none is negative, and weighting by tokens keeps the sum."""
    gaps = itl_ms(times)
    assert len(gaps) == max(0, len(times) - 1)
    assert all(gap >= 0 for gap in gaps)
    span = times[-1] - times[0] if times else 0
    assert sum(gaps) == pytest.approx(span, abs=1e-4)
    assert sum(itl_per_token_ms(times, [3] * len(times))) == pytest.approx(span, abs=1e-4)


def test_token_counts_must_match_events():
    """Counts of other events would weight the wrong gaps."""
    with pytest.raises(ValueError, match="3 event times but 2 token counts"):
        itl_per_token_ms([1, 2, 3], [1, 1])


@pytest.mark.parametrize(
    ("intervals", "peak"),
    [
        ([], 0),
        ([(0, 10)], 1),
        ([(0, 10), (10, 20)], 1),  # a slot handed over
        ([(0, 10), (9, 20)], 2),
        ([(0, 50), (50, None)], 1),  # P60: one completed, one aborted at the end of the run
        ([(0, None), (5, None), (7, 8)], 3),
        ([(5, 5), (5, 5)], 1),
        ([(0, 9), (5, 5)], 2),
    ],
)
def test_peak_in_flight(intervals, peak):
    """Most at one moment; an end frees its slot for a start at the same moment."""
    assert peak_in_flight(intervals) == peak


@given(INTERVALS)
def test_peak_in_flight_agrees_with_counting(intervals):
    """The peak is reached at some start; there, count by hand those that hold a slot (zero-length ones hold none)."""
    intervals = [(start, max(end, start + 1)) for start, end in intervals]
    counted = [sum(a <= at < b for a, b in intervals) for at, _ in intervals]
    assert peak_in_flight(intervals) == max(counted, default=0)


def test_an_interval_must_not_end_before_it_starts():
    """Swapped marks are a bug."""
    with pytest.raises(ValueError, match="before it starts"):
        peak_in_flight([(0, 5), (3, 2)])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=30))
def test_reads_that_are_shared_or_skipped(steps):
    """Gaps of events in one read are near zero whatever reads lie between others; ns and ms marks agree."""
    times, reads = [0], [0]
    for gap, skipped in steps:
        times.append(times[-1] + gap * 10**7)
        reads.append(reads[-1] + (0 if gap == 0 else 1 + skipped))
    gaps = gaps_ms(times)
    assert gaps == itl_ms([at / 1e6 for at in times])
    near = sum(gap == 0 for gap in gaps)
    assert is_bursty([at / 1e6 for at in times], reads) is gaps_are_bursty(gaps, reads) is (near >= len(gaps) / 4)

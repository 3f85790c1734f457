"""Histograms: the bounds, the sums of many workers, and what a quantile read from buckets can be."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.measure.histogram import (
    E2E_BOUNDS_S,
    ITL_BOUNDS_S,
    TPOT_BOUNDS_S,
    TTFT_BOUNDS_S,
    UNIT_PRICE_BOUNDS_S,
    Histogram,
    renard,
)

TIMES_MS = st.lists(st.floats(0, 3e6), max_size=60)


def filled(bounds, counts):
    """A histogram with these counts per bucket, the last one above every bound."""
    return Histogram.from_wire(bounds, [0, *(x for i, count in enumerate(counts) if count for x in (i, count))])


@pytest.mark.parametrize(
    ("bounds", "size", "low", "high"),
    [
        (TTFT_BOUNDS_S, 54, 0.01, 2000),
        (ITL_BOUNDS_S, 41, 0.001, 10),
        (TPOT_BOUNDS_S, 41, 0.001, 10),
        (E2E_BOUNDS_S, 50, 0.05, 4000),
        (UNIT_PRICE_BOUNDS_S, 51, 1e-6, 1e-1),
    ],
)
def test_bounds_are_renard_numbers(bounds, size, low, high):
    """So many bounds from low to high, rising by at most 28 %."""
    assert (len(bounds), bounds[0], bounds[-1]) == (size, low, high)
    assert all(1.2 < b / a <= 1.2801 for a, b in pairwise(bounds))


def test_bounds_are_round_numbers():
    """A bound is the decimal a person writes, so that an SLO of 2 s is a bound exactly."""
    assert renard(1, 10) == (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0, 10.0)
    assert {0.05, 0.063, 0.2, 0.25, 2.0, 315.0, 630.0, 1600.0} <= set(TTFT_BOUNDS_S)


@pytest.mark.parametrize("bound", TTFT_BOUNDS_S)
def test_a_value_at_a_bound_belongs_to_it(bound):
    """`le` means less or equal; the next value above goes to the next bucket."""
    histogram = Histogram(TTFT_BOUNDS_S)
    histogram.add(round(bound * 1e3, 6))
    histogram.add(bound * 1e3 * 1.001)
    index = TTFT_BOUNDS_S.index(bound)
    assert histogram.counts[index : index + 2] == [1, 1]


def test_long_prefills_have_buckets():
    """P67: TTFT from 0.03 to 1800 s hits seven buckets, none of them the overflow."""
    histogram = Histogram(TTFT_BOUNDS_S)
    for seconds in (0.03, 0.9, 12, 95, 410, 1500, 1800):
        assert histogram.add(seconds * 1e3)
    assert histogram.overflow_share == 0
    assert sum(count > 0 for count in histogram.counts) == 7


def test_values_that_are_no_times_are_refused():
    """P72: NaN, a negative value, None and infinity leave count and sum alone."""
    histogram = Histogram(TTFT_BOUNDS_S)
    added = [histogram.add(value) for value in (math.nan, -5.0, None, math.inf, 400.0)]
    assert added == [False, False, False, False, True]
    assert (histogram.count, histogram.sum_s) == (1, 0.4)


def test_workers_add_up():
    """P55: three workers, thirteen values; the median lies in the bucket up to 30 s."""
    bounds = [1, 5, 30, 120, 600]
    merged = Histogram(bounds)
    for counts in ([3, 2, 0, 0, 0, 0], [0, 1, 4, 0, 0, 1], [0, 0, 0, 2, 0, 0]):
        merged.merge(filled(bounds, counts))
    assert merged.counts == [3, 3, 4, 2, 0, 1]
    assert merged.count == 13
    assert list(merged.cumulative()) == [3, 6, 10, 12, 12, 13]
    assert 5 < merged.quantile(0.5) <= 30


def test_a_quantile_in_the_overflow_reads_as_the_last_bound():
    """P67-a: 98 % above 10 s read as 10; the share tells."""
    histogram = filled([1, 5, 10], [0, 0, 2, 98])
    assert histogram.quantile(0.99) == 10
    assert histogram.overflow_share == 0.98


def test_a_wide_bucket_invents_a_tail():
    """P67-b: a thousand values of 5.001 s read as 9.75 s with bounds 5 and 10; R10 keeps that within 28 %."""
    assert filled([5, 10], [0, 1000, 0]).quantile(0.95) == 9.75
    fine = Histogram(TTFT_BOUNDS_S)
    fine.add(5001.0, times=1000)
    assert fine.quantile(0.95) == pytest.approx(5.001, rel=0.28)


def test_buckets_are_summed_before_the_quantile():
    """P71: of the fleet the p95 is 5.05; the average of the workers' p95 is 5.25."""
    workers = [filled([1, 10], [100, 0, 0]), filled([1, 10], [0, 10, 0])]
    average = sum(worker.quantile(0.95) for worker in workers) / 2
    workers[0].merge(workers[1])
    assert workers[0].quantile(0.95) == pytest.approx(5.05)
    assert average == pytest.approx(5.25)


def test_an_empty_histogram_has_no_quantile():
    """Absent, not 0."""
    assert Histogram([1, 2]).quantile(0.5) is None
    assert Histogram([1, 2]).overflow_share == 0


@given(st.lists(TIMES_MS, min_size=1, max_size=4))
def test_merging_over_the_wire_equals_counting_in_one_place(workers):
    """The order and the split over workers do not matter, to the last nanosecond, and the wire holds builtins."""
    whole, merged = Histogram(TTFT_BOUNDS_S), Histogram(TTFT_BOUNDS_S)
    for values in workers:
        part = Histogram(TTFT_BOUNDS_S)
        for value in values:
            whole.add(value)
            part.add(value)
        wire = part.to_wire()
        assert {type(number) for number in wire} == {int}
        merged.merge(Histogram.from_wire(TTFT_BOUNDS_S, wire))
    assert (merged.counts, merged.sum_ns) == (whole.counts, whole.sum_ns)
    assert merged.count == sum(len(values) for values in workers)


@given(st.floats(10.5, 1_999_999), st.floats(0.01, 1.0))
def test_a_quantile_is_off_by_at_most_the_ratio_of_the_bounds(value_ms, q):
    """28 % inside the range, for one repeated value, the worst that can stand in a bucket."""
    histogram = Histogram(TTFT_BOUNDS_S)
    histogram.add(value_ms, times=100)
    assert histogram.quantile(q) == pytest.approx(value_ms / 1e3, rel=0.2801)


@pytest.mark.parametrize("wire", [[0, 1], [0, 3, 5], [0, -1, 5], [0, 1, 0], [-1], [], [0, 1, -2]])
def test_a_wire_that_does_not_fit_is_refused(wire):
    """A worker of another version is not added up in silence."""
    with pytest.raises(ValueError, match=r"histogram|unpack"):
        Histogram.from_wire([1.0, 2.0], wire)


def test_different_bounds_are_not_added():
    """Their buckets mean different things."""
    with pytest.raises(ValueError, match="different bounds"):
        Histogram([1.0]).merge(Histogram([2.0]))

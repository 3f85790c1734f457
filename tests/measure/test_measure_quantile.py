"""Nearest-rank quantiles: exact, and never mixed with failures."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.measure.quantile import is_low_n, nearest_rank, nearest_rank_with_failures, of_sorted, summary

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=200)


def test_one_cold_outlier_does_not_turn_the_load_curve_round():
    """P14: the mean falls from 182 to 22 as load rises, the p50 rises from 2.1 to 4.0."""
    one = summary([2.0, 2.1, 2.0, 2.2, 900.0])
    eight = summary([4.0] * 50 + [900.0])
    assert (one["p50"], eight["p50"]) == (2.1, 4.0)
    assert one["mean"] == pytest.approx(181.66)
    assert eight["mean"] < one["mean"]
    assert (one["n"], eight["n"]) == (5, 51)


def test_failures_stand_beside_percentiles():
    """P49: two failures of ten change no percentile and no minimum; the adjusted p95 is infinite, its p50 is 320."""
    ttft = [300, 320, 310, None, 330, None, 305, 315, 325, 335]
    good = summary(ttft)
    assert good["n"] == 8
    assert (good["p50"], good["p95"], good["min"]) == (315, 335, 300)
    assert nearest_rank_with_failures(ttft, 2, 0.95) == math.inf
    assert nearest_rank_with_failures(ttft, 2, 0.50) == 320


def test_nothing_measured_is_absent():
    """P05: a cell whose every request failed has a report without a TTFT, not one of 0."""
    assert summary([]) is None
    assert summary([None, math.nan]) is None
    assert nearest_rank([], 0.5) is None
    assert nearest_rank_with_failures([], 0, 0.5) is None
    assert nearest_rank_with_failures([], 3, 0.5) == math.inf


def test_a_summary_of_known_values():
    """1 to 100: every percentile is its own number."""
    assert summary(range(100, 0, -1)) == {
        "mean": 50.5,
        "p50": 50,
        "p90": 90,
        "p95": 95,
        "p99": 99,
        "min": 1,
        "max": 100,
        "n": 100,
    }


@pytest.mark.parametrize("n", [1, 3, 7, 20, 100, 1000])
@pytest.mark.parametrize("percent", range(1, 101))
def test_ranks_are_not_moved_by_floating_point(n, percent):
    """0.07 * 100 is 7.000000000000001 in floating point; the rank is 7."""
    assert nearest_rank(range(1, n + 1), percent / 100) == -(-percent * n // 100)


@given(VALUES, st.floats(0.001, 1.0))
def test_the_nearest_rank_is_the_smallest_value_that_covers_q(values, q):
    """A share q of all values is at or below it, and of no smaller value is that true."""
    found = nearest_rank(values, q)
    assert found in values
    at_or_below = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert at_or_below >= q * len(values) - 1e-6
    assert below < q * len(values) + 1e-6


@pytest.mark.parametrize("q", [0.0, -0.5, 1.5])
def test_a_quantile_outside_its_range_is_refused(q):
    """95 instead of 0.95 is a bug, not a maximum."""
    with pytest.raises(ValueError, match="lies in"):
        nearest_rank([1.0], q)


@pytest.mark.parametrize(("n", "q", "low"), [(99, 0.99, True), (100, 0.99, False), (19, 0.95, True), (20, 0.95, False)])
def test_low_n(n, q, low):
    """Below 1 / (1 - q) values the quantile is only the maximum under another name."""
    assert is_low_n(n, q) is low


@given(values=VALUES, q=st.floats(0.01, 1.0))
def test_sorted_values_give_the_same_rank_without_being_sorted_again(values, q):
    """The short way for values that are kept sorted agrees with the long one; none of no values."""
    assert of_sorted(sorted(values), q) == nearest_rank(values, q)
    assert of_sorted([], q) is None

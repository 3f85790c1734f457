"""Exact percentiles, the interval of the median, and failures as infinite times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.analysis.spread import median, median_interval, spread, with_failures
from loadkit.measure import quantile

times = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


def test_percentiles_are_values_that_occurred():
    """Of 1..20 the nearest ranks are 10, 18, 19 and 20; the mean is 10.5."""
    found = spread(list(range(20, 0, -1)))
    assert {name: found[name] for name in ("mean", "p50", "p90", "p95", "p99", "min", "max", "n")} == {
        "mean": 10.5,
        "p50": 10,
        "p90": 18,
        "p95": 19,
        "p99": 20,
        "min": 1,
        "max": 20,
        "n": 20,
    }


def test_nothing_gives_nothing():
    """Without values there is no distribution, not a zero."""
    assert spread([]) is None
    assert median([]) is None
    assert with_failures([], 0) is None


@given(times)
def test_the_definition_is_the_one_of_measure(values):
    """On arrays the percentiles are those that `measure.quantile` gives on lists."""
    found, wanted = spread(values), quantile.summary(values)
    assert {name: found[name] for name in wanted if name != "mean"} == {k: v for k, v in wanted.items() if k != "mean"}
    assert found["mean"] == pytest.approx(wanted["mean"])
    assert median(values) == wanted["p50"]


@given(times, st.integers(0, 50))
def test_failures_count_as_infinite_times(values, failed):
    """A failure-inflated percentile is that of measure, and is called 'failed' where it falls on a failure."""
    found = with_failures(values, failed)
    assert found["n"] == len(values) + failed
    for name, q in quantile.LEVELS.items():
        wanted = quantile.nearest_rank_with_failures(values, failed, q)
        assert found[name] == ("failed" if wanted == float("inf") else wanted)


def test_the_interval_of_three_values_is_all_of_them():
    """Of three values each end has probability 7/27 in a bootstrap of the median, so 90 % needs both."""
    assert median_interval(np.array([1.0, 2.0, 3.0])) == [1.0, 3.0]
    assert median_interval(np.array([1.0, 2.0])) is None


def test_the_interval_is_that_of_a_bootstrap():
    """Drawing ranks gives the interval that resampling the values gives, and the same one each time."""
    values = np.sort(np.random.default_rng(5).gamma(4.0, 25.0, 101))
    resamples = np.random.default_rng(6).choice(values, (4000, 101))
    low, high = np.quantile(np.median(resamples, axis=1), [0.05, 0.95])
    found = median_interval(values)
    assert found == pytest.approx([low, high], rel=0.05)
    assert found == median_interval(values)

"""The schedule of an open loop: how many requests, when each is due, and whose they are."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.plan.arrivals import KINDS, NS, schedule, share

RATES = st.floats(0.05, 500.0)
SECONDS = st.floats(0.1, 60.0)


@pytest.mark.parametrize(
    ("rate", "seconds", "times_ms"),
    [
        (1, 3, [0, 1000, 2000]),
        (2.5, 2, [0, 400, 800, 1200, 1600]),
        (0.1, 60, [0, 10_000, 20_000, 30_000, 40_000, 50_000]),
        (1000, 0.003, [0, 1, 2]),
        (3, 1, [0, 333.333333, 666.666667]),
    ],
)
def test_constant_arrivals_are_due_at_exact_times(rate, seconds, times_ms):
    """The first at once, then one each 1/rate s, to the nanosecond; none at the end itself."""
    made = schedule("constant", rate, seconds, "s")
    assert [(item.number, item.due_ns) for item in made] == [(i, round(ms * 1e6)) for i, ms in enumerate(times_ms, 1)]


def test_a_long_constant_schedule_does_not_drift():
    """The last of 864,000 arrivals of a day is where its number puts it: no rounding adds up."""
    made = schedule("constant", 10, 86_400, "s")
    assert len(made) == 864_000
    assert made[-1].due_ns == 863_999 * NS // 10
    assert all(made[k].due_ns == k * NS // 10 for k in range(0, 864_000, 9973))


@given(rate=RATES, seconds=SECONDS)
def test_a_constant_schedule_has_rate_times_seconds_arrivals(rate, seconds):
    """As many as begin within the time; gaps differ by a nanosecond at most."""
    made = schedule("constant", rate, seconds, "s")
    assert abs(len(made) - rate * seconds) <= 1
    assert all(abs((b.due_ns - a.due_ns) - NS / rate) <= 1 for a, b in pairwise(made))


@given(kind=st.sampled_from(sorted(KINDS)), rate=RATES, seconds=SECONDS, seed=st.text(max_size=8))
def test_a_schedule_is_in_order_within_its_time_and_numbered(kind, rate, seconds, seed):
    """Whatever the kind: ascending, inside [0, seconds), numbers 1, 2, …, the same for the same arguments."""
    made = schedule(kind, rate, seconds, seed)
    assert made == schedule(kind, rate, seconds, seed)
    assert [item.number for item in made] == list(range(1, len(made) + 1))
    due = [item.due_ns for item in made]
    assert due == sorted(due)
    assert all(0 <= at < seconds * NS + 1 for at in due)


@settings(max_examples=30)
@given(rate=st.floats(0.5, 200.0), seed=st.integers(0, 10**6))
def test_a_longer_schedule_begins_as_the_shorter_one(rate, seed):
    """The length of a measurement moves no arrival."""
    short = schedule("poisson", rate, 5, str(seed))
    assert schedule("poisson", rate, 10, str(seed))[: len(short)] == short


@given(
    rate=st.floats(0.5, 100.0),
    workers=st.integers(1, 9),
    kind=st.sampled_from(sorted(KINDS)),
)
def test_the_shares_of_workers_are_the_whole_schedule(rate, workers, kind):
    """Worker k of n has the arrivals k, k+n, …: disjoint, none left out, times and numbers unchanged."""
    whole = schedule(kind, rate, 10, "seed")
    shares = [share(whole, k, workers) for k in range(workers)]
    assert sorted(item for part in shares for item in part) == list(whole)
    assert all((item.number - 1) % workers == k for k, part in enumerate(shares) for item in part)


def test_poisson_gaps_are_exponential():
    """Mean and standard deviation of the gaps are 1/rate, and their quantiles those of the law, within 4 standard
    errors of 40,000 gaps."""
    rate = 40.0
    made = schedule("poisson", rate, 1000, "gaps")
    gaps = [made[0].due_ns / NS, *((b.due_ns - a.due_ns) / NS for a, b in pairwise(made))]
    n = len(gaps)
    mean = sum(gaps) / n
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / n)
    assert mean * rate == pytest.approx(1, abs=4 / math.sqrt(n))
    assert deviation * rate == pytest.approx(1, abs=4 * math.sqrt(2 / n))
    for share_below in (0.1, 0.5, 0.9):
        found = sum(gap <= -math.log(1 - share_below) / rate for gap in gaps) / n
        assert found == pytest.approx(share_below, abs=4 * math.sqrt(share_below * (1 - share_below) / n))


def test_poisson_counts_have_a_variance_equal_to_their_mean():
    """Counts in 4,000 windows of 1 s at 5/s: mean 5, variance 5, and neighbours are not correlated."""
    seconds = 4000
    counts = [0] * seconds
    for item in schedule("poisson", 5.0, seconds, "counts"):
        counts[item.due_ns // NS] += 1
    mean = sum(counts) / seconds
    variance = sum((c - mean) ** 2 for c in counts) / seconds
    beside = sum((a - mean) * (b - mean) for a, b in pairwise(counts)) / seconds / variance
    assert mean == pytest.approx(5, abs=4 * math.sqrt(5 / seconds))
    assert variance == pytest.approx(5, rel=4 * math.sqrt(2.2 / seconds))
    assert abs(beside) < 4 / math.sqrt(seconds)


def test_other_seeds_give_other_poisson_schedules():
    """A hundred seeds, a hundred schedules."""
    assert len({schedule("poisson", 2.0, 20, str(seed)) for seed in range(100)}) == 100

"""The retry table, the back-off and the budget: pure decisions, no clock and no sleep."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.call.retry import NO_RETRY, TABLE, Ending, RetryBudget, RetryPolicy, backoff_s, next_wait_s
from loadkit.record.names import Outcome

POLICY = RetryPolicy(max_attempts=4, base_s=1.0, cap_s=30.0)


def wait(outcome, attempt=1, policy=POLICY, reserve=100.0, **ending):
    """The decision for one ended attempt, with a full budget and a fixed seed."""
    return next_wait_s(policy, RetryBudget(reserve=reserve), random.Random(7), attempt, Ending(outcome, **ending))


def test_what_is_retried():
    """429 and overload always, faults of connecting only when asked, everything else never."""
    asked = RetryPolicy(connect_faults=True)
    plain = {outcome for outcome in Outcome if wait(outcome) is not None}
    with_faults = {outcome for outcome in Outcome if wait(outcome, policy=asked) is not None}
    assert plain == {Outcome.RATE_LIMITED, Outcome.OVERLOADED}
    assert with_faults - plain == {Outcome.CONNECT_ERROR, Outcome.CONNECT_TIMEOUT, Outcome.DNS_ERROR}
    assert set(TABLE) == with_faults


def test_never_after_a_token_nor_when_final():
    """A token that was generated, or a refusal that waiting cannot change, ends the request."""
    assert wait(Outcome.OVERLOADED, tokens=True) is None
    assert wait(Outcome.RATE_LIMITED, final=True) is None


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_full_jitter_stays_in_its_range(attempt, seed):
    """Uniform between 0 and base * 2**(attempt - 1), never above the cap."""
    found = backoff_s(POLICY, attempt, random.Random(seed))
    assert 0 <= found <= min(30.0, 2.0 ** min(attempt - 1, 10))


def test_jitter_is_the_seeds():
    """The same generator gives the same wait: a run can be repeated."""
    assert wait(Outcome.RATE_LIMITED, attempt=3) == random.Random(7).uniform(0, 4.0)


def test_backoff_after_a_429_lengthens_only_where_it_may():
    """Where concurrency can still be lowered every wait is as short as the first; an overload is no matter of that."""
    steady = RetryPolicy(max_attempts=4, base_s=1.0, cap_s=30.0, lengthens=False)
    assert wait(Outcome.RATE_LIMITED, 3, steady) == wait(Outcome.RATE_LIMITED, 1)
    assert wait(Outcome.OVERLOADED, 3, steady) == wait(Outcome.OVERLOADED, 3)
    assert wait(Outcome.RATE_LIMITED, 3, steady, retry_after_s=20.0) >= 20.0


@given(st.floats(0, 30), st.integers(0, 2**32))
def test_retry_after_is_never_undercut(stated, seed):
    """The wait is the stated one, or up to a tenth longer so that users do not return in step."""
    found = next_wait_s(
        POLICY, RetryBudget(), random.Random(seed), 1, Ending(Outcome.RATE_LIMITED, retry_after_s=stated)
    )
    assert stated <= found <= stated * 1.1


def test_retry_after_zero_is_at_once_and_beyond_the_cap_is_the_end():
    """Zero is not absent; a wait longer than the cap is not cut short."""
    assert wait(Outcome.RATE_LIMITED, retry_after_s=0.0) == 0.0
    assert wait(Outcome.RATE_LIMITED, retry_after_s=30.1) is None


def test_attempts_are_counted():
    """The last allowed attempt is the last; without retries the first is."""
    assert wait(Outcome.RATE_LIMITED, attempt=3) is not None
    assert wait(Outcome.RATE_LIMITED, attempt=4) is None
    assert wait(Outcome.RATE_LIMITED, policy=NO_RETRY) is None


def test_default_backoff_can_outlast_a_minute():
    """A rate limit counts by the minute; the waits of a request must be able to reach past its window."""
    policy = RetryPolicy()
    longest = sum(min(policy.cap_s, policy.base_s * 2**n) for n in range(policy.max_attempts - 1))
    assert longest > 60


@given(st.lists(st.booleans(), max_size=300), st.integers(0, 5))
def test_budget_bounds_retries_at_every_moment(moves, reserve):
    """However requests and refusals interleave, retries stay within the reserve and a fifth of first attempts."""
    budget, first, retries = RetryBudget(reserve=reserve), 0, 0
    for is_first in moves:
        if is_first:
            budget.first_attempt()
            first += 1
        elif budget.take():
            retries += 1
        assert retries <= reserve + first / 5 + 1e-6


def test_budget_gives_all_of_its_fifth():
    """Five first attempts pay for one retry, exactly; a spent budget pays for none."""
    budget = RetryBudget(reserve=0)
    for _ in range(50):
        budget.first_attempt()
    assert [budget.take() for _ in range(11)] == [True] * 10 + [False]


def test_a_spent_budget_ends_the_request():
    """An outcome of the table is not retried when the budget is spent, and a final one spends nothing."""
    budget = RetryBudget(reserve=1)
    rng = random.Random(1)
    assert next_wait_s(POLICY, budget, rng, 1, Ending(Outcome.BAD_REQUEST)) is None
    assert next_wait_s(POLICY, budget, rng, 1, Ending(Outcome.OVERLOADED)) is not None
    assert next_wait_s(POLICY, budget, rng, 1, Ending(Outcome.OVERLOADED)) is None


@pytest.mark.parametrize("name", ["AUTH", "FORBIDDEN", "NOT_FOUND", "MODEL_NOT_FOUND", "BAD_REQUEST"])
def test_refusals_that_stay_are_not_in_the_table(name):
    """400, 401, 403, 404 and their like are answers, not accidents."""
    assert Outcome[name] not in TABLE

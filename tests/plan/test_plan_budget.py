"""Budgets: what counts as spent, what may still start, and why nothing more may."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.budget import Budget, Ledger, Spent, budget_of, spent_by
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan, fit_cells

PRICED = Budget(price_input=2.0, price_output=10.0)


def record(prompt=100, output=20, request_id="a", target=100, attempts=(("ok", 200),)):
    """A finished request as the budget reads it."""
    tries = [{"outcome": outcome, "http_status": status} for outcome, status in attempts]
    return {
        "request_id": request_id,
        "target_tokens": target,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "attempts": tries,
    }


@pytest.mark.parametrize(
    ("spent", "seconds", "reason"),
    [((50, 49), 9.0, None), ((50, 50), 0.0, "tokens"), ((0, 0), 10.0, "seconds"), ((0, 0), 9.9, None)],
)
def test_a_budget_names_what_is_used_up(spent, seconds, reason):
    """At the limit nothing more may start."""
    assert Budget(tokens=100, seconds=10.0).exhausted(Spent(*spent), seconds) == reason
    assert Budget().exhausted(Spent(10**12, 10**12), 1e9) is None


def test_cost_is_that_of_the_prices():
    """Per million tokens, prompt and output apart; the limit itself may be reached and not passed."""
    assert PRICED.cost_of(Spent(500_000, 100_000)) == 2.0
    budget = Budget(cost=2.0, price_input=2.0, price_output=10.0)
    assert budget.passed_by(Spent(500_000, 100_000)) is None
    assert budget.passed_by(Spent(500_001, 100_000)) == "cost"
    assert budget.exhausted(Spent(500_000, 100_000), 0.0) == "cost"


@pytest.mark.parametrize(
    ("attempts", "prompts"),
    [
        ((("ok", 200),), 1),
        ((("rate_limited", 429), ("ok", 200)), 1),
        ((("connect_error", None),), 0),
        ((("dns_error", None), ("server_error", 500)), 0),
        ((("read_timeout", None),), 1),
        ((("stream_error", 200), ("ok", 200)), 2),
        ((), 0),
    ],
)
def test_a_prompt_counts_for_each_attempt_that_a_server_took_in(attempts, prompts):
    """What was refused or never arrived is not spent; what was cut off half-way is."""
    assert spent_by(record(attempts=attempts)) == Spent(100 * prompts, 20)


def test_a_prompt_without_a_count_counts_as_planned():
    """Nothing that was sent is free because its length is not known."""
    assert spent_by(record(prompt=None, output=None, attempts=[("reset", None)])) == Spent(100, 0)


def test_what_is_in_flight_is_set_aside():
    """A request may start only where it and those in flight fit at their longest; an end frees what it did not take."""
    ledger = Ledger(Budget(tokens=300))
    assert ledger.refuse(Spent(100, 50)) is None
    ledger.start("a", Spent(100, 50))
    assert ledger.refuse(Spent(100, 50)) is None
    ledger.start("b", Spent(100, 50))
    assert ledger.refuse(Spent(1, 0)) == "tokens"
    ledger.end(record(100, 20, "a"))
    assert ledger.spent == Spent(100, 20)
    assert ledger.refuse(Spent(29, 1)) is None
    assert ledger.refuse(Spent(30, 1)) == "tokens"


def test_prompts_that_turn_out_longer_are_expected_to_be_so():
    """Where the server counts twice the tokens a prompt was built for, so will it for the next one."""
    ledger = Ledger(Budget(tokens=400))
    ledger.start("a", Spent(100, 0))
    ledger.end(record(200, 0, "a"))
    assert ledger.refuse(Spent(100, 0)) is None
    assert ledger.refuse(Spent(101, 0)) == "tokens"


@pytest.mark.parametrize("seed", range(20))
def test_no_order_of_ends_passes_the_budget(seed):
    """Requests that take at most what was set aside never spend more than the budget, however they overlap."""
    rng = random.Random(seed)
    ledger, flying = Ledger(Budget(tokens=5000)), []
    for number in range(500):
        if flying and rng.random() < 0.5:
            ledger.end(record(rng.randint(0, 100), rng.randint(0, 50), flying.pop(rng.randrange(len(flying)))))
        elif ledger.refuse(Spent(100, 50)) is None:
            ledger.start(str(number), Spent(100, 50))
            flying.append(str(number))
    for left in flying:
        ledger.end(record(100, 50, left))
    assert 4800 < sum(ledger.spent) <= 5000


def test_a_cost_needs_prices():
    """Without them one line says what to do, before anything is sent."""
    plan = Plan("t", fit_cells([(128, 1)], None, 16), 1, budget_cost=1.0)
    with pytest.raises(ConfigError, match="price_input and price_output"):
        budget_of(plan, Endpoint("lab", "http://h/v1", price_input=1.0))
    budget = budget_of(plan, Endpoint("lab", "http://h/v1", price_input=1.0, price_output=0.0, currency="EUR"))
    assert (budget.cost, budget.price_input, budget.price_output, budget.currency) == (1.0, 1.0, 0.0, "EUR")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tokens", "the budget of 5,000 tokens has no room left: 4,900 tokens are spent, and what is in flight"),
        ("cost", "the budget of 0.5 USD has no room left: 0.0188 USD are spent, and what is in flight or next"),
        ("seconds", "the budget of 60 s is used up: 61 s have passed"),
    ],
)
def test_the_sentence_says_limit_and_use(name, text):
    """One sentence for manifest, report and terminal."""
    budget = Budget(5000, 0.5, 60.0, price_input=2.0, price_output=10.0)
    assert budget.sentence(name, Spent(3775, 1125), 61.4).startswith(text)


@given(
    limit=st.integers(1, 10**9),
    cost=st.floats(0.001, 1e6),
    uses=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 500)), min_size=1, max_size=6),
)
def test_parts_of_a_budget_have_room_for_what_they_were_asked_for_and_are_never_more_than_it(limit, cost, uses):
    """A part as large as a use admits it; parts that fill the whole admit together no token and no money beyond it."""
    whole = Budget(limit, cost, 60.0, price_input=2.0, price_output=10.0)
    shares = [whole.share_of(Spent(*use)) for use in uses]
    for use, share in zip(uses, shares, strict=True):
        assert whole.part(share).passed_by(Spent(*use)) is None
    total = max(1.0, sum(shares))
    parts = [whole.part(share / total) for share in shares]
    assert sum(part.tokens for part in parts) <= limit
    assert sum(part.cost for part in parts) <= cost * (1 + 1e-9)
    assert all(part.seconds == 60.0 for part in parts)
    assert Budget(seconds=5.0).share_of(Spent(*uses[0])) == 0
    assert Budget(seconds=5.0).part(0.0).passed_by(Spent(10**9, 10**9)) is None


def test_a_ledger_tells_what_the_next_request_may_bring_it_to():
    """What has ended by what it took, what is in flight by the most, prompts by how much longer they turned out."""
    ledger = Ledger(Budget(tokens=1000))
    ledger.end(record(120, 20, target=100))
    ledger.start("b", Spent(100, 30))
    assert ledger.with_next(Spent()) == Spent(120 + 120, 20 + 30)
    assert ledger.with_next(Spent(50, 5)) == Spent(120 + 180, 20 + 35)

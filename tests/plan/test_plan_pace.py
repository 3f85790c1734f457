"""Times as options give them, and the pauses of streams."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.errors import ConfigError
from loadkit.plan.flags import add_options
from loadkit.plan.ladder import Plan, Visit, fit_cells
from loadkit.plan.options import resolve
from loadkit.plan.pace import parse_seconds, parse_think, think_s
from loadkit.plan.stages import Ticket
from loadkit.plan.text import must_ask, plan_text
from loadkit.record.names import Phase

CELLS = fit_cells([(128, 2)], None, 16)


@pytest.fixture
def ask(tmp_path):
    """ask(*words): the plan that the options of a run make."""

    def plan(*words):
        parser = argparse.ArgumentParser()
        add_options(parser)
        return resolve(parser.parse_args(["--url", "http://127.0.0.1:9", *words]), {}, tmp_path).plan

    return plan


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("20s", 20), ("20", 20), ("10m", 600), ("1.5min", 90), ("2h", 7200)]
)
def test_times_have_units(text, seconds):
    """Milliseconds to hours; a bare number is seconds."""
    assert parse_seconds("--x", text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "1d", "1e3", "nan", "1 2", "0x1", "10ms"])
def test_what_is_no_time_is_one_line(text):
    """Also one outside its limits; the line names the option."""
    with pytest.raises(ConfigError, match="--duration") as found:
        parse_seconds("--duration", text, 0.1)
    assert "\n" not in str(found.value)


def test_think_is_a_time_or_a_range():
    """A range has its end after its beginning."""
    assert parse_think("500ms") == (0.5, 0.5)
    assert parse_think("0.2s..1s") == (0.2, 1.0)
    with pytest.raises(ConfigError, match="ends before"):
        parse_think("1s..0.2s")
    with pytest.raises(ConfigError, match="--think"):
        parse_think("1s..")


@given(st.integers(0, 2**40), st.integers(0, 50), st.integers(1, 1000))
def test_pauses_are_seeded_and_lie_in_the_range(seed, slot, turn):
    """The same place in the same plan pauses the same; another turn, another slot or another seed does not."""
    plan = Plan("t", CELLS, seed, think_s=(0.2, 1.0))
    visit, ticket = Visit(0, CELLS[0], 0, True), Ticket(Phase.MEASURE, turn, slot, turn)
    pause = think_s(plan, visit, ticket)
    assert 0.2 <= pause <= 1.0
    assert pause == think_s(plan, visit, Ticket(Phase.MEASURE, turn, slot, turn))
    others = {
        think_s(plan, visit, Ticket(Phase.MEASURE, turn, slot, turn + 1)),
        think_s(plan, visit, Ticket(Phase.MEASURE, turn, slot + 1, turn)),
        think_s(Plan("t", CELLS, seed + 1, think_s=(0.2, 1.0)), visit, ticket),
    }
    assert pause not in others
    assert think_s(Plan("t", CELLS, seed, think_s=(0.3, 0.3)), visit, ticket) == 0.3


def test_the_options_make_the_plan(ask):
    """Times in seconds; a plan survives its trip through JSON."""
    plan = ask(
        "--duration", "20m", "--think", "0.2s..1s", "--max-duration", "2h", "--budget-tokens", "5000",
        "--budget-cost", "1.5",
    )  # fmt: skip
    assert (plan.duration_s, plan.think_s, plan.max_duration_s) == (1200.0, (0.2, 1.0), 7200.0)
    assert (plan.budget_tokens, plan.budget_cost) == (5000, 1.5)
    assert plan.soak
    assert Plan.from_json(plan.to_json()) == plan
    assert not ask("--rounds", "2").soak


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--duration", "1m", "--rounds", "3"), "--rounds"),
        (("--think", "1s", "--rate", "5"), "--think"),
        (("--budget-tokens", "0"), "--budget-tokens"),
        (("--budget-cost", "free"), "--budget-cost"),
        (("--max-duration", "soon"), "--max-duration"),
    ],
)
def test_what_contradicts_is_refused(ask, words, what):
    """One line that names the option."""
    with pytest.raises(ConfigError, match=what):
        ask(*words)


def test_a_plan_without_a_bound_asks(ask):
    """A time does not bound tokens, a budget does."""
    assert "--budget-tokens" in must_ask(ask("--duration", "1m"))
    assert must_ask(ask("--duration", "1m", "--budget-tokens", "1000")) is None
    assert must_ask(ask("--duration", "1m", "--budget-tokens", "2000000", "--tiers", "512K")) is not None
    assert must_ask(ask("--tiers", "512K", "--budget-tokens", "1000")) is None


def test_the_plan_in_words_says_how_long_and_how_far(ask):
    """Time, pauses and budgets are notes of the dry run."""
    text = plan_text(ask("--duration", "90s", "--think", "0.2s..1s", "--budget-tokens", "5000"), "endpoint")
    assert "each cell is measured for 1 min 30 s: requests and tokens are the least" in text
    assert "every stream pauses 0.2 to 1 s between its requests" in text
    assert "before it takes more than 5,000 tokens" in text

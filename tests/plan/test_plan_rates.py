"""The options of an open loop, and the plan they make."""

import pytest

from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Cell, Estimate, Plan, fit_cells
from loadkit.plan.text import plan_text, timeout_warnings


def test_a_rate_makes_an_open_loop_of_its_defaults(run):
    """Poisson arrivals for a minute at one tier, at most 128 streams."""
    plan = run("http://h", "--rate", "2.5").plan
    assert plan.cells == (Cell(1024, 128, 1024, 2.5),)
    assert (plan.arrivals, plan.duration_s, plan.rate_search, plan.open_loop) == ("poisson", 60.0, False, True)
    assert [cell.tier_tokens for cell in run("--rate", "1").plan.cells] == [512]  # the embedded engine


def test_a_sweep_visits_every_rate_once_ascending(run):
    """Tiers inside a rate, whatever the order on the command line."""
    words = ("--rate", "4,1,2", "--tiers", "128,1K", "--max-in-flight", "8", "--arrivals", "constant")
    plan = run("http://h", *words, "--duration", "20s").plan
    visits = plan.visits()
    rates = ("128@1rps", "1024@1rps", "128@2rps", "1024@2rps", "128@4rps", "1024@4rps")
    assert [visit.cell.id for visit in visits] == list(rates)
    assert all(visit.round == 0 and visit.first and visit.cell.concurrency == 8 for visit in visits)
    assert (plan.arrivals, plan.duration_s) == ("constant", 20.0)
    assert plan.requests() == (280, 6, 0)
    assert plan.tokens().input == 140 * (128 + 1024) + 6 * 128  # a remote endpoint is warmed up by short prompts


def test_a_search_begins_at_one_a_second_or_where_it_is_told(run):
    """--rate-search alone is an open loop too."""
    assert [cell.rate for cell in run("http://h", "--rate-search").plan.cells] == [1.0]
    plan = run("http://h", "--rate-search", "--rate", "3").plan
    assert ([cell.rate for cell in plan.cells], plan.rate_search) == ([3.0], True)


@pytest.mark.parametrize("max_in_flight", [1, 16])
def test_a_cell_of_an_open_loop_is_none_of_a_ladder(max_in_flight):
    """Also with a single stream: it is visited once, and warmed up by what is asked for, not by each stream."""
    plan = Plan("rate", fit_cells([(128, max_in_flight)], None, 8, (1.0,)), 1, warmup=2, duration_s=10.0)
    assert [(visit.round, plan.warmup_of(visit)) for visit in plan.visits()] == [(0, 2)]
    assert plan.measured_of(plan.cells[0]) == 10


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rate", "0"), "above 0"),
        (("--rate", "1,-2"), "above 0"),
        (("--rate", "fast"), "such as 2.5 or 1,2,4"),
        (("--rate", "1,,2"), "such as"),
        (("--rate", "1e3"), "such as"),
        (("--rate", "200000"), "at most 100000"),
        (("--rate", "1", "--concurrency", "2"), "use --max-in-flight"),
        (("--rate", "1", "--rounds", "2"), "use --duration"),
        (("--rate", "1", "--refine", "2"), "--refine"),
        (("--rate-search", "--plan", "long"), "use --tiers"),
        (("--rate", "1", "--think", "1s"), "--think"),
        (("--rate", "1", "--arrivals", "bursts"), "must be one of constant, poisson"),
        (("--rate", "1", "--max-in-flight", "0"), "--max-in-flight"),
        (("--rate", "0.1",), "a --duration of 100s or more"),
        (("--rate", "1", "--duration", "2s"), "fewer than 10 requests"),
        (("--rate", "100000", "--duration", "60s"), "more than 1,000,000 requests"),
        (("--arrivals", "poisson"), "give it a --rate"),
        (("--max-in-flight", "4"), "give it a --rate"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_one_line(run, words, message):
    """A wrong rate, or options of a closed loop beside it, say what to change."""
    with pytest.raises(ConfigError) as caught:
        run("http://h", *words)
    assert message in caught.value.message
    assert "\n" not in caught.value.message


def test_the_plan_in_words_says_rate_streams_and_requests(run):
    """What is printed before anything is sent; no stream count raises a timeout warning."""
    plan = run("http://h", "--rate", "2", "--rate-search", "--duration", "30s").plan
    text = plan_text(plan, "endpoint")
    assert "2/s, at most 128" in text
    assert "60 measured, 1 warm-up, at least 0 drain" in text
    assert "--rate-search" in text
    assert "429" not in text
    assert timeout_warnings(plan, Estimate(1.0, 10.0)) == []


def test_ids_and_equality_tell_rates_apart():
    """Two cells that differ in the rate only are two cells, with ids that a folder may have."""
    cells = [Cell(4096, 8), Cell(4096, 8, rate=2.5), Cell(4096, 8, rate=0.125)]
    assert [cell.id for cell in cells] == ["4096x8", "4096@2.5rps", "4096@0.125rps"]
    assert len(set(cells)) == 3

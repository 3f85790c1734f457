"""Cells, visits, and what a plan takes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.endpoint import Timeouts
from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import NAMED_PLANS, Cell, Estimate, Plan, clip, fit_cells, grid, shrink_notes

K = 1024
PAIRS = st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 8)), min_size=1, max_size=8, unique=True)


def plan(pairs, **values):
    """A plan of (tier, concurrency) pairs with seed 1."""
    return Plan(**{"name": "t", "cells": fit_cells(pairs, None, 128), "seed": 1, **values})


def test_a_cell_has_the_id_that_records_use():
    """Tier in tokens, then concurrency; the prompt is the tier's length unless it stands at a window."""
    assert Cell(4096, 2).id == "4096x2"
    assert Cell(4096, 2).target_tokens == 4096
    assert Cell(4096, 2, 3904).target_tokens == 3904


def test_the_long_plan_is_nine_cells_and_51_requests():
    """Five tiers alone, then 128K and 512K at 2 and 4: 15 + 36 measured requests, in that order."""
    long = plan(NAMED_PLANS["long"])
    assert len(long.cells) == 9
    assert long.requests().measured == 51
    together = [visit.cell.id for visit in long.visits() if visit.round == 0]
    assert together == ["131072x2", "524288x2", "131072x4", "524288x4"]
    assert [visit.round for visit in long.visits()] == [1] * 5 + [2] * 5 + [3] * 5 + [0] * 4


def test_the_other_named_plans():
    """Six tiers and one pair for the engine, a grid of nine for a URL, three tiers for a board."""
    assert NAMED_PLANS["engine"] == [(128, 1), (256, 1), (512, 1), (1024, 1), (1536, 1), (2048, 1), (512, 2)]
    assert NAMED_PLANS["url"] == [(t, c) for t in (128, K, 4 * K) for c in (1, 2, 4)]
    assert NAMED_PLANS["edge"] == [(128, 1), (512, 1), (1024, 1)]


@given(PAIRS, st.integers(1, 5), st.integers(0, 2**40))
def test_visits_cover_every_cell_and_round_once(pairs, rounds, seed):
    """Concurrency 1 once per round, the rest once; warm-up belongs to the first visit of a cell only."""
    made = plan(pairs, rounds=rounds, seed=seed)
    visits = made.visits()
    assert [visit.index for visit in visits] == list(range(len(visits)))
    seen = [(visit.cell.id, number) for visit in visits for number in made.rounds_of(visit)]
    assert sorted(seen) == sorted((f"{t}x{c}", r) for t, c in pairs for r in range(1, rounds + 1))
    for cell in made.cells:
        firsts = [visit.first for visit in visits if visit.cell == cell]
        assert firsts == [True] + [False] * (len(firsts) - 1)
    levels = [visit.cell.concurrency for visit in visits]
    assert levels == sorted(levels)
    assert sum(len(made.rounds_of(v)) * v.cell.concurrency for v in visits) == made.requests().measured
    assert sum(made.warmup_of(v) for v in visits) == made.requests().warmup


def test_the_seed_decides_the_order_of_tiers():
    """The same seed gives the same order, another seed another one, and rounds differ from each other."""
    pairs = grid([100 * i for i in range(1, 21)], (1,))

    def order(seed, number):
        return [v.cell.tier_tokens for v in plan(pairs, seed=seed).visits() if v.round == number]

    assert order(1, 1) == order(1, 1)
    assert len({tuple(order(seed, number)) for seed in (1, 2) for number in (1, 2)}) == 4


@pytest.mark.parametrize(("warmup", "concurrency", "expected"), [(1, 1, 1), (3, 1, 3), (1, 4, 4), (3, 2, 3)])
def test_warm_up_is_the_larger_of_n_and_concurrency(warmup, concurrency, expected):
    """Every stream has had one request before anything is measured."""
    made = plan([(128, concurrency)], warmup=warmup)
    assert made.warmup_of(made.visits()[0]) == expected


def test_tokens_count_warm_up_and_drain_with_their_own_prompts():
    """2 streams at 1000: 6 measured, 2 warm-up, 1 drain; a short warm-up reads 128 tokens."""
    made = plan([(1000, 2)], max_tokens=10)
    assert made.requests() == (6, 2, 1)
    assert made.tokens() == (9000, 90)
    assert plan([(1000, 2)], max_tokens=10, short_warmup=True).tokens() == (7256, 90)
    assert plan([(16, 1)], short_warmup=True).warmup_tokens(Cell(16, 1)) == 16


def test_seconds_follow_a_server_that_reads_one_prompt_at_a_time():
    """1 ms per prompt token, 10 ms per output token: 3 x (2 x 1 s + 0.1 s) measured, 2 x 1 s + 0.1 s warm-up."""
    assert plan([(1000, 2)], max_tokens=10).seconds(Estimate(1.0, 10.0)) == pytest.approx(8.4)
    assert plan([(1000, 1)], max_tokens=10, rounds=1).seconds(Estimate(1.0, 10.0, 500.0)) == pytest.approx(3.2)


def test_cost_needs_both_prices(endpoint):
    """Prices are per million tokens; one price alone is no cost."""
    made = plan([(1000, 2)], max_tokens=10)
    assert made.cost(endpoint(price_input=1.0, price_output=10.0)) == pytest.approx(0.0099)
    assert made.cost(endpoint(price_input=1.0)) is None


def test_a_plan_survives_json():
    """The manifest and the workers get the same plan and the same visits."""
    made = plan(
        NAMED_PLANS["url"],
        cells=fit_cells(NAMED_PLANS["url"], None, 128, (2.5, 5.0)),
        slo="ttft=2s",
        headers={"X-A": "b"},
        extra_body={"k": [1]},
        timeouts=Timeouts(total=9),
    )
    again = Plan.from_json(json.loads(json.dumps(made.to_json())))
    assert again == made
    assert again.visits() == made.visits()


@pytest.mark.parametrize("data", [{}, {"cells": [{"tier": 1}]}, {"cells": 5}])
def test_a_damaged_stored_plan_is_a_config_error(data):
    """A manifest of another version says so in one line."""
    with pytest.raises(ConfigError, match="stored plan is damaged"):
        Plan.from_json(data)


def test_default_plans_are_clipped_to_the_window_and_then_fit():
    """4K on a window of 2048 becomes a tier of 2048 whose prompt leaves room; twins fall together."""
    pairs = clip([(128, 1), (2048, 1), (4096, 1), (128, 2)], 2048)
    assert pairs == [(128, 1), (2048, 1), (128, 2)]
    cells = fit_cells(pairs, 2048, 128)
    assert [(cell.tier_tokens, cell.target_tokens) for cell in cells] == [(128, 128), (2048, 1856), (128, 128)]


def test_a_shrunk_tier_is_explained():
    """One line per tier, none where nothing shrank."""
    made = Plan("t", fit_cells([(4096, 1), (4096, 2), (128, 1)], 4096, 128), 1)
    assert shrink_notes(made) == [
        "tier 4K stands at the window: its prompts have 3,904 tokens, "
        "which leaves 128 for the output and 64 for the template"
    ]


def test_a_plan_without_cells_is_refused():
    """Nothing to do is an error, not a success."""
    with pytest.raises(ConfigError, match="no cell"):
        fit_cells([], None, 128)

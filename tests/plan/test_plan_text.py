"""The plan in words."""

import pytest

from loadkit.plan.endpoint import Timeouts
from loadkit.plan.ladder import NAMED_PLANS, Estimate, Plan, fit_cells
from loadkit.plan.text import body_bytes, duration, must_ask, plan_text, timeout_warnings


def plan(pairs, **values):
    """A plan of (tier, concurrency) pairs with seed 1."""
    return Plan(**{"name": "t", "cells": fit_cells(pairs, None, 128), "seed": 1, **values})


def test_a_priced_plan_says_everything(endpoint):
    """Cells, requests, tokens, time at a measured speed, cost, and body bytes per tier."""
    priced = endpoint("http://10.0.0.5:8000", model="m", price_input=1.0, price_output=10.0, currency="EUR")
    text = plan_text(plan([(1000, 2), (4096, 1)], max_tokens=10), "endpoint", priced, Estimate(1.0, 10.0))
    assert text.splitlines() == [
        "Plan t for lab (10.0.0.5:8000, m): 2 cells, 4 visits, seed 1",
        "",
        "  tier  prompt tokens  body (en)  concurrency  measured           warm-up",
        "  1000          1,000    ~5.8 kB            2         6  2 x 1,000 tokens",
        "    4K          4,096   ~23.1 kB            1         3  1 x 4,096 tokens",
        "",
        "Requests: 9 measured, 3 warm-up, at least 1 drain",
        "Tokens:   25,384 in, at most 130 out",
        "Time:     about 25 s at 1,000 prompt tokens/s and 100 output tokens/s per stream (measured)",
        "Cost:     at most 0.0267 EUR",
        "Note: where more than 10% of a cell's requests are answered 429 it ends, "
        "and half its concurrency may be added",
        "Note: concurrency more than one step beyond a tier's knee, or above a rate limit, may be left out "
        "(--full-grid to keep it)",
    ]


def test_a_speed_nobody_measured_is_called_assumed(endpoint):
    """The time is still there, and so is what it rests on; an unknown price is not 0."""
    text = plan_text(plan([(128, 1)]), "endpoint", endpoint())
    assert "(assumed, not measured)" in text
    assert "Cost:     unknown" in text
    assert "Cost:     none" in plan_text(plan([(128, 1)]), "engine")


def test_a_shrunk_tier_is_a_note():
    """The reader sees the prompt's length and why."""
    text = plan_text(Plan("t", fit_cells([(4096, 1)], 4096, 128), 1), "engine")
    assert "Note: tier 4K stands at the window: its prompts have 3,904 tokens" in text


def test_more_than_1m_tokens_asks():
    """The long plan asks, the default ones do not, and the edge is at 1048576."""
    assert must_ask(plan(NAMED_PLANS["long"])).endswith("add --yes to run it")
    assert must_ask(plan(NAMED_PLANS["url"])) is None
    assert must_ask(plan(NAMED_PLANS["engine"])) is None
    assert must_ask(plan([(524287, 1)], rounds=1, max_tokens=1)) is None
    assert must_ask(plan([(524288, 1)], rounds=1, max_tokens=1)) is not None


def test_what_may_be_added_is_said_and_counted():
    """At most so many tiers, between the shortest and the longest at one stream, with the tokens they may take."""
    pairs = [(128, 1), (1024, 1), (4096, 2)]
    refining = plan(pairs, refine=2, rounds=3, warmup=1, max_tokens=100)
    assert refining.refine_tokens() == 2 * (3 + 1) * (1024 + 100)
    line = "up to 2 tiers between 128 and 1K may be added to narrow the knee (--refine), at most 8,992 tokens"
    assert f"Note: {line}" in plan_text(refining, "engine")
    assert "--refine" not in plan_text(plan(pairs), "engine")
    assert "Note" not in plan_text(plan([(128, 1)]), "engine")
    assert "nothing is left out" in plan_text(plan(pairs, full_grid=True), "engine")


def test_the_question_counts_what_may_be_added():
    """Half a million tokens alone need no asking, with two more tiers they do, and the question says why."""
    pairs = [(131072, 1)]
    assert must_ask(plan(pairs, rounds=2, max_tokens=1)) is None
    question = must_ask(plan(pairs, rounds=2, max_tokens=1, refine=2))
    assert f"{3 * 131073 * 3:,} tokens" in question
    assert "those of --refine included" in question


def test_body_bytes_are_near_what_natural_text_takes():
    """A million tokens: about 5.9 MB of English, 3.0 MB of Chinese."""
    assert body_bytes(1048576) == pytest.approx(5.9e6, rel=0.02)
    assert body_bytes(1048576, "zh") == pytest.approx(3.0e6, rel=0.02)


def test_a_timeout_under_twice_the_prediction_is_warned_of():
    """200 s predicted with 120 s allowed warns for that tier only; several streams queue behind each other."""
    short = Timeouts(read=120.0, ttft=1e6, ttft_scales=False)
    speed = Estimate(1.0, 10.0)
    assert timeout_warnings(plan([(200_000, 1), (1000, 1)], timeouts=short), speed) == [
        "--read-timeout 120 is under twice the 3 min 20 s predicted for the first token at 200000: raise it"
    ]
    assert len(timeout_warnings(plan([(50_000, 2)], timeouts=short), speed)) == 1
    assert timeout_warnings(plan([(50_000, 1)], timeouts=short), speed) == []


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (320, "5 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_read_well(seconds, text):
    """Two units at most."""
    assert duration(seconds) == text

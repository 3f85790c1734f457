"""What has not been measured yet: one prompt from unit prices, and the time of a plan."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.forecast.lengths import Lengths, Tier
from loadkit.analysis.forecast.plans import forecast
from loadkit.analysis.forecast.span import Span
from loadkit.analysis.forecast.speeds import Assumed, FromCard, FromRun
from loadkit.analysis.offline.analyse import analyse
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.inputs import InputError
from loadkit.plan.ladder import Cell, Estimate, Plan

SEED = [
    (123, 8.06, 65.4),
    (279, 18.59, 70.7),
    (539, 37.01, 68.7),
    (799, 54.62, 88.7),
    (1059, 75.1, 73.1),
    (1527, 108.81, 73.7),
]
STRAIGHT = Lengths(
    tuple(Tier(n, 50 + 0.1 * n, 0.9 * (50 + 0.1 * n), 1.2 * (50 + 0.1 * n)) for n in (100, 1000, 10000)),
    False,
    None,
    None,
)


@pytest.fixture(scope="module")
def seed(tmp_path_factory):
    """The articles' table of the 0.5B model as a summary."""
    path = tmp_path_factory.mktemp("seed") / "eng.json"
    path.write_text(json.dumps([{"real_tokens": n, "ttft_s": ttft, "tpot_ms": tpot} for n, ttft, tpot in SEED]))
    return analyse(path, bos=0, mapping=(), explain=False)["groups"][0]["summary"]


def test_a_measured_length_is_what_was_measured(seed):
    """1527 tokens x 71.3 ms are 108.8 s, and 99.4 % of a short answer's time."""
    speed = FromRun(seed, "seed")
    ttft, gap = speed.ttft(1527), speed.gap(1527, 1)
    assert ttft.value == pytest.approx(108_810, rel=1e-3)
    assert speed.lengths.by_price(1527).value == pytest.approx(108_810, rel=1e-3)
    assert ttft.value / (ttft.value + 9 * gap.value) == pytest.approx(0.99394, abs=1e-4)
    assert "scatter is not known" in ttft.how


def test_half_the_prompt_is_half_the_wait(seed):
    """764 tokens: 52.3 s between its neighbours, 52.8 s by a n + b n^2."""
    lengths = FromRun(seed, "seed").lengths
    assert lengths.ttft(764).value == pytest.approx(52_250, rel=5e-3)
    assert lengths.by_fit(764).value == pytest.approx(52_800, rel=2e-3)


@given(st.floats(1, 1e5))
@settings(max_examples=60)
def test_every_estimate_lies_between_its_ends(tokens):
    """Low, value and high are in order at every length, and the wait never shrinks as the prompt grows."""
    found, more = STRAIGHT.ttft(tokens), STRAIGHT.ttft(tokens * 1.1)
    assert 0 < found.low <= found.value <= found.high
    assert more.middle >= found.middle * 0.999


def test_between_tiers_a_straight_line_and_its_interval_are_met():
    """50 + 0.1 n at 4000, the ends at 0.9 and 1.2 of it."""
    found = STRAIGHT.ttft(4000)
    assert (found.low, found.value, found.high) == pytest.approx((0.9 * 450, 450, 1.2 * 450))


def test_nothing_is_interpolated_where_a_knee_may_lie():
    """The ends only, in a gap that the knee's interval touches; other gaps keep their line."""
    bent = Lengths(STRAIGHT.tiers, False, None, (2000.0, 3000.0))
    found = bent.ttft(4000)
    assert found.value is None
    assert "a knee may lie between 1000 and 10000" in found.how
    assert found.low < 450 < found.high
    assert bent.ttft(500).value is not None


def test_outside_the_ladder_both_ends_are_honest():
    """Below, a fixed cost is between none and everything; beyond, growth is between linear and quadratic."""
    below, beyond = STRAIGHT.ttft(50), STRAIGHT.ttft(20000)
    assert below.low < 55 < below.high
    assert beyond.low <= 2050 <= beyond.high
    assert beyond.high >= 4 * STRAIGHT.tiers[-1].high * 0.999
    assert "nothing was measured" in beyond.how


def plan(*cells, **more):
    return Plan("p", tuple(cells), seed=1, rounds=3, warmup=1, max_tokens=11, **more)


def test_the_time_of_a_plan_is_its_rounds_and_warmups():
    """Assumed 1 ms a token and 10 ms a gap: (3 rounds + 1 warm-up) x (1000 + 10 x 10) ms; two streams read in turn."""
    speed = Assumed(Estimate(prefill_ms=1.0, decode_ms=10.0))
    one = forecast(plan(Cell(1000, 1)), speed)
    assert one.seconds.value == pytest.approx(4 * 1.1)
    assert (one.seconds.low, one.seconds.high) == pytest.approx((2 * 1.1, 8 * 1.1))
    assert (one.prompt_tokens, one.output_tokens) == (4000, 44)
    two = forecast(plan(Cell(1000, 2)), speed)
    assert two.seconds.value == pytest.approx(4 * 2.1)
    assert two.seconds.low < 4 * 1.1 < two.seconds.high


def test_a_cell_that_was_measured_is_taken_as_it_was(seed):
    """Where the earlier run has the place, its own times count; elsewhere the curve at concurrency 1."""
    speed = FromRun(seed, "seed")
    found = dict(forecast(plan(Cell(1059, 1)), speed).cells)[Cell(1059, 1)]
    assert found.how == "measured at this place"
    assert found.value == pytest.approx(4 * (75.1 + 10 * 0.0731), rel=1e-3)
    assert "on the line between" in dict(forecast(plan(Cell(900, 1)), speed).cells)[Cell(900, 1)].how


def test_a_card_predicts_from_operations_and_bytes():
    """Llama-3-8B on 990 TFLOP/s and 3.35 TB/s: 8K at the peak takes 2 P n + attention, decode 16 GB a token."""
    speed = FromCard(lookup("llama-3-8b"), 990e12, 3.35e12)
    ttft, gap = speed.ttft(8192), speed.gap(8192, 1)
    peak_ms = 1000 * (2 * 6.979e9 * 8192 + 2 * 32 * 32 * 128 * 8192**2) / 990e12
    assert ttft.value == pytest.approx(peak_ms / 0.446, rel=0.01)
    assert ttft.low < ttft.value < ttft.high
    assert gap.low > 1000 * 15e9 / 3.35e12
    with pytest.raises(InputError, match="bandwidth"):
        FromCard(lookup("llama-3-8b"), 990e12, -1)


def test_spans_add_up_end_by_end():
    """Seconds one after the other; a span without a value takes the middle of its ends once another has one."""
    total = Span(1, None, 3).plus(Span(1, 1.5, 2))
    assert (total.low, total.value, total.high) == (2, 3.5, 5)
    assert Span(1, None, 3).plus(Span(1, None, 1)).value is None
    assert Span(1, 2, 3, "x").times(2) == Span(2, 4, 6, "x")

"""The law and the schedule as pure functions."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.sim.law import Dice, Law, output_length, schedule

ONE_MS = 1_000_000


def plan(law, n=0, tokens=8, start=0, jitter=0.0, scale=1.0):
    return schedule(law, n, (tokens, "length"), start, jitter, scale)


@pytest.mark.parametrize(
    ("changes", "n", "ttft"),
    [
        ({}, 1000, 50),
        ({"per_token_ms": 0.5}, 1000, 550),
        ({"per_token_ms": 0.5, "per_token2_ms": 0.001}, 1000, 1550),
        ({"per_token_ms": 0.5, "hinge_at": 600, "hinge_per_token_ms": 2}, 600, 350),
        ({"per_token_ms": 0.5, "hinge_at": 600, "hinge_per_token_ms": 2}, 601, 352.5),
        ({"break_at": 600, "break_ms": 200}, 600, 50),
        ({"break_at": 600, "break_ms": 200}, 601, 250),
        ({"per_token_ms": 0.5, "cached_tokens": 900}, 1000, 100),
        ({"per_token_ms": 0.5, "cached_tokens": 2000}, 1000, 50),
    ],
)
def test_ttft_is_the_formula(changes, n, ttft):
    """Each term of the law adds what it says, and a bend or jump begins one token above its place."""
    assert Law().with_changes(changes).ttft(n) == pytest.approx(ttft)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 5), st.integers(1, 7))
def test_writes_are_absolute_and_carry_every_event_once(start, tokens, per_event, per_write):
    """Write j is due at first + j * per_write * ITL, and the writes together carry all tokens."""
    law = Law(ttft_ms=3, itl_ms=2, tokens_per_event=per_event, events_per_write=per_write)
    made = plan(law, tokens=tokens, start=start)
    assert made.due(0) == start + 3 * ONE_MS
    assert [made.due(j) - made.due(0) for j in range(made.writes)] == [
        j * per_write * 2 * ONE_MS for j in range(made.writes)
    ]
    assert (made.writes - 1) * per_write < made.events <= made.writes * per_write
    assert made.tokens_of(made.events) == tokens
    assert made.tokens_of(made.events - 1) == (made.events - 1) * per_event


def test_scale_multiplies_all_times():
    """A tenth of the scale is a tenth of TTFT, gap and stall."""
    law = Law(ttft_ms=100, itl_ms=20, stall_after=2, stall_ms=500)
    made = plan(law, scale=0.1)
    assert [made.due(j) // ONE_MS for j in range(4)] == [10, 12, 64, 66]


def test_lock_step_rounds_up_to_one_grid():
    """Whatever the start, first and later events lie on multiples of the ITL, at most one ITL later."""
    law = Law(ttft_ms=7, itl_ms=20, lock_step=True)
    firsts = [plan(law, start=start * ONE_MS).first_ns / ONE_MS for start in (0, 13, 14, 33)]
    assert firsts == [20, 20, 40, 40]
    assert plan(law).step_ns == 20 * ONE_MS


def test_jitter_scales_ttft_only():
    """u = -1 and u = 1 give the two ends of the band; the gaps stay."""
    law = Law(ttft_ms=100, jitter=0.2)
    assert [plan(law, jitter=u).first_ns / ONE_MS for u in (-1, 0, 1)] == [80, 100, 120]
    assert plan(law, jitter=1).step_ns == plan(law).step_ns


@pytest.mark.parametrize("fault", ["cut", "reset", "inband_error", "stall"])
def test_a_fault_ends_the_events_where_it_says(fault):
    """n events leave before the fault; a fault beyond the end never happens."""
    assert (plan(Law(**{f"{fault}_after": 3})).events, plan(Law(**{f"{fault}_after": 3})).ending) == (3, fault)
    assert plan(Law(**{f"{fault}_after": 8})).ending == "complete"
    assert plan(Law(**{f"{fault}_after": 0})).writes == 0


@pytest.mark.parametrize(
    ("law", "request_", "expected"),
    [
        (Law(), (5, False, 0), (5, "length")),
        (Law(output_tokens=7), (None, False, 0), (7, "length")),
        (Law(eos_after=3), (5, False, 0), (3, "stop")),
        (Law(eos_after=3), (5, True, 0), (5, "length")),
        (Law(eos_after=3), (5, False, 4), (4, "stop")),
        (Law(eos_after=3), (3, False, 0), (3, "length")),
    ],
)
def test_output_length(law, request_, expected):
    """max_tokens is what comes out unless the model ends by itself and may."""
    assert output_length(law, *request_) == expected


def test_dice_repeat_by_seed_and_after_a_reset():
    """The same seed gives the same fates, a reset starts them again, another seed gives others."""
    dice = Dice(7)
    rolls = [dice.roll() for _ in range(50)]
    assert [Dice(7).roll()] == rolls[:1]
    dice.reset()
    assert [dice.roll() for _ in range(50)] == rolls
    other = Dice(8)
    assert [other.roll() for _ in range(50)] != rolls
    assert all(0 <= error < 1 and -1 <= jitter < 1 for error, jitter in rolls)


@pytest.mark.parametrize(
    "changes",
    [
        {"ttft": 5},
        {"ttft_ms": "5"},
        {"ttft_ms": True},
        {"ttft_ms": -1},
        {"ttft_ms": float("nan")},
        {"ttft_ms": float("inf")},
        {"ttft_ms": None},
        {"hinge_at": 2.5},
        {"tokens_per_event": 0},
        {"error_rate": 1.5},
        {"error_status": 200},
        {"lock_step": 1},
        {"role": "later"},
        {"retry_after": "1\r\nX: y"},
        {"cut_after": [1]},
    ],
)
def test_wrong_changes_are_refused_in_one_line(changes):
    """An unknown key or a value out of place is a ValueError that names it."""
    with pytest.raises(ValueError, match=next(iter(changes))) as caught:
        Law().with_changes(changes)
    assert "\n" not in str(caught.value)


def test_every_field_can_be_changed_to_its_own_value():
    """The key table covers every field of the law: defaults go through the checks unchanged."""
    assert Law().with_changes(dataclasses.asdict(Law())) == Law()
    assert Law().with_changes({"hinge_at": 5, "itl_ms": 3, "retry_after": 2}) == Law(
        hinge_at=5, itl_ms=3.0, retry_after="2"
    )

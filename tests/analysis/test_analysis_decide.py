"""Which cells are added and left out while a run goes on, by what was seen of it so far."""

from math import log2

import pytest

from loadkit.analysis.decide import decide
from loadkit.analysis.knee import locate
from loadkit.plan.further import LIMITED_SHARE, Tally, too_limited
from loadkit.plan.ladder import Cell, Plan, Visit
from loadkit.plan.tiers import tier_name

TIERS = (128, 256, 512, 1024, 2048, 4096)
JITTER = (0.99, 1.0, 1.01)


def break_at(tokens):
    """TTFT (ms) that doubles and more at a length."""
    return lambda n: 20 + 0.01 * n + (60 if n > tokens else 0)


def hinge_at(tokens):
    """TTFT (ms) that grows ten times as fast from a length on."""
    return lambda n: 20 + 0.01 * n + 0.1 * max(0, n - tokens)


def line(n):
    """TTFT (ms) without a knee."""
    return 20 + 0.05 * n


def plan_of(cells, **values):
    return Plan("test", tuple(Cell(*cell) for cell in cells), seed=1, **values)


def record(cell, ttft_ms, e2e_ms=None, outcome="ok", phase="measure"):
    return {
        "phase": phase,
        "tier_tokens": cell.tier_tokens,
        "concurrency": cell.concurrency,
        "target_tokens": cell.target_tokens,
        "outcome": outcome,
        "ttft_ms": ttft_ms,
        "e2e_ms": ttft_ms if e2e_ms is None else e2e_ms,
    }


def measured(tally, cell, ttft):
    """Three repeats of a cell go into the tally."""
    for factor in JITTER:
        tally.add(record(cell, ttft(cell.target_tokens) * factor))


def refined(ttft, refine, tiers=TIERS):
    """Carry out what is decided until nothing more is; the tiers that were added, and the tally."""
    plan = plan_of([(tier, 1) for tier in tiers], refine=refine)
    tally = Tally()
    for cell in plan.cells:
        measured(tally, cell, ttft)
    added = []
    while changes := decide(tally.cells, plan, ()).add:
        assert len(changes) == 1
        added.append(changes[0])
        measured(tally, changes[0].cell, ttft)
        assert len(added) <= refine
    return added, tally


def interval(tally):
    """log2 of the ratio of the ends of the knee's interval."""
    cells = [seen for seen in tally.cells.values() if seen.cell.concurrency == 1]
    knee = locate([seen.cell.tier_tokens for seen in cells], [seen.ttft_ms for seen in cells])
    return log2(knee.ci[1] / knee.ci[0])


@pytest.mark.parametrize("place", [300, 700, 1500, 3000])
def test_the_gap_of_a_break_is_bisected_until_it_is_under_half_a_step(place):
    """Each added tier is the middle, in log tokens, of the gap that the break is in; the second one is enough."""
    added, tally = refined(break_at(place), refine=5)
    low, high = max(t for t in TIERS if t <= place), min(t for t in TIERS if t > place)
    for change in added:
        middle = change.cell.tier_tokens
        assert middle == round((low * high) ** 0.5)
        assert f"halves the gap {tier_name(low)} to {tier_name(high)}" in change.why
        low, high = (middle, high) if middle <= place else (low, middle)
    assert len(added) == 2
    assert interval(tally) == pytest.approx(0.25, abs=0.02)


def test_no_more_tiers_are_added_than_asked_for():
    """The second bisection would help, but one was allowed, or none."""
    assert len(refined(break_at(700), refine=1)[0]) == 1
    assert refined(break_at(700), refine=0)[0] == []


def test_a_curve_without_a_knee_gets_no_tier():
    """There is no interval to narrow, and a line is not made steeper by looking closer."""
    assert refined(line, refine=3)[0] == []


def test_a_narrow_interval_gets_no_tier():
    """On dense tiers a hinge is found within far less than half a step as it is."""
    coarse = tuple(2**k for k in range(6, 13))
    added, tally = refined(hinge_at(700), refine=3, tiers=coarse)
    assert interval(tally) < 0.5
    assert added == []


def test_too_few_tiers_get_none():
    """Three tiers show no knee."""
    assert refined(break_at(700), refine=3, tiers=(512, 1024, 2048))[0] == []


def test_nothing_is_refined_while_planned_visits_at_one_stream_are_left():
    """The last round may change the knee."""
    plan = plan_of([(tier, 1) for tier in TIERS], refine=2)
    tally = Tally()
    for cell in plan.cells:
        measured(tally, cell, break_at(700))
    left = (Visit(9, plan.cells[0], 3, first=False),)
    assert decide(tally.cells, plan, left).add == ()
    assert decide(tally.cells, plan, ()).add[0].cell == Cell(724, 1)


def test_what_failed_and_what_warmed_up_is_no_sample():
    """Only measured, answered requests say how long a length takes; outcomes are counted all the same."""
    cell = Cell(128, 1)
    rows = [
        record(cell, 5.0),
        record(cell, None, outcome="rate_limited"),
        record(cell, 7.0, phase="warmup"),
        record(cell, 9.0, phase="drain"),
    ]
    seen = Tally(rows).cells["128x1"]
    assert list(seen.ttft_ms) == [5.0]
    assert seen.outcomes == {"ok": 1, "rate_limited": 1}


# -- concurrency ------------------------------------------------------------------------------------------------------


def slots(count):
    """(TTFT, E2E) in ms of a server of so many slots that holds each request for 100 ms, at a concurrency."""
    return lambda level: (20 + max(0, level / count - 1) * 100, 100 * max(1, level / count))


def levels_done(law, done, planned, **values):
    """A tally of the first levels, the plan, and the visits that are left."""
    plan = plan_of([(128, level) for level in planned], **values)
    tally = Tally()
    for level in done:
        for factor in JITTER * level:
            ttft, e2e = law(level)
            tally.add(record(Cell(128, level), ttft * factor, e2e * factor))
    left = tuple(Visit(i, Cell(128, level), 0, first=True) for i, level in enumerate(planned) if level not in done)
    return tally.cells, plan, left


LEVELS = (1, 2, 4, 8, 16, 32, 64)


def test_the_ladder_ends_one_step_after_the_knee():
    """Four slots: 8 streams show the knee, so 16 and more are left out, each with the reason."""
    decision = decide(*levels_done(slots(4), (1, 2, 4, 8), LEVELS))
    assert [change.cell.concurrency for change in decision.drop] == [16, 32, 64]
    assert all("one step after the knee" in change.why and "--full-grid" in change.why for change in decision.drop)
    assert decision.add == ()


def test_before_the_knee_nothing_is_left_out():
    """64 slots: at 8 streams all that was measured is the rise."""
    assert decide(*levels_done(slots(64), (1, 2, 4, 8), LEVELS)).drop == ()


def test_full_grid_leaves_nothing_out():
    """Asked for the whole grid, a knee changes nothing."""
    assert decide(*levels_done(slots(4), (1, 2, 4, 8), LEVELS, full_grid=True)).drop == ()


def test_another_tier_goes_on():
    """The knee of one tier says nothing about the concurrency of another."""
    seen, plan, left = levels_done(slots(4), (1, 2, 4, 8), LEVELS)
    other = Visit(50, Cell(256, 16), 0, first=True)
    assert other.cell not in [change.cell for change in decide(seen, plan, (*left, other)).drop]


# -- 429 --------------------------------------------------------------------------------------------------------------


def limited_at(level, planned, done=(1,), **values):
    seen, plan, left = levels_done(slots(64), done, planned, **values)
    tally = Tally()
    tally.cells = seen
    tally.of(Cell(128, level)).ended = True
    return tally, plan, tuple(visit for visit in left if visit.cell.concurrency != level)


def test_half_the_concurrency_of_a_limited_stage_is_a_new_cell():
    """8 streams were refused: 4 are tried next, 16 are not."""
    tally, plan, left = limited_at(8, (1, 8, 16))
    decision = decide(tally.cells, plan, left)
    assert [change.cell for change in decision.add] == [Cell(128, 4)]
    assert [change.cell for change in decision.drop] == [Cell(128, 16)]
    assert all("429" in change.why for change in (*decision.add, *decision.drop))


def test_halving_goes_on_and_comes_to_an_end():
    """8, 4, 2 are refused one after the other; 1 was measured before."""
    tally, plan, left = limited_at(8, (1, 8))
    tried = []
    while changes := decide(tally.cells, plan, left).add:
        tried.append(changes[0].cell.concurrency)
        tally.of(changes[0].cell).ended = True
    assert tried == [4, 2]


def test_a_half_that_is_planned_or_measured_is_not_added():
    """4 streams were measured before 8 were refused."""
    tally, plan, left = limited_at(8, (1, 4, 8, 16), done=(1, 4))
    assert decide(tally.cells, plan, left).add == ()


def test_with_the_full_grid_higher_concurrency_is_still_tried():
    """Half is added all the same."""
    tally, plan, left = limited_at(8, (1, 8, 16), full_grid=True)
    decision = decide(tally.cells, plan, left)
    assert (len(decision.add), decision.drop) == (1, ())


@pytest.mark.parametrize(
    ("limited", "first_attempts", "planned", "ends"),
    [
        (1, 1, 4, False),  # one refusal is none, whatever its share
        (2, 2, 20, False),  # 10 % is not more than 10 %
        (2, 2, 19, True),
        (3, 3, 20, True),  # certain by now, whatever the other 17 do
        (3, 40, 20, False),  # more were sent than planned, to drain
        (0, 100, 100, False),
    ],
)
def test_the_share_of_429_is_of_all_requests_of_the_stage(limited, first_attempts, planned, ends):
    """More than LIMITED_SHARE of those planned, or of those sent where that is more; and never a single one."""
    assert LIMITED_SHARE == 0.10
    assert (too_limited(limited, first_attempts, planned) is not None) == ends

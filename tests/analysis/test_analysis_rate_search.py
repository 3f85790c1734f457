"""The highest sustainable rate: verdicts on one rate, the search, and what the summary says of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.decide import decide
from loadkit.analysis.ending import ending
from loadkit.analysis.rate_search import Point, bracket, judge, next_rate, rate_search
from loadkit.measure import slo
from loadkit.plan.further import Decision, Seen, Tally
from loadkit.plan.ladder import Cell, Plan, Visit, fit_cells

PLAN = Plan("rate", fit_cells([(1024, 16)], None, 8, (1.0,)), 1, duration_s=60.0, arrivals="constant", rate_search=True)


def cell_of(rate=10.0, *, ok=100, n=100, ttft=200.0, offered=100, dropped=0, achieved=1.0, status="valid"):
    return {
        "cell": Cell(1024, 16, rate=rate).id,
        "tier_tokens": 1024,
        "concurrency": 16,
        "rate": rate,
        "n": n,
        "ok": ok,
        "ttft_ms": {"p95": ttft},
        "arrivals": {
            "offered": offered,
            "dropped": dropped,
            "offered_per_s": rate,
            "achieved_share": achieved,
        },
        "validity": {"status": status, "reasons": []},
    }


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        (cell_of(), []),
        (cell_of(ttft=2000.0), []),
        (cell_of(ttft=2000.1), ["ttft.p95 2,000 ms is above 2,000 ms"]),
        (cell_of(ok=98), ["error_rate 2.0% is above 1.0%"]),
        (cell_of(dropped=1), []),
        (cell_of(dropped=2), ["2 of 100 arrivals found no free stream"]),
        (cell_of(achieved=0.97), []),
        (cell_of(achieved=0.9), ["90.0% of the offered load was achieved"]),
        (cell_of(ok=0), ["error_rate 100.0% is above 1.0%", "nothing was answered"]),
    ],
)
def test_a_rate_is_sustained_where_objectives_hold_and_the_load_was_achieved(cell, says):
    """Each reason against it is named with its number; at the limit it holds."""
    point = judge(cell, slo.parse("ttft=2s,error_rate=1%"))
    assert (point.sustained, list(point.why)) == (not says, says)
    assert point.rate == 10.0


def test_a_rate_without_a_number_for_an_objective_is_not_failed_for_it():
    """ITL may be withheld; what is not known breaks nothing."""
    assert judge(cell_of(), slo.parse("itl=50ms")).sustained


@settings(max_examples=200)
@given(capacity=st.floats(0.5, 500), start=st.floats(0.5, 500))
def test_the_search_finds_any_capacity_to_five_percent(capacity, start):
    """From any start: the ends of the interval are a sustained and a failed rate around the capacity, at most 5 % apart
    and a rounding, after at most 24 rates."""
    points, rate = [], float(f"{start:.3g}")
    while True:
        points.append(Point(rate, rate <= capacity))
        step = next_rate(points)
        if step is None:
            break
        rate = step[0]
    low, high = bracket(points)
    assert low.rate <= capacity < high.rate
    assert high.rate / low.rate <= 1.05
    assert len(points) <= 24
    assert len({point.rate for point in points}) == len(points)


def test_a_rate_that_held_above_one_that_did_not_counts_for_nothing():
    """The answer is the safe one: below the lowest rate that failed."""
    points = [Point(1, True), Point(2, False), Point(4, True), Point(1.5, True)]
    assert [point.rate for point in bracket(points)] == [1.5, 2]
    assert bracket([Point(3, False)])[0] is None
    assert next_rate([]) is None


# -- while a run goes on ----------------------------------------------------------------------------------------------


def records(rate, capacity, seconds=20.0):
    """Requests at a constant rate to a server that answers `capacity` a second, one after another, in 100 ms or so."""
    free = 0.0
    for k in range(int(rate * seconds)):
        due = k / rate
        free = max(due, free) + 1 / capacity
        yield {
            "phase": "measure",
            "tier_tokens": 1024,
            "concurrency": 16,
            "target_tokens": 1024,
            "rate": rate,
            "outcome": "ok",
            "worker": "w",
            "arrival": k + 1,
            "start_ms": due * 1e3,
            "scheduled_ms": 0.0,
            "queue_ms": 0.1,
            "done_ms": (free - due) * 1e3,
            "ttft_ms": (free - due) * 1e3,
            "e2e_ms": (free - due) * 1e3,
            "tpot_ms": None,
            "itl_ms": [],
        }


@pytest.mark.parametrize("objectives", ["", "ttft=400ms"])
def test_decide_adds_one_rate_after_another_until_the_capacity_is_known(objectives):
    """As a run would do it, with the real tally: 7.3 requests/s are found within 5 % and the 3 % a load may fall short;
    with an objective on TTFT no rate that builds a queue passes."""
    plan = replace(PLAN, slo=objectives)
    tally = Tally(records(1.0, 7.3))
    tried = [1.0]
    while (decision := decide(tally.cells, plan, ())).add:
        (change,) = decision.add
        assert decision.drop == ()
        assert (change.cell.tier_tokens, change.cell.concurrency) == (1024, 16)
        tried.append(change.cell.rate)
        for record in records(change.cell.rate, 7.3):
            tally.add(record)
    assert tried[:5] == [1.0, 2.0, 4.0, 8.0, 5.66]
    highest = max(rate for rate in tried if rate <= 7.3 * 1.03)
    assert highest >= 7.3 / 1.05
    assert min(rate for rate in tried if rate > highest) <= 7.3 * 1.03 * 1.05
    assert len(tried) <= 10


def test_a_repeated_rate_is_judged_by_its_repeat_alone():
    """The first try was not valid; its slow answers are none of the second."""
    tally = Tally({**record, "visit": 0} for record in records(2.0, 0.5))
    for record in records(2.0, 7.3):
        tally.add({**record, "visit": 3})
    (change,) = decide(tally.cells, PLAN, ()).add
    assert change.cell.rate == 4.0


def test_decide_waits_for_planned_rates_and_adds_none_without_a_search():
    """Nothing is added while a sweep goes on, nor without --rate-search, nor to fewer than ten requests a cell."""
    tally = Tally(records(1.0, 7.3))
    visit = Visit(1, Cell(1024, 16, rate=4.0), 0, True)
    assert decide(tally.cells, PLAN, (visit,)) == Decision()
    assert decide(tally.cells, replace(PLAN, rate_search=False), ()) == Decision()
    slow = Tally(records(1.0, 0.1))
    assert decide(slow.cells, replace(PLAN, duration_s=12.0), ()) == Decision()
    assert decide({"1024@1rps": Seen(Cell(1024, 16, rate=1.0))}, PLAN, ()) == Decision()


def test_a_rate_at_which_the_client_did_not_keep_up_ends_the_way_up():
    """It is no rate that the server failed at, and what lies above it would say as little: nothing is added."""
    tally = Tally(record for rate in (1.0, 2.0, 4.0) for record in records(rate, 7.3))
    (change,) = decide(tally.cells, PLAN, ()).add
    assert change.cell.rate == 8.0
    tally.cells["1024@4rps"].unusable = "event loop lag"
    assert decide(tally.cells, PLAN, ()) == Decision()
    tally = Tally(record for rate in (1.0, 2.0, 4.0, 8.0, 16.0) for record in records(rate, 7.3))
    tally.cells["1024@16rps"].unusable = "event loop lag"
    (change,) = decide(tally.cells, PLAN, ()).add
    assert change.cell.rate == 5.66, "below it the search goes on"


def test_a_rate_that_was_planned_before_is_tried_beside():
    """What arrives scatters about what is planned: the middle of the interval may have been planned already."""
    tally = Tally(record for rate in (4.0, 8.0) for record in records(rate, 7.3))
    tally.cells["1024@5.66rps"] = Seen(Cell(1024, 16, rate=5.66))
    (change,) = decide(tally.cells, PLAN, ()).add
    assert change.cell.rate == 5.72


# -- in a summary -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "interval", "highest", "sentence"),
    [
        (
            [cell_of(6.9), cell_of(7.4, ttft=2500.0)],
            [6.9, 7.4],
            pytest.approx(7.1456, rel=1e-4),
            "At 1K tokens the highest sustainable rate is 7.15 requests/s (between 6.9 and 7.4; at 7.4: ttft.p95 "
            "2,500 ms is above 2,000 ms).",
        ),
        (
            [cell_of(4.0), cell_of(8.0, achieved=0.5)],
            [4.0, 8.0],
            None,
            "At 1K tokens the highest sustainable rate lies between 4 and 8 requests/s (at 8: 50.0% of the offered "
            "load was achieved).",
        ),
        (
            [cell_of(4.0)],
            [4.0, None],
            None,
            "At 1K tokens 4 requests/s are sustained, and no higher rate was measured.",
        ),
        (
            [cell_of(4.0, dropped=9)],
            [None, 4.0],
            None,
            "At 1K tokens not even 4 requests/s are sustained (at 4: 9 of 100 arrivals found no free stream).",
        ),
        (
            [cell_of(4.0, status="invalid")],
            [None, None],
            None,
            "At 1K tokens no rate was measured that may be used; 1 of 1 rates are invalid and left out.",
        ),
        (
            [cell_of(4.0), cell_of(5.0, dropped=50, status="invalid"), cell_of(6.0, status="suspect")],
            [6.0, None],
            None,
            "At 1K tokens 6 requests/s are sustained, and no higher rate was measured; 1 of 3 rates are invalid and "
            "left out.",
        ),
    ],
)
def test_the_summary_says_the_highest_rate_and_its_interval(cells, interval, highest, sentence):
    """One number only where the interval is narrow; invalid cells stay out, with no verdict."""
    (found,) = rate_search(cells, {"plan": {"slo": "ttft=2s"}})
    assert found["interval"] == interval
    assert found["highest"] == highest
    assert found["sentence"] == sentence
    verdicts = [row["sustained"] for row in found["rates"]]
    assert [verdict is None for verdict in verdicts] == [cell["validity"]["status"] == "invalid" for cell in cells]


@pytest.mark.parametrize(
    ("cells", "manifest", "why"),
    [
        ([cell_of(6.9), cell_of(7.1, dropped=50)], {}, ""),
        ([cell_of(4.0), cell_of(8.0, dropped=50)], {"limit": "a budget"}, "the run ended before the search did"),
        (
            [cell_of(4.0), cell_of(8.0, status="invalid")],
            {},
            "at 8/s the load generator is not to be believed: use more workers, or a faster machine",
        ),
        ([cell_of(4.0), cell_of(8.0, dropped=50)], {}, "rates in between were measured already"),
        (
            [cell_of(0.2, dropped=50)],
            {},
            "0.1/s for 60 s is fewer than 10 requests: give it a longer --duration",
        ),
        ([cell_of(float(rate)) for rate in range(1, 25)], {}, "24 rates were measured"),
    ],
)
def test_a_search_that_ends_early_says_why(cells, manifest, why):
    """An interval wider than 5 % has its reason behind it; a sweep that was no search has none."""
    plan = {"rate_search": True, "duration_s": 60.0}
    (found,) = rate_search(cells, {"plan": plan, **manifest})
    tail = f" It is not known to 5 %: {why}." if why else ""
    (plain,) = rate_search(cells, {"plan": {**plan, "rate_search": False}, **manifest})
    assert found["sentence"] == plain["sentence"] + tail


@pytest.mark.parametrize(
    ("plan", "ttft", "missed"),
    [
        ({"slo": "ttft=2s"}, (200.0, 2500.0), True),
        ({"slo": "ttft=2s", "rate_search": True}, (200.0, 2500.0), False),
        ({"slo": "ttft=2s", "rate_search": True}, (2200.0, 2500.0), True),
    ],
)
def test_a_search_fails_its_objectives_only_where_no_rate_meets_them(plan, ttft, missed):
    """It goes on until a rate misses one, which is no failure of the run; a sweep was told which rates to hold."""
    cells = [
        cell_of(rate, ttft=value) | {"outcomes": {"ok": 100}} for rate, value in zip((6.0, 7.0), ttft, strict=True)
    ]
    code = ending({"plan": plan, "visits": [], "ended_at": "2026-01-01"}, cells, saturated=False)
    assert code == (4 if missed else 0)


def test_a_closed_loop_has_no_rates():
    """None, and not an empty answer."""
    assert rate_search([{"rate": None}], {}) is None
    assert rate_search([], {}) is None

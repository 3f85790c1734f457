"""Stages: what the list means, that every step is a cell of its own, and how streams go on a clock of the test's."""

import heapq
import json
from argparse import ArgumentParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan
from loadkit.plan.options import add_options, resolve
from loadkit.plan.resume import outstanding
from loadkit.plan.staged import MOST_STEPS, Step, parse_stages
from loadkit.plan.stages import WAIT, stage_for
from loadkit.record.names import Phase


@pytest.fixture
def plan(tmp_path):
    """plan(*words): the plan of a command line."""

    def made(*words):
        parser = ArgumentParser()
        add_options(parser, positional_url=True)
        words = ("http://127.0.0.1:1", "--model", "m", "--seed", "1", *words)
        return resolve(parser.parse_args(words), {}, tmp_path).plan

    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("60s:1,30s:8,1m:1", [(60, 1, False), (30, 8, False), (60, 1, False)]),
        ("6s:1-3", [(2, 1, False), (2, 2, False), (2, 3, False)]),
        ("6s:3-1", [(2, 3, False), (2, 2, False), (2, 1, False)]),
        ("2s:1-9", [(1, 1, False), (1, 9, False)]),
        ("10s:2.5rps, 4s:8rps", [(10, 2.5, True), (4, 8, True)]),
        ("3s:1-3rps", [(1, 1, True), (1, 2, True), (1, 3, True)]),
    ],
)
def test_a_list_is_its_steps(text, expected):
    """Times and loads in order; a ramp is a staircase from its first load to its last."""
    assert parse_stages(text) == tuple(Step(*step) for step in expected)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 300))
def test_a_ramp_keeps_its_ends_and_its_time(low, high, seconds):
    """It begins and ends at the loads named, goes one way, is as long as asked for, and has not too many steps."""
    steps = parse_stages(f"{seconds}s:{low}-{high}")
    loads = [step.load for step in steps]
    assert (loads[0], loads[-1]) == (low, high)
    assert loads == sorted(loads, reverse=high < low)
    assert sum(step.seconds for step in steps) == pytest.approx(seconds)
    assert len(steps) <= MOST_STEPS


@pytest.mark.parametrize(
    "words",
    [
        ("--stages", "60s"),
        ("--stages", "60s:0"),
        ("--stages", "0s:1"),
        ("--stages", "60s:1.5"),
        ("--stages", "60s:1,,60s:2"),
        ("--stages", "60s:1,2s:1rps"),
        ("--stages", "60s:1", "--tiers", "1K,2K"),
        ("--stages", "60s:1", "--arrivals", "constant"),
        ("--stages", "60s:2rps", "--think", "1s"),
        ("--stages", "3000s:1000rps"),
        *[("--stages", "60s:1", f"--{name}", "1") for name in ("concurrency", "rounds", "rate", "duration", "refine")],
    ],
)
def test_what_cannot_be_is_one_line(plan, words):
    """Every bad list, and every option that says the same thing another way, is an error that names the option."""
    with pytest.raises(ConfigError, match=r"^--"):
        plan(*words)


def test_a_load_that_comes_twice_is_two_cells(plan):
    """Before and after a spike: two ids, two times, and prompts of the cell they are for; the manifest keeps it all."""
    made = plan("--stages", "60s:1,30s:8,60s:1", "--tiers", "4K")
    assert [cell.id for cell in made.cells] == ["4096x1#1", "4096x8#2", "4096x1#3"]
    assert [made.seconds_of(cell) for cell in made.cells] == [60, 30, 60]
    assert [(visit.cell, visit.round, visit.first) for visit in made.visits()] == [
        (cell, 0, number == 0) for number, cell in enumerate(made.cells)
    ]
    assert [made.warmup_of(visit) for visit in made.visits()] == [1, 0, 0]
    assert (made.soak, made.open_loop) == (True, False)
    assert Plan.from_json(json.loads(json.dumps(made.to_json()))) == made
    rates = plan("--stages", "10s:2rps,5s:20rps,10s:2rps", "--max-in-flight", "50", "--arrivals", "constant")
    assert [cell.id for cell in rates.cells] == ["1024@2rps#1", "1024@20rps#2", "1024@2rps#3"]
    assert (rates.open_loop, rates.arrivals, {cell.concurrency for cell in rates.cells}) == (True, "constant", {50})
    assert rates.requests().measured == 140


def test_a_run_that_was_cut_goes_on_with_its_stage(plan):
    """The stage that was open is repeated, those behind it follow, and a stage that is done is kept."""
    made = plan("--stages", "60s:1,30s:8,60s:1")
    rows = [{"visit": i, "cell": cell.id, "round": 0, "state": state} for i, (cell, state) in enumerate(
        zip(made.cells, ("done", "open", "planned"), strict=True)
    )]  # fmt: skip
    todo = list(outstanding(made, rows, {0: 5}))
    assert [(item.visit.cell.id, item.visit.attempt) for item in todo] == [("1024x8#2", 1), ("1024x1#3", 0)]


def walk(plan, visit, took):
    """One visit on a clock of our own, each request taking `took` s: [(start, end, phase)], and when it was over."""
    stage, now, due, done = stage_for(plan, visit), 0.0, None, []
    waiting, flying = list(range(stage.streams)), []
    while not stage.finished:
        asked, waiting = waiting, []
        for stream in asked:
            ticket = stage.next_request(stream)
            if ticket is WAIT:
                waiting.append(stream)
            elif ticket is not None:
                heapq.heappush(flying, (now + took, len(done) + len(flying), now, stream, ticket))
        if waiting and len(waiting) < len(asked):
            continue
        if due is None and stage.opened:
            due = now + plan.seconds_of(visit.cell)
        if due is not None and due <= flying[0][0]:
            now, due = due, float("inf")
            stage.enough()
            continue
        now, _, start, stream, ticket = heapq.heappop(flying)
        stage.done(ticket)
        done.append((start, now, ticket.phase))
        waiting.append(stream)
    return done, now


def test_each_stage_holds_its_streams_for_its_time(plan):
    """From its first measured request to its last exactly the streams of the stage are in flight, for its seconds; the
    first stage warms up, in the others all streams but one fill up."""
    made = plan("--stages", "20s:1,10s:4,20s:1")
    for visit in made.visits():
        streams, seconds = visit.cell.concurrency, made.seconds_of(visit.cell)
        done, _ = walk(made, visit, 0.75)
        measured = [row for row in done if row[2] is Phase.MEASURE]
        begin, end = min(row[0] for row in measured), max(row[1] for row in measured)
        assert seconds <= end - begin < seconds + 0.75
        assert len(measured) == streams * -(-seconds // 0.75) - (streams - 1)
        for moment in {row[0] for row in done if begin <= row[0] < end}:
            assert sum(start <= moment < ended for start, ended, _ in done) == streams
        assert [row[2] for row in done].count(Phase.WARMUP) == (1 if visit.first else streams - 1)

"""Who sends what is due in an open loop, and what is dropped: a model of any order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.arrivals import Arrival, schedule
from loadkit.plan.open_stage import OpenStage
from loadkit.record.names import Phase

FOUR = tuple(Arrival(n, n * 1000) for n in range(1, 5))


def test_warm_up_comes_first_and_then_the_schedule():
    """Nothing is due before every warm-up request has ended; a request carries the time it was planned for."""
    stage = OpenStage(2, 1, FOUR)
    warm = stage.come(0)
    assert (warm.phase, warm.round, warm.turn, warm.due_ns) == (Phase.WARMUP, 0, 1, None)
    assert stage.come(1) is None
    assert not stage.warm
    stage.done(warm)
    assert stage.warm
    stream, ticket = stage.arrive(FOUR[0], 50)
    assert stream == 1
    assert (ticket.phase, ticket.round, ticket.turn, ticket.due_ns) == (Phase.MEASURE, 1, 1, 1050)


def test_an_arrival_without_a_free_stream_is_dropped_and_counted():
    """It is not kept for later: the next one is sent at its own time."""
    stage = OpenStage(1, 0, FOUR)
    stage.come(0)
    _, first = stage.arrive(FOUR[0], 0)
    assert stage.arrive(FOUR[1], 0) is None
    assert stage.arrive(FOUR[2], 0) is None
    stage.done(first)
    assert stage.come(0) is None
    _, last = stage.arrive(FOUR[3], 0)
    assert last.turn == 4
    assert not stage.finished
    stage.done(last)
    assert (stage.offered, stage.dropped, stage.planned, stage.measured, stage.finished) == (4, 2, 2, 2, True)


def test_the_stream_that_became_free_last_is_taken_first():
    """So the connections in use stay few and warm."""
    stage = OpenStage(3, 0, FOUR)
    for stream in (2, 0, 1):
        stage.come(stream)
    assert stage.arrive(FOUR[0], 0)[0] == 1
    stage.go(0)
    assert stage.arrive(FOUR[1], 0)[0] == 2
    assert stage.arrive(FOUR[2], 0) is None


@pytest.mark.parametrize("stopped_after", [0, 1, 3])
def test_a_stop_starts_nothing_more_and_is_not_complete(stopped_after):
    """What is in flight is waited for; the arrivals that did not come due are missing in what was measured."""
    stage = OpenStage(4, 0, FOUR)
    for stream in range(4):
        stage.come(stream)
    flying = [stage.arrive(arrival, 0)[1] for arrival in FOUR[:stopped_after]]
    stage.stop()
    assert stage.exhausted
    assert stage.finished == (not flying)
    for ticket in flying:
        stage.done(ticket)
    assert stage.finished
    assert stage.measured < stage.planned


@given(
    streams=st.integers(1, 4),
    warmup=st.integers(0, 3),
    workers=st.integers(1, 3),
    ends=st.lists(st.integers(0, 9), min_size=40, max_size=40),
)
def test_every_arrival_is_sent_once_or_dropped_whatever_the_server_does(streams, warmup, workers, ends):
    """Over all workers: numbers are unique, sent + dropped = offered = the schedule, never more than `streams` of a
    worker in flight, and an arrival is dropped only when all of them are."""
    whole = schedule("constant", 10, 2, "s")
    sent, dropped = [], 0
    for index in range(workers):
        stage = OpenStage(streams, warmup, whole, index, workers)
        flying = {}
        for stream in range(streams):
            while (ticket := stage.come(stream)) is not None:
                stage.done(ticket)
        assert stage.warm
        for arrival, end in zip(stage.arrivals, ends, strict=False):
            for stream in [stream for stream in flying if (stream + end) % 3 == 0]:
                stage.done(flying.pop(stream))
                assert stage.come(stream) is None
            handed = stage.arrive(arrival, 0)
            assert (handed is None) == (len(flying) == streams)
            if handed is not None:
                flying[handed[0]] = handed[1]
                sent.append(handed[1].turn)
            assert len(flying) <= streams
        for ticket in flying.values():
            stage.done(ticket)
        assert stage.finished
        assert stage.measured == stage.planned
        dropped += stage.dropped
    assert len(sent) == len(set(sent))
    assert len(sent) + dropped == len(whole)

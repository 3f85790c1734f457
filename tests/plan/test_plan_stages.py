"""The stage machine of one visit, under any interleaving of its streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.ladder import Plan, fit_cells
from loadkit.plan.stages import WAIT, Stage, Ticket, stage_for
from loadkit.record.names import Phase


class World:
    """Streams that ask, send and end in whatever order a test decides; a stream asks again as soon as it ends."""

    def __init__(self, stage, concurrency, prompt=False):
        self.stage, self.concurrency, self.prompt = stage, concurrency, prompt
        self.idle = set(range(concurrency))  # not started, or told to wait
        self.waiting: set[int] = set()
        self.flying: dict[int, Ticket] = {}
        self.given: list[Ticket] = []
        self.open = False

    def ask(self, slot):
        answer = self.stage.next_request(slot)
        if isinstance(answer, Ticket):
            self.idle.discard(slot)
            self.waiting.discard(slot)
            self.flying[slot] = answer
            self.given.append(answer)
            self.open = self.open or answer.phase is Phase.MEASURE
        elif answer is WAIT:
            self.idle.add(slot)
            self.waiting.add(slot)
        else:
            self.idle.discard(slot)
        assert self.stage.in_flight == len(self.flying) <= self.concurrency
        if self.open and self.stage.measured < self.stage.planned:
            assert len(self.flying) == self.concurrency, "a stream is missing while others are measured"
        if self.prompt and isinstance(answer, Ticket):
            for other in sorted(self.waiting):  # as the swarm does: a change wakes who waits
                if other in self.waiting:
                    self.ask(other)

    def end(self, slot):
        ticket = self.flying.pop(slot)
        self.stage.done(ticket)
        self.ask(slot)

    def moves(self):
        return [(self.ask, slot) for slot in sorted(self.idle)] + [(self.end, slot) for slot in sorted(self.flying)]


def play(data, stage, concurrency, most, prompt):
    """Random moves to the end of the visit."""
    world = World(stage, concurrency, prompt)
    for _ in range(most):
        moves = world.moves()
        if not moves:
            break
        move, slot = data.draw(st.sampled_from(moves))
        move(slot)
    for _ in range(100):  # then everybody in turn, so that a draw that favours one stream comes to an end
        for move, slot in world.moves():
            if (move, slot) in world.moves():
                move(slot)
    return world


@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 8), st.booleans())
def test_exactly_the_planned_requests_are_measured_with_all_streams_up(data, concurrency, rounds, warmup, prompt):
    """Whatever the order: R x C measured, each slot and round once, C in flight from the first start to the last end
    (asserted at every move), and then nothing more."""
    world = play(data, Stage(concurrency, tuple(range(1, rounds + 1)), warmup), concurrency, 120, prompt)
    measured = [(t.slot, t.round) for t in world.given if t.phase is Phase.MEASURE]
    assert sorted(measured) == [(s, r) for s in range(concurrency) for r in range(1, rounds + 1)]
    assert world.stage.finished
    assert world.stage.measured == world.stage.planned == concurrency * rounds
    warmups = [t for t in world.given if t.phase is Phase.WARMUP]
    assert len(warmups) >= warmup
    if prompt:  # streams that had to wait fill up once
        assert len(warmups) <= warmup + concurrency
    keys = [(t.slot, t.phase, t.turn) for t in world.given]
    assert len(set(keys)) == len(keys), "two requests would have the same prompt"
    assert all(world.stage.next_request(slot) is None for slot in range(concurrency))


@given(st.data(), st.integers(1, 4), st.integers(0, 30))
def test_stop_gives_nothing_more_and_ends_with_what_is_in_flight(data, concurrency, before):
    """After a stop every stream is sent home, and the visit is finished when the last request is."""
    stage = Stage(concurrency, (1, 2, 3), concurrency)
    world = World(stage, concurrency)
    for _ in range(before):
        if moves := world.moves():
            move, slot = data.draw(st.sampled_from(moves))
            move(slot)
    stage.stop()
    world.open = False  # the window is given up
    given_before = len(world.given)
    assert stage.finished == (not world.flying)
    for slot in sorted(world.flying):
        world.end(slot)
    assert len(world.given) == given_before
    assert stage.finished


def test_one_stream_warms_up_then_measures_and_never_drains():
    """Concurrency 1, first visit, round 1: three warm-ups, one measured, the end."""
    stage = Stage(1, (1,), 3)
    seen = []
    while isinstance(ticket := stage.next_request(0), Ticket):
        seen.append((ticket.phase, ticket.round, ticket.turn))
        stage.done(ticket)
    assert seen == [("warmup", 0, 1), ("warmup", 0, 2), ("warmup", 0, 3), ("measure", 1, 1)]
    assert stage.finished


def test_a_later_visit_measures_its_own_round():
    """The round of the visit is the round of the record."""
    assert Stage(1, (3,), 0).next_request(0) == Ticket(Phase.MEASURE, 3, 0, 3)


def test_warm_up_is_shared_out_and_streams_pass_over_one_by_one():
    """Three warm-ups on two streams: the second stream measures while the first still warms up."""
    stage = Stage(2, (1, 2), 3)
    first, second = stage.next_request(0), stage.next_request(1)
    stage.done(second)
    assert stage.next_request(1).phase is Phase.MEASURE
    stage.done(first)
    assert stage.next_request(0).phase is Phase.WARMUP


def test_nothing_is_measured_before_the_last_stream_has_started():
    """A fast stream waits for a slow start instead of measuring alone."""
    stage = Stage(2, (1,), 2)
    stage.done(stage.next_request(0))
    assert stage.next_request(0) is WAIT
    assert stage.next_request(1).phase is Phase.WARMUP
    assert stage.next_request(0).phase is Phase.MEASURE


def test_a_stream_that_is_done_drains_until_the_slowest_is():
    """The fast stream's third request is not counted; when the slow one ends, nobody sends more."""
    stage = Stage(2, (1,), 2)
    warm = [stage.next_request(0), stage.next_request(1)]
    stage.done(warm[0])
    fast = stage.next_request(0)
    stage.done(warm[1])
    slow = stage.next_request(1)
    stage.done(fast)
    drain = stage.next_request(0)
    assert (drain.phase, drain.round, drain.turn) == (Phase.DRAIN, 0, 1)
    stage.done(slow)
    assert stage.next_request(1) is None
    assert not stage.finished
    stage.done(drain)
    assert stage.finished
    assert stage.next_request(0) is None


def test_misuse_is_loud():
    """A slot has one request at a time, and only what was given can be done."""
    stage = Stage(1, (1,), 1)
    ticket = stage.next_request(0)
    with pytest.raises(ValueError, match="already has a request"):
        stage.next_request(0)
    stage.done(ticket)
    with pytest.raises(ValueError, match="no such request"):
        stage.done(ticket)


def test_the_stage_of_a_visit_follows_the_plan():
    """Planned measured requests and warm-ups are the plan's."""
    plan = Plan("t", fit_cells([(128, 1), (128, 2)], None, 16), 1, rounds=3, warmup=1)
    assert [stage_for(plan, visit).planned for visit in plan.visits()] == [1, 1, 1, 6]
    second = stage_for(plan, plan.visits()[1]).next_request(0)
    assert (second.phase, second.round) == (Phase.MEASURE, 2)


def test_an_endless_stage_measures_until_it_is_enough():
    """Rounds count up per slot without end; then streams are kept up until the measured ones in flight have ended."""
    stage = Stage(2, (1,), 2, endless=True)
    flying = [stage.next_request(slot) for slot in (0, 1)]
    seen = []
    for turn in range(40):
        slot = turn % 2
        stage.done(flying[slot])
        assert stage.measured < stage.planned
        flying[slot] = stage.next_request(slot)
        seen.append((flying[slot].phase, flying[slot].slot, flying[slot].round))
    assert seen == [(Phase.MEASURE, turn % 2, turn // 2 + 1) for turn in range(40)]
    stage.enough()
    stage.done(flying[0])
    drain = stage.next_request(0)
    assert drain.phase is Phase.DRAIN
    stage.done(flying[1])
    assert stage.next_request(1) is None
    assert not stage.finished
    stage.done(drain)
    assert stage.finished
    assert stage.measured == stage.planned == 40


@pytest.mark.parametrize("endless", [False, True])
def test_a_request_that_is_withdrawn_was_not_measured(endless):
    """What was given and not sent leaves the stage unfinished business, and nothing in flight."""
    stage = Stage(1, (1, 2), 0, endless=endless)
    stage.done(stage.next_request(0))
    stage.stop()
    assert stage.measured < stage.planned
    other = Stage(1, (1, 2), 0, endless=endless)
    other.done(other.next_request(0))
    ticket = other.next_request(0)
    other.stop()
    other.withdraw(ticket)
    assert other.finished
    assert other.measured == 1 < other.planned
    with pytest.raises(ValueError, match="no such request"):
        other.withdraw(ticket)

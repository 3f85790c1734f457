"""A visit shared out over workers: the stage's rule holds over all of them, however late they hear of one another."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.plan.shares import Others, Shares, deal
from loadkit.plan.stages import WAIT, Stage, Ticket
from loadkit.record.names import Phase


class Fleet:
    """Workers with their stages, a master, and messages that wait in queues until a test delivers them."""

    def __init__(self, slots, rounds, warmup):
        self.concurrency = sum(map(len, slots.values()))
        self.shares = Shares(slots, len(rounds))
        self.stages = {w: Stage(self.concurrency, rounds, warmup, mine) for w, mine in slots.items()}
        self.up = {worker: deque() for worker in slots}  # to the master
        self.down = {worker: deque() for worker in slots}
        self.idle = {(w, i) for w, mine in slots.items() for i in range(len(mine))}
        self.flying = {}
        self.given = []
        self.said = {}
        self.open = False

    def settle(self, worker):
        """A worker reports what has changed."""
        if self.facts(worker) != self.said.get(worker):
            self.said[worker] = self.facts(worker)
            self.up[worker].append(self.said[worker])

    def facts(self, worker):
        stage = self.stages[worker]
        return {
            "started": stage.started,
            "full": stage.full,
            "measured": stage.measured,
            "planned": stage.planned,
            "all_measured": stage.all_measured,
            "finished": stage.finished,
        }

    def ask(self, stream):
        worker, number = stream
        answer = self.stages[worker].next_request(number)
        self.idle.discard(stream)
        if isinstance(answer, Ticket):
            self.flying[stream] = answer
            self.given.append(answer)
            self.open = self.open or answer.phase is Phase.MEASURE
        elif answer is WAIT:
            self.idle.add(stream)
        if self.open and sum(stage.measured for stage in self.stages.values()) < self.shares.planned:
            assert len(self.flying) == self.concurrency, "a stream is missing while others are measured"
        self.settle(worker)

    def end(self, stream):
        self.stages[stream[0]].done(self.flying.pop(stream))
        self.ask(stream)

    def hear(self, worker):
        """The master takes one report; what is news goes out."""
        self.shares.report(worker, **self.up[worker].popleft())
        for name, others in self.shares.news().items():
            self.down[name].append(others)

    def tell(self, worker):
        """A worker takes one message; its waiting streams ask again."""
        stage, others = self.stages[worker], self.down[worker].popleft()
        stage.others_started, stage.others_full, stage.others_measured = others
        for stream in sorted(self.idle):
            if stream[0] == worker and stream in self.idle and stage.started:
                self.ask(stream)
        self.settle(worker)

    def moves(self):
        return (
            [(self.ask, stream) for stream in sorted(self.idle)]
            + [(self.end, stream) for stream in sorted(self.flying)]
            + [(self.hear, worker) for worker in self.up if self.up[worker]]
            + [(self.tell, worker) for worker in self.down if self.down[worker]]
        )


def play(data, fleet):
    for _ in range(data.draw(st.integers(0, 120))):
        if moves := fleet.moves():
            move, whom = data.draw(st.sampled_from(moves))
            move(whom)
    for _ in range(100):  # then everybody in turn
        for move, whom in fleet.moves():
            if (move, whom) in fleet.moves():
                move(whom)


@given(st.data(), st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_the_rule_of_the_stage_holds_over_all_workers(data, live, rounds, warmup):
    """Every slot measures every round once, with all streams of all workers in flight from the first measured start to
    the last measured end (asserted at every move), whatever the order of requests and messages; then all finish."""
    slots = deal(sum(live), {f"w{i}": n for i, n in enumerate(live)})
    fleet = Fleet(slots, tuple(range(1, rounds + 1)), warmup)
    play(data, fleet)
    measured = sorted((t.slot, t.round) for t in fleet.given if t.phase is Phase.MEASURE)
    assert measured == [(s, r) for s in range(sum(live)) for r in range(1, rounds + 1)]
    assert fleet.shares.finished
    assert fleet.shares.measured == fleet.shares.planned == sum(live) * rounds
    assert not fleet.flying
    keys = [(t.phase, t.slot, t.turn) for t in fleet.given]
    assert len(set(keys)) == len(keys)


@given(st.data(), st.integers(1, 5), st.integers(1, 3), st.integers(0, 8))
@settings(deadline=None)
def test_one_share_of_everything_is_the_stage_itself(data, concurrency, rounds, warmup):
    """A single worker gives the same tickets in the same order as a run without workers."""
    whole, shared = (
        Stage(concurrency, tuple(range(1, rounds + 1)), warmup, share) for share in (None, range(concurrency))
    )
    flying = {}
    for _ in range(60):
        stream = data.draw(st.integers(0, concurrency - 1))
        for stage in (whole, shared):
            if (stage, stream) in flying:
                stage.done(flying.pop((stage, stream)))
        one, other = whole.next_request(stream), shared.next_request(stream)
        assert one == other
        if isinstance(one, Ticket):
            flying[whole, stream], flying[shared, stream] = one, other


def test_a_lone_stream_needs_no_news():
    """Concurrency 1 on one of several workers: no fill, no drain, the tickets of a run without workers."""
    stage = Stage(1, (1, 2), 1, (0,))
    phases = []
    while isinstance(ticket := stage.next_request(0), Ticket):
        phases.append(ticket.phase)
        stage.done(ticket)
    assert phases == [Phase.WARMUP, Phase.MEASURE, Phase.MEASURE]
    assert stage.finished


@given(st.integers(1, 12), st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_slots_are_dealt_once_each_and_evenly(concurrency, live):
    """Every slot has one worker, none has more than its streams, and no two with room differ by more than one."""
    workers = {f"w{i}": n for i, n in enumerate(live)}
    dealt = deal(concurrency, workers)
    if sum(live) < concurrency:
        assert dealt is None
        return
    assert sorted(slot for slots in dealt.values() for slot in slots) == list(range(concurrency))
    counts = {worker: len(dealt.get(worker, ())) for worker in workers}
    assert all(counts[worker] <= most for worker, most in workers.items())
    open_ones = [counts[worker] for worker, most in workers.items() if counts[worker] < most]
    assert all(max(counts.values()) - count <= 1 for count in open_ones)


def test_news_is_told_once_and_a_lost_worker_is_not_waited_for():
    """The last worker that measures hears that all others have; a loss ends the wait, not the count."""
    shares = Shares({"a": (0,), "b": (1,)}, 2)
    nothing = {"started": False, "full": False, "measured": 0, "planned": 2, "all_measured": False, "finished": False}
    shares.report("a", **{**nothing, "started": True})
    assert shares.news() == {"b": Others(True, False, False)}
    assert shares.news() == {}
    shares.report("a", **{**nothing, "full": True, "measured": 2, "all_measured": True})
    assert shares.news() == {"b": Others(True, True, True)}
    shares.report("a", **{**nothing, "finished": True})
    shares.lose("b")
    assert shares.finished
    assert (shares.measured, shares.planned) == (2, 4)


def test_a_report_that_changes_nothing_is_no_work_for_the_others():
    """Once all is told, a report of one worker of very many looks at no other: 200 of them once stopped the master."""
    shares = Shares({f"w{i}": (i,) for i in range(200)}, 1)
    for worker in shares.slots:
        shares.report(worker, started=True, full=True, measured=0, planned=1, all_measured=False, finished=False)
    assert len(shares.news()) == 200
    looked = []
    shares.others = looked.append
    shares.report("w7", started=True, full=True, measured=1, planned=1, all_measured=False, finished=False)
    assert shares.news() == {}
    assert looked == []
    assert (shares.planned, shares.measured, shares.finished) == (200, 1, False)

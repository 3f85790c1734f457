"""Parts of the room by themselves, in a process of their own, with clocks that are told the time."""

from itertools import pairwise

VISITS = """
import json, random
from loadkit.swarm.visits import Visits
import gevent
from loadkit.plan.ladder import Cell, Plan, Visit

def walk(streams, rounds, seed):
    rng = random.Random(seed)
    cell = Cell(32, streams)
    # A visit that is not the first of its cell has no warm-up: every stream has to wait for the others to come.
    order = (Visit(0, cell, 0, False), Visit(1, cell, 0, True), Visit(2, cell, 0, False))
    told, alone, flying, measured, waits = [], [], 0, 0, 0
    plan = Plan("test", (cell,), seed=1, rounds=rounds)
    visits = Visits(plan, order, lambda visit, state: told.append([visit.index, state]))

    wait = visits._wait

    def counted():
        nonlocal waits
        waits += 1
        wait()

    visits._wait = counted

    def stream(slot):
        nonlocal flying, measured
        for turn in visits.turns(slot):
            flying += 1
            for _ in range(rng.randrange(4)):
                gevent.sleep(0)
            if turn.ticket.phase == "measure":
                measured += 1
                # Between the end of a request and the next one of its stream there is no switch, so none is missing.
                if flying != streams:
                    alone.append([turn.visit.index, slot, flying])
            flying -= 1

    users = [gevent.spawn(stream, slot) for slot in range(streams)]
    with gevent.Timeout(20):
        while visits.next_concurrency:
            visits.run_next()
        visits.close()
        gevent.joinall(users)
    return told, alone, measured, waits

plans = [(streams, rounds, seed) for streams in (1, 2, 3, 5, 20) for rounds in (1, 3) for seed in range(10)]
print(json.dumps([[streams, rounds, *walk(streams, rounds, seed)] for streams, rounds, seed in plans]))
"""


def test_streams_wait_for_one_another_and_none_is_forgotten(snippet):
    """Whatever the order in which requests end, all streams are in flight while one is measured; no wake is lost, and
    none is for nothing once the window is open: what a stream costs does not grow with the number of its rounds."""
    most = {}
    for streams, rounds, told, alone, measured, waits in snippet(VISITS):
        most[streams, rounds] = max(most.get((streams, rounds), 0), waits)
        assert told == [[n, state] for n in range(3) for state in ("open", "done")]
        assert alone == []
        assert measured == 3 * streams * rounds
    assert all(most[streams, 3] <= most[streams, 1] + 3 * streams for streams in (1, 2, 3, 5, 20))


PROBE = """
import json
from loadkit.swarm.health import LagProbe
from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram

now = 0
probe = LagProbe(lambda: now)
told = {}

def tick(late_ms):
    global now
    probe.ask()
    now += 5_000_000 + int(late_ms * 1e6)
    probe.woken()

def window():
    taken = probe.take_window()
    count = sum(Histogram.from_wire(LAG_BOUNDS_S, taken["hub_lag"]).counts)
    return [count, taken["hub_lag_p99_ms"], taken["hub_lag_max_ms"]]

for _ in range(99):
    tick(0.05)
told["calm"] = window()
told["empty"] = window()
for _ in range(99):
    tick(0)
tick(300)
told["blocked"] = window()

# A visit ends while the loop is blocked: the part before the cut is the old window's, the rest the new one's.
probe.ask()
now += 5_000_000 + 20_000_000
told["before the cut"] = window()
now += 7_000_000
probe.woken()
told["after the cut"] = window()

start = now
told["none yet"] = probe.max_since(start + 1)
tick(3); tick(8); tick(2)
after = now
tick(4); tick(1)
told["since"] = [probe.max_since(start), probe.max_since(after), probe.max_since(now + 1)]
probe.ask()
now += 5_000_000 + 6_000_000
told["still blocked"] = probe.max_since(after)
print(json.dumps(told))
"""


def test_lag_is_counted_for_all_the_time_it_lasted(snippet):
    """A block of 300 ms counts as the 60 late wake-ups it stands for, and falls to the window in which it lay."""
    told = snippet(PROBE)
    assert told["calm"][::2] == [99, 0.05]
    assert told["empty"] == [0, None, None]
    count, p99, worst = told["blocked"]
    assert (count, worst) == (99 + 60, 300)
    assert p99 > 250
    assert told["before the cut"][2] == 20
    assert told["after the cut"][2] == 7
    assert told["none yet"] is None
    assert told["since"] == [8, 4, None]
    assert told["still blocked"] == 6


HOOKS = """
import json
from locust.exception import StopUser
from gevent import GreenletExit
from loadkit.swarm import events

heard = []
def raising(error):
    def listener(**_):
        heard.append(type(error).__name__)
        raise error
    return listener
hook = events.Hook()
for error in (ValueError("once"), StopUser(), GreenletExit(), KeyError("last")):
    hook.add_listener(raising(error))
hook.add_first(lambda **_: heard.append("first"))
raised = []
for reverse in (False, True):
    try:
        hook.fire(reverse=reverse, n=1)
    except BaseException as error:
        raised.append(type(error).__name__)
print(json.dumps([heard, raised]))
"""


def test_a_hook_calls_every_listener(snippet):
    """Also after one that steers the user or is killed; what steers is raised at the end, the first of it."""
    names = ["first", "ValueError", "StopUser", "GreenletExit", "KeyError"]
    heard, raised = snippet(HOOKS)
    assert heard == names + names[::-1]
    assert raised == ["StopUser", "GreenletExit"]


PROGRESS = """
import json
from loadkit.plan.ladder import Cell, Plan
from loadkit.swarm.progress import Progress

now, shown, kept = 0.0, "", []

class Terminal:
    def isatty(self):
        return True
    def fileno(self):
        raise OSError
    def flush(self):
        pass
    def write(self, text):
        global shown
        for part in text.split("\\n")[:-1]:
            over(part)
            kept.append(shown.rstrip())
            shown = ""
        over(text.split("\\n")[-1])

def over(text):
    global shown
    for piece in text.split("\\r"):
        shown = piece + shown[len(piece):] if text.startswith("\\r") else shown + piece

plan = Plan("test", (Cell(32, 1), Cell(64, 2)), seed=1, rounds=1, max_tokens=1)
progress = Progress(plan, Terminal(), now=lambda: now)
progress.on_stage(visit=0, state="open")
progress.on_record(record={"outcome": "ok", "phase": "measure", "cell": "32x1", "ttft_ms": 12345.6})
seen = []
def tick():
    progress.tick()
    seen.append([shown.rstrip(), progress.line()])
tick()
now = 30.0
progress.on_stage(visit=0, state="done")
progress.on_stage(visit=1, state="open")
for now in (30.0, 5.0, 1.0):
    tick()
progress.note("a line of its own")
progress.on_record(record={"outcome": "reset", "phase": "measure", "cell": "64x2", "ttft_ms": None})
tick()
progress.on_stage(visit=1, state="done")
print(json.dumps([seen, kept]))
"""


def test_a_shorter_line_wipes_the_longer_one(snippet):
    """What a terminal shows is the line as it is now, with nothing left of what stood there before."""
    seen, kept = snippet(PROGRESS)
    assert all(shown == line for shown, line in seen)
    lengths = [len(shown) for shown, _ in seen]
    assert min(b - a for a, b in pairwise(lengths)) < 0
    assert seen[0][1] == "[0/2] cell 32x1 round 1/1, TTFT p50 12,346 ms (n=1), time left -"
    assert kept[0].startswith("[1/2] cell 32x1 round 1/1, TTFT p50 12,346 ms (n=1), time left ")
    assert kept[1] == "a line of its own"
    assert kept[2].startswith("[2/2] cell 64x2 rounds 1-1, TTFT -, 1 failed, time left 0 s")

"""Parts of the room by themselves, in a process of their own, with clocks that are told the time."""

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
    """Also after one that steers the user or is killed; at the end the kill is raised, in whatever order they came."""
    names = ["first", "ValueError", "StopUser", "GreenletExit", "KeyError"]
    heard, raised = snippet(HOOKS)
    assert heard == names + names[::-1]
    assert raised == ["GreenletExit", "GreenletExit"]


PROGRESS = """
import json
from loadkit.plan.ladder import Cell, Plan
from loadkit.swarm.progress import Progress

class Terminal:
    def __init__(self):
        self.rows, self.row = [""], 0
    def isatty(self):
        return True
    def fileno(self):
        raise OSError
    def flush(self):
        pass
    def write(self, text):
        while text:
            if text.startswith("\\r"):
                self.column, text = 0, text[1:]
            elif text.startswith("\\x1b[J"):
                self.rows[self.row:] = [self.rows[self.row][:self.column]]
                text = text[3:]
            elif text.startswith("\\x1b["):
                up, _, text = text[2:].partition("A")
                self.row -= int(up)
            elif text.startswith("\\n"):
                self.row, self.column, text = self.row + 1, 0, text[1:]
                self.rows += [""] * (self.row + 1 - len(self.rows))
            else:
                self.rows[self.row] = self.rows[self.row] + text[0]
                self.column, text = len(self.rows[self.row]), text[1:]
    def __str__(self):
        return "\\n".join(self.rows)

class Plain(Terminal):
    def isatty(self):
        return False

now = 0.0
terminal, plain, quiet = Terminal(), Plain(), Plain()
plan = Plan("test", (Cell(32, 1), Cell(64, 2)), seed=1, rounds=1, max_tokens=1)
shown = [
    Progress(plan, terminal, now=lambda: now),
    Progress(plan, plain, now=lambda: now),
    Progress(plan, quiet, now=lambda: now, quiet=True),
]
seen = []
def all_of(name, *words, **named):
    for progress in shown:
        getattr(progress, name)(*words, **named)
def tick():
    all_of("tick")
    seen.append(str(terminal))
def record(outcome, cell, ttft):
    all_of("on_record", record={"outcome": outcome, "phase": "measure", "cell": cell, "ttft_ms": ttft})

all_of("on_stage", visit=0, state="open")
record("ok", "32x1", 12345.6)
tick()
now = 30.0
all_of("on_stage", visit=0, state="done")
shown[0].about = lambda: {"workers_live": 1, "workers_planned": 2}
all_of("on_stage", visit=1, state="open")
tick()
all_of("note", "a line of its own")
record("reset", "64x2", None)
tick()
now = 95.0
tick()
all_of("on_stage", visit=1, state="done")
tick()
print(json.dumps([seen, str(plain), str(quiet)]))
"""


def test_a_terminal_shows_every_cell(snippet):
    """A table that is written over: state, requests, TTFT so far and errors of each cell, workers and time left; lines
    that stay stand above it, and nothing is left of what stood there before."""
    seen, _, _ = snippet(PROGRESS)
    assert seen[0].splitlines() == [
        "  32x1  running        1 requests  TTFT p50 12,346 ms (n=1)",
        "  64x2  planned        0 requests  TTFT -",
        "[0/2] cell 32x1 round 1/1, TTFT p50 12,346 ms (n=1), time left -, 1 requests",
    ]
    assert seen[1].splitlines() == [
        "[1/2] cell 32x1 round 1/1, TTFT p50 12,346 ms (n=1), time left 106 s, 1 requests",
        "  32x1  done           1 requests  TTFT p50 12,346 ms (n=1)",
        "  64x2  running        0 requests  TTFT -",
        "[1/2] cell 64x2 rounds 1-1, TTFT -, time left 106 s, workers 1/2, 1 requests",
    ]
    assert seen[2].splitlines()[1:] == [
        "a line of its own",
        "  32x1  done           1 requests  TTFT p50 12,346 ms (n=1)",
        "  64x2  running        1 requests  TTFT -  1 reset",
        "[1/2] cell 64x2 rounds 1-1, TTFT -, time left 106 s, workers 1/2, 2 requests, 1",  # clipped at 79
    ]
    assert seen[-1].count("TTFT -") == 3  # the line that stays, the table and the line below it


def test_without_a_terminal_there_are_plain_lines(snippet):
    """One for each visit that has closed, and one where nothing was said for a minute; no control characters."""
    _, plain, _ = snippet(PROGRESS)
    assert [line.partition(",")[0] for line in plain.splitlines()] == [
        "[1/2] cell 32x1 round 1/1",
        "a line of its own",
        "[1/2] cell 64x2 rounds 1-1",
        "[2/2] cell 64x2 rounds 1-1",
    ]


def test_a_quiet_run_shows_nothing(snippet):
    """Not even what happens beside the plan."""
    assert snippet(PROGRESS)[2] == ""


TIMED = """
import json
from loadkit.plan.ladder import Cell, Plan
from loadkit.swarm.progress import Progress

now = 0.0
class Nowhere:
    def write(self, text=""):
        pass
    flush = write
plan = Plan("test", (Cell(32, 1), Cell(64, 1)), seed=1, rounds=1, duration_s=60.0)
progress, lines = Progress(plan, Nowhere(), now=lambda: now), []
def at(moment, *stage):
    global now
    now = moment
    if stage:
        progress.on_stage(visit=stage[0], state=stage[1])
    lines.append(progress.line())
at(2.0, 0, "open"); at(22.0); at(63.0); at(64.0, 0, "done"); at(65.0, 1, "open"); at(95.0); at(126.0, 1, "done")
print(json.dumps([line.split(", ")[2] for line in lines]))
"""


def test_the_time_left_of_what_is_measured_for_a_time(snippet):
    """What the plan says less what has passed of the open visit, which may take longer than its time to end."""
    assert [line.removeprefix("time left ") for line in snippet(TIMED)] == [
        "2 min", "100 s", "60 s", "60 s", "60 s", "30 s", "0 s",
    ]  # fmt: skip


SO_FAR = """
import json, random
from loadkit.swarm.progress import KEPT, CellSoFar

rng, cell = random.Random(1), CellSoFar()
values = [rng.gauss(1000, 50) for _ in range(5 * KEPT)]
for value in values:
    cell.add({"outcome": "ok", "phase": "measure", "ttft_ms": value})
print(json.dumps([cell.ttft(), sorted(values)[len(values) // 2], len(cell._ttft), KEPT]))
"""


def test_a_long_run_keeps_few_values_of_its_ttft(snippet):
    """The median so far stays that of all values, to a small part of their spread."""
    text, median, kept, most = snippet(SO_FAR)
    assert kept <= most
    assert abs(float(text.split()[2].replace(",", "")) - median) <= 3
    assert text.endswith(f"(n={5 * most})")

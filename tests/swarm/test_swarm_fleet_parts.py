"""The parts of a fleet by themselves: the channel that loses nothing, who is there, what may stand, which prompts."""

CHANNEL = """
import json, random
from locust.rpc.protocol import Message
from loadkit.record.spool import encode
from loadkit.swarm.channel import BATCH_ROWS, Batch, Inbox, Outbox

def crossing(seed):
    rng = random.Random(seed)
    rows = [{"kind": "request", "n": n, "text": "x" * rng.randrange(3000)} for n in range(rng.randrange(400))]
    outbox, inbox, got, left, largest = Outbox(), Inbox(), [], list(rows), 0
    flying, acks = [], []
    for _ in range(100_000):
        if not left and outbox.empty and not acks:
            break
        move = rng.randrange(6)
        if move == 0 and left:
            outbox.put(encode(left.pop(0)))
        elif move == 1 and (batch := outbox.take()):
            wire = Message("loadkit", {"first": batch.first, "data": batch.data}, "w").serialize()
            flying += [wire] * rng.choice((0, 1, 1, 2))  # lost, sent, sent twice
        elif move == 2 and flying:
            data = Message.unserialize(flying.pop(rng.randrange(len(flying)))).data  # in any order
            new = inbox.take("w", Batch(data["first"], data["data"]))
            largest = max(largest, len(new))
            got += new
            acks += [inbox.have("w")] * rng.choice((0, 1, 1))
        elif move == 3 and acks:
            outbox.acknowledged(acks.pop(0))
        elif move == 4 and rng.random() < 0.2:
            outbox.rewind()
    return got == rows, outbox.last == len(rows), largest <= BATCH_ROWS

print(json.dumps([crossing(seed) for seed in range(60)]))
"""

STUCK = """
import json
from loadkit.swarm.channel import Outbox, Shipper

clock, sent = [0.0], []
outbox = Outbox()
shipper = Shipper(outbox, sent.append, lambda: clock[0])
shipper.stop()
outbox.put(b"{}\\n")
shipper.rewind_if_stuck()
shipper.send_all()
for at in (1.0, 1.9, 2.1, 3.0, 4.2):
    clock[0] = at
    shipper.rewind_if_stuck()
    shipper.send_all()
once_more = len(sent)
outbox.acknowledged(1)
clock[0] = 99.0
shipper.rewind_if_stuck()
shipper.send_all()
print(json.dumps([once_more, len(sent), outbox.empty]))
"""

BUILTINS = """
import json
import msgpack, numpy
from gevent import sleep
from locust.rpc.protocol import Message
from loadkit.record.record import Record
from loadkit.record.spool import Spool
from loadkit.swarm.channel import Link, Outbox
from loadkit.swarm.spooling import Spooling
import pathlib

class Runner:
    def __init__(self):
        self.sent = []
    def register_message(self, kind, listener):
        self.listener = listener
    def send_message(self, kind, data, client_id=None):
        self.sent.append(Message(kind, data, "w").serialize())  # as Locust does; it dies of a numpy value

spool, outbox, runner = Spool(pathlib.Path("."), "r", "w"), Outbox(), Runner()
keeper = Spooling(spool, outbox)
row = Record(run_id="r", request_id="1").to_json() | {"ttft_ms": numpy.float64(2.5), "reads": numpy.int64(7)}
keeper.on_record(record=row)
link = Link(runner)
batch = outbox.take()
link.send("rows", {"first": batch.first, "data": batch.data})
heard = []
link.start(lambda sender, what, data: heard.append([sender, what, data["first"]]))
link._arrived(environment=None, msg=Message.unserialize(runner.sent[0]))
link._arrived(environment=None, msg=Message("loadkit", ["not", "ours"], "w"))
sleep(0.05)
from loadkit.swarm.channel import Inbox
(back,) = Inbox().take("w", batch)
print(json.dumps([heard, back["ttft_ms"], back["reads"], back["seq"]]))
"""

ROSTER = """
import json
from loadkit.swarm.roster import Roster

clock, told = [100.0], []
roster = Roster(lambda member, why: told.append([clock[0], member.name]), lambda: clock[0])
for worker in "ab":
    roster.join(worker, worker.upper())

def at(seconds, *heard):
    clock[0] = seconds
    for worker in heard:
        roster.heard(worker)
    roster.look()

for step in range(101, 104):
    for part in range(4):
        at(step + part / 4, "a", "b")
for step in range(104, 109):  # b is silent
    for part in range(4):
        at(step + part / 4, "a")
silent = list(told)
at(130.0)  # this process stood still: nobody can be blamed
print(json.dumps([silent, told, [member.name for member in roster.there]]))
"""

JUDGE = """
import json
from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram
from loadkit.swarm.judge import Judge

def sample(at, worker="w", lag=0.1, cpu=0.2, planned=2, live=2):
    histogram = Histogram(LAG_BOUNDS_S)
    histogram.add(lag, 200)
    return {"kind": "telemetry", "worker": worker, "at_ms": at, "cell": "32x2", "hub_lag": histogram.to_wire(),
            "cpu": cpu, "users_planned": planned, "users_live": live}

def record(start, worker="w", visit=3, phase="measure"):
    return {"kind": "request", "worker": worker, "visit": visit, "phase": phase, "start_ms": start, "done_ms": 500.0,
            "itl_ms": [10.0, 10.0]}

def verdict(*rows):
    judge = Judge()
    for row in rows:
        judge.take(row)
    found = judge.verdict(3)
    return [found.status, len(found.reasons)]

base = (record(1000.0), record(1500.0), sample(1400.0))
print(json.dumps([
    verdict(*base),
    verdict(*base, sample(1900.0, lag=300.0)),                       # a stalled loop
    verdict(*base, sample(5000.0, lag=300.0)),                       # after the window
    verdict(*base, sample(1900.0, cpu=1.9)),                         # a busy core
    verdict(*base, sample(1900.0, live=1)),                          # a stream is missing
    verdict(*base, record(9000.0, "v"), sample(9100.0, "v", lag=300.0)),  # the other worker, on its own clock
    verdict(*base, record(9000.0, "v", visit=2), sample(9100.0, "v", lag=300.0)),  # an earlier visit
    verdict(),
]))
"""

SHIPPED = """
import json, pathlib
from loadkit.plan.errors import ConfigError
from loadkit.prompt.counters import EstimateCounter
from loadkit.prompt.filler import filler
from loadkit.prompt.prompt import Prompt, PromptKey
from loadkit.prompt.public import PublicTier
from loadkit.prompt.tier import build_tier
from loadkit.swarm.shipped import Shelf, load, unpack

made = build_tier(EstimateCounter(1.3), 400, 12, filler("en"))
public = PublicTier(64, (Prompt((b"say \\\\n hi",), 9, True, "tokenizer", 8, "ab"),))
shelf = Shelf(pathlib.Path("."), {400: made, 64: public})
refs = json.loads(json.dumps(shelf.refs()))
key = PromptKey(1, "400x1", 1, 0, "measure")

def told(text):
    prompt = text.prompt(key)
    return [b"".join(prompt.content).decode(), prompt.sha256, prompt.tokens, prompt.exact]

same = [told(load(refs[str(n)])) == told(text) == told(unpack(refs[str(n)], shelf.packed(n)))
        for n, text in ((400, made), (64, public))]
wrong = shelf.packed(400) | {"about": shelf.packed(400)["about"] + b" "}
try:
    unpack(refs["400"], wrong)
    refused = None
except ConfigError as error:
    refused = str(error)
body = pathlib.Path(refs["400"]["path"]).with_suffix(".body")
body.write_bytes(body.read_bytes()[:-1] + b"!")
changed = load(refs["400"])
shelf.clear()
print(json.dumps([same, refused, changed, load(refs["64"]), pathlib.Path(".prompts").exists()]))
"""

BRIEFED = """
import json
from types import SimpleNamespace
import gevent
from locust.event import EventHook
from loadkit.plan.errors import ConfigError
from loadkit.swarm import worker

begun, said = [], []

def slow(data, *_, **__):
    begun.append(data["run"])
    gevent.sleep(0.05)
    raise ConfigError("far enough")

worker.session_of = slow
runner = SimpleNamespace(
    register_message=lambda *_: None, send_message=lambda *_, **__: None, quit=lambda: None, worker_index=0
)
environment = SimpleNamespace(runner=runner, events=SimpleNamespace(heartbeat_received=EventHook()))
new = worker.Worker(environment, said.append)
for run in ("one", "one", "two"):
    new._on_message("", "brief", {"run": run})
gevent.sleep(0.2)
print(json.dumps([begun, [line.split(" leaves: ")[1] for line in said]]))
"""

GUARD = r"""
import json
from types import SimpleNamespace
import msgpack
from locust.exception import RPCReceiveError
from locust.rpc import Message
from loadkit.swarm.guard import guard

handled, unread = [], 0
runner = SimpleNamespace(handle_message=lambda client, msg: handled.append([msg.type, msg.data["n"]]))
guard(runner)
for kind, data in (("x", None), ("x", {}), ("stats", {"n": 0, "user_classes_count": "2"}), ("x", {"n": 1})):
    runner.handle_message("w", Message(kind, data, "w"))
odd = [[1, 2], [1, None, "w"], ["x", None, {}], ["x", {"__datetime__": True, "as_str": "?"}, "w"]]
for wire in (b"", b"\xc1", b"\x93", b"garbage", *map(msgpack.dumps, odd)):
    try:
        Message.unserialize(wire)
    except RPCReceiveError:
        unread += 1
whole = Message.unserialize(Message("x", {"n": 2}, "w").serialize())
print(json.dumps([handled, unread, whole.data]))
"""

ROWS = """
import json
import zlib
from functools import partial
from types import SimpleNamespace
from loadkit.swarm.channel import Inbox
from loadkit.swarm.fleet import Fleet
from loadkit.swarm.judge import Judge

kept, told = [], []
session = SimpleNamespace(
    run_id="r", further=None, sample=kept.append,
    records=SimpleNamespace(fire=lambda record: kept.append(record["request_id"])),
)
master = SimpleNamespace(
    _session=session, _inbox=Inbox(), _sharing=SimpleNamespace(judge=Judge()),
    _tell=lambda what, data, to: told.append(data["number"]),
)
master._take = partial(Fleet._take, master)
rows = [3, {}, {"kind": "request", "run_id": "other", "request_id": "other-1"},
        {"kind": "request", "run_id": "r", "request_id": "r-1", "phase": "measure", "start_ms": "soon"},
        {"kind": "request", "run_id": "r", "request_id": "r-2"}]
batch = zlib.compress(b"".join(json.dumps(row).encode() + b"\\n" for row in rows))
member = SimpleNamespace(id="w", name="w")
for _ in range(2):
    Fleet._on_rows(master, member, {"first": 1, "data": batch})
print(json.dumps([kept, told]))
"""

LEFT = """
import json
from types import SimpleNamespace
from loadkit.swarm.fleet import Fleet
from loadkit.swarm.roster import Roster

said, roster = [], Roster(lambda member, why: said.append(why))
master = SimpleNamespace(_roster=roster, _say=said.append, _count=lambda: None)
for name, gone in (("a", lambda member: Fleet._on_leaving(master, "a", {"why": "SIGTERM", "fault": None})),
                   ("b", lambda member: roster.lose(member, "silent"))):
    member = roster.join(name, name)
    gone(member)
    Fleet._welcome(master, member)  # its last rows come
print(json.dumps([said, [member.name for member in roster.there]]))
"""

VERSION = """
import json
from loadkit.plan.errors import ConfigError
from loadkit.swarm.briefing import session_of

try:
    session_of({"run": "r", "version": "0.0.1"}, None, None, name="w", mark="")
except ConfigError as error:
    print(json.dumps(str(error)))
"""


def test_no_message_makes_a_master_deaf(snippet):
    """What cannot be read or handled is passed over, where Locust's listener would end with it."""
    assert snippet(GUARD) == [[["x", 1]], 8, {"n": 2}]


def test_a_row_that_cannot_be_used_takes_no_other_along(snippet):
    """Records are kept before they are judged, those of another run never, and each once."""
    assert snippet(ROWS) == [["r-1", "r-2"], [5, 5]]


def test_a_worker_that_leaves_is_not_back_with_its_last_rows(snippet):
    """It would be given a part of the next visit, which could then not stand; one that was only silent is back."""
    assert snippet(LEFT) == [["left (SIGTERM)", "silent", "worker b is back"], ["b"]]


def test_a_worker_of_another_version_does_not_work(snippet):
    """It might mean something else by the same words; both versions are named."""
    assert "its master 0.0.1" in snippet(VERSION)


def test_rows_cross_any_link_once_and_in_order(snippet):
    """Batches and acknowledgements may be lost, doubled, late and out of order: the master has every row once."""
    for whole, numbered, small in snippet(CHANNEL):
        assert (whole, numbered, small) == (True, True, True)


def test_rows_that_nobody_acknowledges_are_sent_again(snippet):
    """Every two seconds, and no more once they are acknowledged."""
    assert snippet(STUCK) == [3, 3, True]


def test_what_goes_over_the_wire_is_builtins(snippet):
    """NumPy values of a listener or a rule become numbers before Locust's packer sees them; what is not ours is let
    pass."""
    assert snippet(BUILTINS) == [[["w", "rows", 1]], 2.5, 7, 1]


def test_a_silent_worker_is_lost_and_a_stall_of_the_master_is_no_ones_silence(snippet):
    """Four seconds without a word, told once; time in which the master itself stood still does not count."""
    silent, told, there = snippet(ROSTER)
    assert silent == [[107.75, "B"]] or silent == [[108.0, "B"]]
    assert told == silent
    assert there == ["A"]


def test_a_visit_is_judged_by_what_happened_inside_it(snippet):
    """Lag, CPU and missing streams of every worker, inside its own measured window and on its own clock."""
    assert [status for status, _ in snippet(JUDGE)] == [
        "valid", "invalid", "valid", "invalid", "invalid", "invalid", "valid", "valid"
    ]  # fmt: skip


def test_prompts_reach_workers_as_they_are_or_not_at_all(snippet):
    """Mapped from the master's files or sent as bytes, they are the same; anything else is refused by its hash."""
    same, refused, changed, cleared, left = snippet(SHIPPED)
    assert same == [True, True]
    assert "their hashes differ" in refused
    assert (changed, cleared, left) == (None, None, False)


def test_a_worker_is_briefed_once(snippet):
    """A slow master answers every hello: the second brief changes nothing, and one of another run sends it home."""
    assert snippet(BRIEFED) == [["one"], ["a message of run two came"]]

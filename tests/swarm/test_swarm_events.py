"""The custom events as a user's locustfile sees them: the numbers of the records, whatever another listener does."""

import json
from collections import Counter

import pytest

# Listens twice to every event: one listener that raises, before one that writes down what it is told, with the exact
# type of every value in it.
SPY = """
import locust
import gc, json, os
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, events, install

file = open(os.environ["SPY"], "w", buffering=1)

def kinds(value):
    if type(value) is dict:
        return set().union({type(key).__name__ for key in value}, *map(kinds, value.values()))
    if type(value) is list:
        return set().union(*map(kinds, value))
    return {type(value).__name__}

def listen(name, hook):
    def broken(**kwargs):
        raise RuntimeError(f"a listener of {name} is broken")
    def spy(**kwargs):
        file.write(json.dumps([name, kwargs, sorted(kinds(kwargs))]) + "\\n")
    hook.add_listener(broken)
    hook.add_listener(spy)

for name in ("ttft", "itl", "outcome", "retry", "record", "stage"):
    listen(name, getattr(events, name))

@events.stage.add_listener
def collector(state, **_):
    file.write(json.dumps(["collector", [state, gc.isenabled()], []]) + "\\n")

@events.record.add_listener
def vandal(record, **kwargs):
    record.clear()

@locust.events.request.add_listener
def on_request(name, response_time, exception, request_type, **kwargs):
    file.write(json.dumps(["request", [request_type, name, response_time, exception and str(exception)], []]) + "\\n")

install(finish)
"""
BUILTINS = {"str", "int", "float", "bool", "NoneType"}
PLAN = ("--tiers", "32", "--concurrency", "1,4", "--rounds", "4", "--max-tokens", "3", "--no-check")


class Seen:
    """A run and what its listeners were told, by event."""

    def __init__(self, run, path):
        self.run = run
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        self.kinds = set().union(*(kinds for _, _, kinds in rows))
        self.events = {name: [told for event, told, _ in rows if event == name] for name, _, _ in rows}


STEER = """
from locust import events as locust_events
from locust.exception import StopUser
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, events, install

@events.record.add_listener
def stop(record, **kwargs):
    raise StopUser

@events.outcome.add_listener
def after(request_id, **kwargs):
    print("outcome of", request_id)

@locust_events.request.add_listener
def told(**kwargs):
    print("request told")

install(finish)
"""
# Something else than loadkit ends the test in mid-run, as the stop button of the web page does.
QUIT = """
import gevent
from locust import events as locust_events
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install

@locust_events.init.add_listener
def begin(environment, **_):
    told = []
    @locust_events.request.add_listener
    def count(**_):
        told.append(1)
        if len(told) == 5:
            gevent.spawn(environment.runner.quit)

install(finish)
"""
SILENT = "from loadkit.swarm import *\nevents.ttft.add_listener(lambda **_: 1 / 0)\ninstall()\n"

# Each case: what raises where. A user is killed while a listener waits; listeners before and after it raise as well.
RAISING = """
import locust
import json
from types import SimpleNamespace

import gevent
from gevent import GreenletExit, sleep
from locust.event import EventHook
from locust.exception import RescheduleTask, StopUser

from loadkit.record.record import Record
from loadkit.swarm import events
from loadkit.swarm.users import PromptUser

WORDS = {"steer": RescheduleTask, "stop": StopUser, "exit": SystemExit, "bug": ZeroDivisionError}

def report(complete=None, first=None, last=None, own=None, kill=False):
    told, faults = [], []
    def say(name, what):
        def listener(*_, **__):
            told.append(name)
            if what == "wait":
                sleep(30)
            elif what is not None:
                raise WORDS[what]
        return listener
    request = EventHook()
    request.add_listener(say("locust", own))
    for hook, name in ((events.record, "record"), (events.ttft, "ttft"), (events.outcome, "outcome")):
        hook._handlers = [say(name, {"record": first, "outcome": last}.get(name)), say(name + " too", None)]
    user = SimpleNamespace(session=SimpleNamespace(complete=say("complete", complete), fail=faults.append),
                           environment=SimpleNamespace(events=SimpleNamespace(request=request)))
    user._tell_locust = lambda record: PromptUser._tell_locust(user, record)
    user._announce = lambda record: PromptUser._announce(user, record)
    ended = []
    def run():
        try:
            PromptUser.report(user, Record(request_id="r", cell="64x1", phase="measure", outcome="ok", ttft_ms=1.0))
        except BaseException as error:
            ended.append(type(error).__name__)
    greenlet = gevent.spawn(run)
    sleep(0)
    if kill:
        greenlet.kill()
    greenlet.join()
    return [ended, told, faults]

print(json.dumps([
    report(),
    report(first="steer", last="stop", own="steer"),
    report(first="steer", last="wait", kill=True),
    report(first="wait", last="stop", own="steer", kill=True),
    report(complete="wait", own="steer", kill=True),
    report(first="exit", own="stop"),
    report(complete="bug", last="stop"),
]))
"""


@pytest.fixture(scope="module")
def runs(make_sim, sim, locust, locustfile, tmp_path_factory):
    """The runs of this module, under way. One server refuses half of the requests and asks to wait 20 ms."""
    refusing = make_sim("--ttft-ms", "20", "--itl-ms", "4", "--error-rate", "0.55", "--error-status", "429",
                        "--retry-after", "0.02", "--seed", "3")  # fmt: skip
    path = tmp_path_factory.mktemp("spy") / "events"
    spied = locust(locustfile(SPY), refusing.url, *PLAN, env={"SPY": str(path)})
    spied.server, spied.spy = refusing, path
    short = ("--tiers", "32", "--max-tokens", "2", "--no-check")
    return {
        "spied": spied,
        "steered": locust(locustfile(STEER), sim.url, *short, "--concurrency", "2", "--rounds", "2"),
        "quit": locust(locustfile(QUIT), sim.url, *short, "--concurrency", "2", "--rounds", "500"),
        "silent": locust(locustfile(SILENT), sim.url, *short, "--concurrency", "1", "--rounds", "1"),
    }


@pytest.fixture(scope="module")
def seen(runs):
    """The run with answers, retries and failures, ended, and what its listeners were told."""
    run = runs["spied"]
    run.code = run.end()
    seen = Seen(run, run.spy)
    seen.received = run.server.received(run.manifest["run_id"])
    return seen


def test_the_run_met_answers_retries_and_failures(seen):
    """Without all three the tests below would say less than they seem to."""
    records = seen.run.records
    assert {row["outcome"] for row in records} == {"ok", "rate_limited"}
    assert any(row["outcome"] == "ok" and len(row["attempts"]) > 1 for row in records)


def test_a_listener_sees_the_numbers_of_the_records(seen):
    """TTFT, ITL, outcome and code of every request, each told once, and the very numbers of records.jsonl."""
    records = seen.run.records
    told = [(e["request_id"], e["cell"], e["phase"], e["ttft_ms"]) for e in seen.events["ttft"]]
    assert told == [(r["request_id"], r["cell"], r["phase"], r["ttft_ms"]) for r in records if r["ttft_ms"] is not None]
    told = [(e["request_id"], e["itl_ms"]) for e in seen.events["itl"]]
    assert told == [(r["request_id"], r["itl_ms"]) for r in records if r["ttft_ms"] is not None]
    told = [(e["request_id"], e["phase"], e["outcome"], e["code"]) for e in seen.events["outcome"]]
    assert told == [(r["request_id"], r["phase"], r["outcome"], r["http_status"]) for r in records]
    assert [e["record"] for e in seen.events["record"]] == records


def test_a_retry_is_told_once_per_attempt_that_another_followed(seen):
    """With its outcome, status and wait, which is the Retry-After and a little more."""
    told = [(e["request_id"], e["outcome"], e["code"], e["wait_ms"]) for e in seen.events["retry"]]
    assert told == [
        (row["request_id"], attempt["outcome"], attempt["http_status"], attempt["wait_ms"])
        for row in seen.run.records
        for attempt in row["attempts"][:-1]
    ]
    assert told
    assert all((outcome, code) == ("rate_limited", 429) and 20 <= wait <= 22 for _, outcome, code, wait in told)


def test_the_records_tell_every_attempt(seen):
    """As many as the server received; the waits add up; a retried request has the answer of its last attempt."""
    assert seen.run.sent == seen.received
    for row in seen.run.records:
        waits = [attempt["wait_ms"] for attempt in row["attempts"]]
        assert waits[-1] is None
        assert row["attempts"][-1]["outcome"] == row["outcome"]
        assert (row["retry_wait_ms"] or 0) == pytest.approx(sum(waits[:-1]))
        if row["outcome"] == "ok" and len(waits) > 1:
            assert row["ttft_first_attempt_ms"] >= row["ttft_ms"] + row["retry_wait_ms"]


def test_stages_are_told_as_they_open_and_close(seen):
    """Every visit, in order, open and then done."""
    told = [(event["visit"], event["state"]) for event in seen.events["stage"]]
    assert told == [(n, state) for n in range(len(seen.run.manifest["visits"])) for state in ("open", "done")]
    assert {event["run_id"] for event in seen.events["stage"]} == {seen.run.manifest["run_id"]}


def test_the_garbage_collector_is_away_while_a_visit_is_open(seen):
    """It would stall the loop that stamps the reads."""
    assert ["open", False] in seen.events["collector"]
    assert not any(on for _, on in seen.events["collector"])


def test_locusts_own_event_fires_once_per_request(seen):
    """Also for a failure, whose exception is its outcome, and for a retried one; under the name of its cell."""
    told = [(kind, name, exception) for kind, name, _, exception in seen.events["request"]]
    wanted = [("LLM", r["cell"], None if r["outcome"] == "ok" else r["outcome"]) for r in seen.run.records]
    assert told == wanted
    times = [time for _, _, time, exception in seen.events["request"] if exception is None]
    assert times == [row["e2e_ms"] for row in seen.run.records if row["outcome"] == "ok"]


def test_payloads_are_builtins(seen):
    """No enum, no numpy scalar: msgpack, which carries them from workers, would die of it."""
    assert seen.kinds <= BUILTINS


def test_listeners_that_raise_or_spoil_change_nothing(seen):
    """Each is logged once; the exit code is the summary's; the records were written before anyone could empty them."""
    run = seen.run
    assert run.code == run.summary["exit_code"] == (6 if run.saturated else 0), run.err
    broken = Counter(
        line.split()[-3] for line in run.err.splitlines() if line.startswith("RuntimeError: a listener of")
    )
    assert broken == dict.fromkeys(("ttft", "itl", "outcome", "retry", "record", "stage"), 1)
    assert all(row["request_id"] and row["outcome"] for row in run.records)


def test_without_a_report_locusts_exit_code_does_not_change_either(runs):
    """install() alone leaves the code to Locust, which would give 2 for a listener that raised."""
    run = runs["silent"]
    assert run.end() == 0, run.err
    assert "ZeroDivisionError" in run.err
    assert len(run.records) == 2


def test_a_listener_that_steers_its_user_loses_nothing(runs, sim):
    """StopUser ends the user, after all events of the request; the ladder then cannot go on and says so."""
    run = runs["steered"]
    assert run.end() == (6 if run.saturated else 3), run.err
    assert run.sent == sim.received(run.manifest["run_id"])
    assert [line for line in run.out.splitlines() if line.startswith("outcome of")] == [
        f"outcome of {row['request_id']}" for row in run.records
    ]
    assert run.out.count("request told") == len(run.records)
    assert "a user was stopped in the middle of cell 32x2" in run.manifest["fault"]
    assert [line for line in run.lines if line.startswith("loadkit:")] == [f"loadkit: {run.manifest['fault']}"]


def test_locust_may_stop_the_test_by_itself(runs, sim):
    """Streams then end after their request, nothing is lost, and the run is not complete."""
    run = runs["quit"]
    assert run.end() == (6 if run.saturated else 3), run.err
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert 5 <= len(run.records) < 50
    assert run.sent == sim.received(run.manifest["run_id"])
    assert [visit["state"] for visit in run.manifest["visits"]] == ["stopped"]
    assert "Traceback" not in run.err


def test_whatever_is_raised_everyone_is_told_once_and_the_strongest_wins(snippet):
    """A kill goes before the end of the user, and that before another task; no listener is left out for any of them."""
    everyone = ["complete", *(name + too for name in ("record", "ttft", "outcome") for too in ("", " too")), "locust"]
    ended, told, faults = zip(*snippet(RAISING), strict=True)
    assert list(told) == [everyone] * 7
    assert list(ended) == [[], ["StopUser"], *[["GreenletExit"]] * 3, ["StopUser"], ["StopUser"]]
    assert [case for case, said in enumerate(faults) if said] == [5]
    assert faults[5] == ["a listener raised SystemExit"]

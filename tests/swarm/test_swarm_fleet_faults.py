"""What a fleet refuses, and how it ends when it is told to: foreign runs, missing keys, own users, a second signal."""

import signal
from functools import partial

import pytest

# Many processes at once: beside several other tests a worker would come to its turn too late.
pytestmark = pytest.mark.crowd

LADDER = """
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install
install(finish)
"""
# A wait that is long for people is short for tests.
IMPATIENT = "from loadkit.swarm import fleet\nfleet.WHOLE_AGAIN_S = 1\n" + LADDER
# Nothing but the next master's run makes these workers leave.
PATIENT = "from loadkit.swarm import worker\nworker.MASTER_LOST_S = 50\n" + LADDER
OWN = """
from locust import constant, task
from loadkit.report.finish import finish
from loadkit.swarm import PromptUser, install

class Reader(PromptUser):
    wait_time = constant(0.1)

    @task
    def read(self):
        self.send("32")

install(finish)
"""
# As on machines that do not have the master's files.
ELSEWHERE = "from loadkit.swarm import shipped\nshipped.load = lambda ref: None\n" + OWN
QUICK = ("--tiers", "32", "--concurrency", "2", "--rounds", "3", "--max-tokens", "4", "--no-check")
LONG = ("--tiers", "32", "--concurrency", "4", "--rounds", "500", "--max-tokens", "4", "--no-check")
KEY = "k" * 24


@pytest.fixture(scope="module")
def fleets(side_by_side, make_sim, make_fleet, locustfile):
    """fleets(name): the fleet of a scenario, at its end, with the exit codes of its workers."""

    def fresh():
        return make_fleet(make_sim("--ttft-ms", "200", "--itl-ms", "10"))

    def over(fleet):
        fleet.end()
        fleet.codes = [worker.end() for worker in fleet.workers]
        return fleet

    def dead():
        file, first = locustfile(PATIENT), fresh()
        first.hosted(*LONG, file=file).streams()
        first.run.signal(signal.SIGKILL)
        first.end()
        fleet = make_fleet(first.server).hosted(*QUICK, file=file, port=first.port)
        fleet.dead = over(first)
        return over(fleet)

    def halved():
        fleet = fresh().hosted(*LONG, file=locustfile(IMPATIENT))
        fleet.streams()
        fleet.workers[0].signal(signal.SIGKILL)
        return over(fleet)

    def keyless():
        return over(fresh().hosted(*QUICK, file=locustfile(LADDER), env={"LOADKIT_API_KEY": KEY}))

    def aborted():
        endless = ("--tiers", "32", "--concurrency", "4", "--rounds", "9", "--max-tokens", "100000", "--yes")
        fleet = fresh().forked(*endless, "--no-check")
        fleet.streams(4)
        fleet.run.signal(signal.SIGTERM)
        fleet.run.said("draining")
        fleet.run.signal(signal.SIGTERM)
        return over(fleet)

    def own(text, seconds, signals=()):
        options = ("--tiers", "32", "--max-tokens", "4", "--no-check", "-u", "4", "-r", "50", "-t", seconds)
        fleet = fresh().hosted(*options, file=locustfile(text))
        for number in signals:
            fleet.streams(8)
            fleet.run.signal(number)
        return over(fleet)

    scenarios = {"dead": dead, "halved": halved, "keyless": keyless, "aborted": aborted}
    scenarios["time"] = partial(own, ELSEWHERE, "4s")
    scenarios["signal"] = partial(own, OWN, "1m", [signal.SIGTERM])
    return side_by_side(scenarios)


def test_workers_of_a_dead_run_refuse_the_next_master(fleets):
    """Trap 4 of Locust's: workers that outlive their master attach to the next one on its port. Here they leave, their
    spools stay, and the next run holds its own requests only."""
    fresh = fleets("dead")
    dead = fresh.dead
    assert dead.codes == [3, 3]
    assert all("leaves: " in worker.err and "said nothing" not in worker.err for worker in dead.workers)
    fresh.check(0)
    assert {row["run_id"] for row in fresh.run.records} == {fresh.run.manifest["run_id"]}
    assert dead.run.manifest["run_id"] not in (fresh.run.folder / "telemetry.jsonl").read_text()
    assert len(list((dead.run.folder / "spools").iterdir())) == 2


def test_a_lost_worker_that_nobody_replaces_leaves_the_run_incomplete(fleets):
    """Trap 6 of Locust's: half the users go on, and the exit code is 0. Here the cell is named invalid with its reason,
    the other worker is sent home, exit code 3."""
    fleet = fleets("halved")
    assert fleet.end() == fleet.run.summary["exit_code"] == 3, fleet.run.err
    assert fleet.codes == [-signal.SIGKILL, 0]
    assert "1 of 2 workers are there" in fleet.run.summary["course"]["fault"]
    lost, never = fleet.run.manifest["visits"]
    assert (lost["state"], never["state"]) == ("stopped", "planned")
    assert "a worker was lost" in lost["validity"]["reasons"][0]
    assert "a worker was lost" in (fleet.run.folder / "report.md").read_text()
    fleet.check_killed()
    assert fleet.alive() == []


def test_a_worker_without_the_key_says_so(fleets):
    """Keys do not travel: each process has its own; the run ends with the name of the variable."""
    fleet = fleets("keyless")
    assert fleet.end() == 3, fleet.run.err
    assert "LOADKIT_API_KEY" in fleet.run.summary["course"]["fault"]
    refused = [worker for worker in fleet.workers if worker.end() == 2]  # the other may be sent home before it looks
    assert refused
    assert all("LOADKIT_API_KEY" in worker.err for worker in refused)
    assert fleet.run.records == []
    assert fleet.alive() == []
    assert not any(KEY in path.read_text() for path in fleet.run.folder.iterdir() if path.is_file())


def test_a_second_signal_cuts_the_streams_of_all_workers(fleets):
    """What is in flight becomes records `aborted`, on every worker, and all of them arrive."""
    fleet = fleets("aborted")
    fleet.check(7)
    assert [row["outcome"] for row in fleet.run.records] == ["aborted"] * 4
    assert len({row["worker"] for row in fleet.run.records}) == 2


@pytest.mark.parametrize(("how", "code"), [("time", 0), ("signal", 7)])
def test_users_of_ones_own_run_on_workers_too(fleets, how, code):
    """Without a ladder: -u, -r and -t as always; every request is a record, no prompt is sent by two workers, whether
    they read the prompts of the master or have them sent."""
    fleet = fleets(how)
    fleet.check(code)
    rows = fleet.run.records
    assert {row["outcome"] for row in rows} == {"ok"}
    assert len({row["worker"] for row in rows}) == 2
    assert len({row["prompt_sha256"] for row in rows}) == len(rows)

"""What a fleet refuses, and how it ends when it is told to: foreign runs, missing keys, own users, a second signal."""

import signal

import pytest

LADDER = """
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, install
install(finish)
"""
# As on a machine that does not have the master's files.
ELSEWHERE = "from loadkit.swarm import shipped\nshipped.load = lambda ref: None\n" + LADDER
# Waits that are long for people are short for tests.
IMPATIENT = "from loadkit.swarm import fleet, worker\nworker.MASTER_LOST_S = 2\nfleet.WHOLE_AGAIN_S = 1\n" + LADDER
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
QUICK = ("--tiers", "32", "--concurrency", "2", "--rounds", "3", "--max-tokens", "4", "--no-check")
LONG = ("--tiers", "32", "--concurrency", "4", "--rounds", "500", "--max-tokens", "4", "--no-check")
KEY = "k" * 24


def test_workers_of_a_dead_run_refuse_the_next_master(make_sim, make_fleet, locustfile):
    """Trap 4 of Locust's: workers that outlive their master attach to the next one on its port. Here they leave, their
    spools stay, and the next run holds its own requests only."""
    file, server = locustfile(LADDER), make_sim("--ttft-ms", "200", "--itl-ms", "10")
    dead = make_fleet(server).hosted(*LONG, file=file)
    server.reached(in_flight=4, received=6)
    dead.run.process.kill()
    dead.run.process.wait()
    run_id = dead.run.manifest["run_id"]
    fresh = make_fleet(server).hosted(*QUICK, file=file, port=dead.port)
    assert [worker.end() for worker in dead.workers] == [3, 3]
    assert all("leaves: " in worker.err for worker in dead.workers)
    fresh.check(0)
    assert {row["run_id"] for row in fresh.run.records} == {fresh.run.manifest["run_id"]}
    assert run_id not in (fresh.run.folder / "telemetry.jsonl").read_text()
    assert len(list((dead.run.folder / "spools").iterdir())) == 2


def test_workers_whose_master_is_not_heard_of_leave_by_themselves(make_sim, make_fleet, locustfile, start):
    """The master is gone: what is in flight ends and is in the spools, exit code 3; a merge has it all."""
    server = make_sim("--ttft-ms", "200", "--itl-ms", "10")
    fleet = make_fleet(server).hosted(*LONG, file=locustfile(IMPATIENT))
    server.reached(in_flight=4, received=6)
    fleet.run.process.kill()
    fleet.run.process.wait()
    assert [worker.end() for worker in fleet.workers] == [3, 3]
    assert all("the master said nothing" in worker.err for worker in fleet.workers)
    assert start("-m", "loadkit.cli.main", "merge", fleet.run.folder).end() == 3
    assert fleet.run.sent == server.received(fleet.run.manifest["run_id"])
    assert fleet.alive() == []


def test_a_lost_worker_that_nobody_replaces_leaves_the_run_incomplete(make_sim, make_fleet, locustfile):
    """The cell is named invalid with its reason, the other worker is sent home, exit code 3."""
    server = make_sim("--ttft-ms", "200", "--itl-ms", "10")
    fleet = make_fleet(server).hosted(*LONG, file=locustfile(IMPATIENT))
    server.reached(in_flight=4, received=6)
    fleet.workers[0].process.kill()
    assert fleet.end() == fleet.run.summary["exit_code"] == 3, fleet.run.err
    assert fleet.workers[1].end() == 0
    assert "1 of 2 workers are there" in fleet.run.summary["course"]["fault"]
    lost, never = fleet.run.manifest["visits"]
    assert (lost["state"], never["state"]) == ("stopped", "planned")
    assert "a worker was lost" in lost["validity"]["reasons"][0]
    assert "a worker was lost" in (fleet.run.folder / "report.md").read_text()
    assert fleet.run.sent == server.received(fleet.run.manifest["run_id"])
    assert fleet.alive() == []


def test_prompts_are_sent_where_the_masters_files_are_not(make_sim, make_fleet, locustfile):
    """A worker on another machine gets the bytes over the channel: same seed, same prompts."""
    file = locustfile(ELSEWHERE)
    fleet = make_fleet(make_sim("--ttft-ms", "20", "--itl-ms", "4"))
    fleet.hosted(*QUICK, "--seed", "5", file=file)
    fleet.check(0)
    hashes = {row["prompt_sha256"] for row in fleet.run.records}
    assert len(hashes) == len(fleet.run.records) >= 8


def test_the_same_seed_sends_the_same_prompts_whatever_the_workers(make_sim, make_fleet, loadkit):
    """One process and two workers: the measured prompts are the same, slot by slot and round by round."""
    server = make_sim("--ttft-ms", "20", "--itl-ms", "4")
    fleet = make_fleet(server).forked(*QUICK, "--seed", "5")
    fleet.check(0)
    alone = loadkit(server.url, *QUICK, "--seed", "5")
    alone.end()

    def prompts(rows):
        found = [row["prompt_sha256"] for row in rows if row["phase"] == "measure"]
        assert len(set(found)) == len(found)
        return set(found)

    standing = [row for row in fleet.run.records if row["visit"] not in fleet.repeated]
    first = [row for row in fleet.run.records if row["visit"] == 0]
    assert prompts(first) == prompts(alone.records)
    if fleet.repeated:  # a repeat must not meet its own prompts in a cache
        assert not prompts(standing) & prompts(first)


def test_a_worker_without_the_key_says_so(make_sim, make_fleet, locustfile):
    """Keys do not travel: each process has its own; the run ends with the name of the variable."""
    fleet = make_fleet(make_sim())
    fleet.hosted(*QUICK, file=locustfile(LADDER), env={"LOADKIT_API_KEY": KEY})
    assert fleet.end() == 3, fleet.run.err
    assert "LOADKIT_API_KEY" in fleet.run.summary["course"]["fault"]
    refused = [worker for worker in fleet.workers if worker.end() == 2]  # the other may be sent home before it looks
    assert refused
    assert all("LOADKIT_API_KEY" in worker.err for worker in refused)
    assert fleet.run.records == []
    assert fleet.alive() == []
    assert not any(KEY in path.read_text() for path in fleet.run.folder.iterdir() if path.is_file())


def test_a_second_signal_cuts_the_streams_of_all_workers(make_sim, make_fleet, until):
    """What is in flight becomes records `aborted`, on every worker, and all of them arrive."""
    server = make_sim("--ttft-ms", "0", "--itl-ms", "10")
    options = ("--tiers", "32", "--concurrency", "4", "--rounds", "9", "--max-tokens", "100000", "--yes", "--no-check")
    fleet = make_fleet(server).forked(*options)
    server.reached(in_flight=4)
    fleet.run.signal(signal.SIGTERM)
    fleet.run.said("draining")
    fleet.run.signal(signal.SIGTERM)
    fleet.check(7)
    assert [row["outcome"] for row in fleet.run.records] == ["aborted"] * 4
    assert len({row["worker"] for row in fleet.run.records}) == 2


def test_a_master_whose_files_may_not_grow_leaves_the_rest_in_spools(make_sim, make_fleet, start):
    """The run ends, and says so; spools that hold what the master could not write stay, and a merge has it all."""
    server = make_sim("--ttft-ms", "100", "--itl-ms", "10")
    narrow = ("sh", "-c", 'ulimit -f 80; exec "$@"', "sh")
    fleet = make_fleet(server, prefix=narrow).forked(*LONG)
    assert fleet.end() in (3, 6), fleet.run.err
    assert "File too large" in fleet.run.manifest["fault"]
    run_id = fleet.run.manifest["run_id"]
    assert server.received(run_id) - fleet.run.sent
    assert start("-m", "loadkit.cli.main", "merge", fleet.run.folder).end() in (3, 6)
    assert fleet.run.sent == server.received(run_id)
    assert fleet.alive() == []


@pytest.mark.parametrize("how", ["time", "signal"])
def test_users_of_ones_own_run_on_workers_too(make_sim, make_fleet, locustfile, how):
    """Without a ladder: -u, -r and -t as always; every request is a record, no prompt is sent by two workers."""
    server = make_sim("--ttft-ms", "200", "--itl-ms", "4")
    fleet = make_fleet(server)
    seconds = "4s" if how == "time" else "1m"
    options = ("--tiers", "32", "--max-tokens", "4", "--no-check", "-u", "4", "-r", "50", "-t", seconds)
    fleet.hosted(*options, file=locustfile(OWN))
    if how == "signal":
        server.reached(received=8)
        fleet.run.signal(signal.SIGTERM)
    fleet.check(0 if how == "time" else 7)
    rows = fleet.run.records
    assert {row["outcome"] for row in rows} == {"ok"}
    assert len({row["worker"] for row in rows}) == 2
    assert len({row["prompt_sha256"] for row in rows}) == len(rows)

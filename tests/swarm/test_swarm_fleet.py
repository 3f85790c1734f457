"""A master and two workers as real processes: whatever dies, nothing is lost and nothing is believed that is not so."""

import os
import signal
import time
from collections import Counter, defaultdict

import pytest

ROUNDS = 4
PLAN = ("--tiers", "32", "--concurrency", "4", "--rounds", str(ROUNDS), "--max-tokens", "4", "--no-check")
LONG = ("--tiers", "32", "--concurrency", "4", "--rounds", "500", "--max-tokens", "4", "--no-check")
LAW = ("--ttft-ms", "250", "--itl-ms", "10")
BETWEEN_MS = 200  # requests take 280


def measured(rows):
    return [row for row in rows if row["phase"] == "measure"]


@pytest.fixture(scope="module")
def fleets(make_sim, make_fleet, locustfiles):
    """fleets[name]: a scenario, started when it is first asked for: all at once would be too many processes."""
    ladder = locustfiles / "ladder.py"
    two_tiers = ("--tiers", "32,48", "--concurrency", "1,4", "--rounds", "2", "--max-tokens", "4", "--seed", "7")
    starts = {
        "end": lambda fleet: fleet.forked(*two_tiers),
        "term": lambda fleet: fleet.forked(*LONG),
        "kill": lambda fleet: fleet.forked(*PLAN),
        "stop": lambda fleet: fleet.forked(*PLAN),
        "master": lambda fleet: fleet.forked(*LONG),
        "hosted": lambda fleet: fleet.hosted(*PLAN, file=ladder),
        "processes": lambda fleet: fleet.processes(*PLAN, file=ladder),
    }

    class Fleets(dict):
        def __missing__(self, name):
            self[name] = starts[name](make_fleet(make_sim(*LAW)))
            return self[name]

    started = Fleets()
    for name in ("end", "hosted", "processes"):  # nothing is done to these while they run
        started[name]
    return started


def test_a_run_on_workers_ends_like_any_other(fleets):
    """Both workers measure, every slot and round is measured once, and no prompt is sent twice."""
    fleet = fleets["end"]
    fleet.check(0)
    run = fleet.run
    standing = [row for row in run.records if row["visit"] not in fleet.repeated]
    for cell in ("32x1", "48x1", "32x4", "48x4"):
        rows = measured(row for row in standing if row["cell"] == cell)
        streams = int(cell[-1])
        assert Counter(row["round"] for row in rows) == {1: streams, 2: streams}
    assert len({row["worker"] for row in run.records}) == 2
    assert len({row["prompt_sha256"] for row in run.records}) == len(run.records)
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert len(run.manifest["visits"]) == 6 + len(fleet.repeated)
    assert run.manifest["workers"]["planned"] == 2
    assert set(run.manifest["workers"]["names"]) == {row["worker"] for row in run.records}
    ids = [row["request_id"] for row in run.records]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ["end", "hosted", "processes"])
def test_all_streams_of_all_workers_are_up_while_anything_is_measured(fleets, name):
    """The clock is one on this machine: at every start and end of a measured request all streams are up, or between two
    of their requests, which is shorter by far than a request."""
    fleet = fleets[name]
    fleet.end()
    visits = defaultdict(list)
    for row in fleet.run.records:
        visits[row["visit"], row["concurrency"]].append((row["start_ms"], row["start_ms"] + row["done_ms"], row))
    for (_, streams), spans in visits.items():
        for start, end, row in spans:
            if row["phase"] == "measure":
                for moment in (start, end):
                    up = [other for other in spans if other[0] <= moment <= other[1] + BETWEEN_MS]
                    assert len({id(other) for other in up}) >= streams
        assert _peak([row for _, _, row in spans]) == streams


def _peak(rows):
    edges = sorted([(r["start_ms"], 1) for r in rows] + [(r["start_ms"] + r["done_ms"], -1) for r in rows])
    count = peak = 0
    for _, step in edges:
        count += step
        peak = max(peak, count)
    return peak


def test_telemetry_of_all_processes_says_who_is_there(fleets):
    """Each worker's samples say its own streams; the master's say all users and all workers, second by second."""
    fleet = fleets["end"]
    fleet.run.end()
    rows = fleet.run.telemetry
    workers = {row["worker"] for row in fleet.run.records}
    assert {row["worker"] for row in rows} > workers
    inside = [row for row in rows if row["cell"] in ("32x4", "48x4")]
    mine = [row for row in inside if "workers_live" in row]
    assert {(row["workers_planned"], row["workers_live"]) for row in mine} == {(2, 2)}
    assert {row["users_planned"] for row in mine} == {4}
    assert {row["users_planned"] for row in inside if row["worker"] in workers} == {2}


def test_a_signal_to_the_master_drains_the_workers(fleets, until):
    """SIGTERM in mid-cell: what is in flight on every worker ends and is kept; exit code 7."""
    fleet = fleets["term"]
    fleet.worker(until)
    fleet.run.signal(signal.SIGTERM)
    fleet.check(7)
    assert {row["outcome"] for row in fleet.run.records} == {"ok"}
    assert [visit["state"] for visit in fleet.run.manifest["visits"]] == ["stopped"]
    assert fleet.run.manifest["stopped_by"] == "SIGTERM"


def test_a_killed_worker_makes_the_cell_invalid_once(fleets, until):
    """kill -9 of a worker in mid-cell: the visit is stopped and named, repeated with a new worker, the run is whole.
    What the dead worker had in flight is known too, from its spool."""
    fleet = fleets["kill"]
    os.kill(fleet.worker(until), signal.SIGKILL)
    code = fleet.end()
    run = fleet.run
    assert code == run.summary["exit_code"], run.err
    assert code == 0 or run.saturated, run.err
    first, *_ = run.manifest["visits"]
    assert first["state"] == "stopped"
    assert "a worker was lost" in first["validity"]["reasons"][0]
    assert first["repeated_as"] == 1
    assert [visit["state"] for visit in run.manifest["visits"]][1] == "done"
    run_id = run.manifest["run_id"]
    assert run.sent == fleet.server.received(run_id)
    gone = {row["request_id"] for row in fleet.server.requests(run_id) if row["end"] == "client_gone"}
    cut_off = [row for row in run.records if row["outcome"] == "aborted"]
    assert {row["request_id"] for row in cut_off} == gone
    assert {row["error_message"] for row in cut_off} == {"its worker was killed"}
    assert "was lost" in run.err
    assert run.summary["cells"][0]["n"] == 4 * ROUNDS
    fleet.check_tidy()


def test_a_stalled_worker_makes_the_cell_invalid_once(fleets, until):
    """A worker that stands still for 8 s is lost, comes back with all its records, and the visit is repeated."""
    fleet = fleets["stop"]
    worker = fleet.worker(until)
    os.kill(worker, signal.SIGSTOP)
    fleet.run.said("was lost")
    time.sleep(3)
    os.kill(worker, signal.SIGCONT)
    fleet.check(0)
    first, second, *_ = fleet.run.manifest["visits"]
    assert (first["state"], first["repeated_as"], second["repeats"]) == ("stopped", 1, 0)
    assert "said nothing" in first["validity"]["reasons"][0]
    assert "is back" in fleet.run.err
    assert len({row["worker"] for row in fleet.run.records}) == 2


def test_a_killed_master_takes_its_workers_along(fleets, start, until):
    """kill -9 of the master: workers end what is in flight and leave; a merge of their spools makes the records whole,
    and the run is what it is, incomplete."""
    fleet = fleets["master"]
    fleet.worker(until)
    fleet.run.process.kill()
    fleet.run.process.wait()
    until(lambda: not fleet.alive(), "the end of all workers")
    run = fleet.run
    run_id = run.manifest["run_id"]
    assert fleet.server.received(run_id) - run.sent, "the master was too quick"
    merge = start("-m", "loadkit.cli.main", "merge", run.folder)
    assert merge.end() == 3, merge.err
    assert "merged 2 spools" in merge.err
    assert run.sent == fleet.server.received(run_id)
    assert {row["outcome"] for row in run.records} == {"ok"}
    again = start("-m", "loadkit.cli.main", "merge", run.folder)
    assert again.end() == 3
    assert "0 requests and 0 samples added" in again.err


def test_the_same_locustfile_runs_with_master_and_workers(fleets):
    """locust --master and --worker: as with `loadkit run --workers`, and Locust's own table has every request."""
    fleet = fleets["hosted"]
    fleet.check(0)
    assert [worker.end() for worker in fleet.workers] == [0, 0]
    assert len({row["worker"] for row in fleet.run.records}) == 2
    (line,) = [line for line in fleet.run.err.splitlines() if line.split()[:2] == ["LLM", "32x4"] and "(" in line]
    assert int(line.split()[2]) == len(fleet.run.records)


def test_locusts_processes_are_workers_too(fleets):
    """locust --processes 2: the children are its workers, no listener is shared, nobody is left."""
    fleet = fleets["processes"]
    fleet.check(0)
    assert len({row["worker"] for row in fleet.run.records}) == 2

"""A master and two workers as real processes: whatever dies, nothing is lost and nothing is believed that is not so."""

import math
import os
import signal
from collections import Counter, defaultdict
from functools import partial

import pytest

# Many processes at once: beside several other tests a worker would come to its turn too late.
pytestmark = pytest.mark.crowd

ROUNDS = 4
PLAN = ("--tiers", "32", "--concurrency", "4", "--rounds", str(ROUNDS), "--max-tokens", "4", "--no-check")
LONG = ("--tiers", "32", "--concurrency", "4", "--rounds", "500", "--max-tokens", "4", "--no-check")
LAW = ("--ttft-ms", "250", "--itl-ms", "10")
BETWEEN_MS = 200  # requests take 280
COUNTS = {"one": 1, "two": 2, "four": 4}


def measured(rows):
    return [row for row in rows if row["phase"] == "measure"]


@pytest.fixture(scope="module")
def fleets(side_by_side, make_sim, make_fleet, loadkit, locustfiles, start, until):
    """fleets(name): the fleet of a scenario, at its end. "alone" is one process that does what "one", "two" and "four"
    workers do, with the same seed."""
    seeded = ("--tiers", "32,48", "--concurrency", "1,4", "--rounds", "2", "--max-tokens", "4", "--seed", "7")

    def end(fleet):
        fleet.end()
        return fleet

    def fresh():
        return make_fleet(make_sim(*LAW))

    def workers(count):
        return end(fresh().forked(*seeded, "--no-check", workers=count))

    def alone():
        fleet = fresh()
        fleet.run = loadkit(fleet.server.url, *seeded, "--no-check")
        return end(fleet)

    def processes():
        return end(fresh().processes(*PLAN, file=locustfiles / "ladder.py"))

    def kill():
        fleet = fresh().forked(*PLAN)
        os.kill(fleet.worker(), signal.SIGKILL)
        return end(fleet)

    def master():
        fleet = fresh().forked(*LONG)
        fleet.streams()
        fleet.run.signal(signal.SIGKILL)
        fleet.end()
        until(lambda: not fleet.alive(), "the end of all workers")
        fleet.before = fleet.run.sent
        fleet.merges = []
        for _ in range(2):
            fleet.merges.append(start("-m", "loadkit.cli.main", "merge", fleet.run.folder))
            fleet.merges[-1].end()
        return fleet

    counts = {name: partial(workers, count) for name, count in COUNTS.items()}
    return side_by_side({**counts, "alone": alone, "processes": processes, "kill": kill, "master": master})


def test_a_run_on_workers_ends_like_any_other(fleets):
    """Both workers measure, every slot and round is measured once, and no prompt is sent twice."""
    fleet = fleets("two")
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


@pytest.mark.parametrize("name", COUNTS)
def test_workers_measure_what_one_process_measures(fleets, name):
    """Same seed, same schedule: every cell has as many requests in every round as without workers, with the same
    prompts, however many workers share them."""
    fleet, alone = fleets(name), fleets("alone")
    fleet.check(0)
    rows = measured(row for row in fleet.run.records if row["visit"] not in fleet.repeated)
    expected = measured(alone.run.records)

    def count(found):
        return Counter((row["cell"], row["round"]) for row in found)

    assert count(rows) == count(expected)
    repeats = {visit["repeated_as"] for visit in fleet.repeated.values()}  # they must not meet their own in a cache
    prompts = [row["prompt_sha256"] for row in measured(fleet.run.records) if row["visit"] not in repeats]
    assert Counter(prompts) == Counter(row["prompt_sha256"] for row in expected)
    assert len({row["worker"] for row in fleet.run.records}) == COUNTS[name]


@pytest.mark.parametrize("name", COUNTS)
def test_the_summary_is_that_of_all_workers_requests_together(fleets, name):
    """Counts and percentiles are exactly those of the union of what the workers measured."""
    fleet = fleets(name)
    workers = defaultdict(list)
    for row in measured(row for row in fleet.run.records if row["visit"] not in fleet.repeated):
        workers[row["worker"]].append(row)
    union = [row for rows in workers.values() for row in rows]
    planned = {"32x1": 2, "48x1": 2, "32x4": 8, "48x4": 8}
    assert {cell["cell"]: cell["n"] for cell in fleet.run.summary["cells"]} == planned
    for cell in fleet.run.summary["cells"]:
        rows = [row for row in union if row["cell"] == cell["cell"]]
        assert (cell["n"], cell["ok"]) == (len(rows), len([row for row in rows if row["outcome"] == "ok"]))
        for number in ("ttft_ms", "tpot_ms", "e2e_ms"):
            # A client that is late reads all tokens at once, and there is no time between them.
            values = sorted(row[number] for row in rows if row[number] is not None)
            for q in (50, 90, 95, 99):
                assert cell[number][f"p{q}"] == values[math.ceil(q / 100 * len(values)) - 1]
            assert (cell[number]["min"], cell[number]["max"]) == (values[0], values[-1])


@pytest.mark.parametrize("name", ["two", "processes"])
def test_all_streams_of_all_workers_are_up_while_anything_is_measured(fleets, name):
    """The clock is one on this machine: at every start and end of a measured request all streams are up, or between two
    of their requests, which is shorter by far than a request."""
    fleet = fleets(name)
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
    fleet = fleets("two")
    fleet.run.end()
    rows = fleet.run.telemetry
    workers = {row["worker"] for row in fleet.run.records}
    assert {row["worker"] for row in rows} > workers
    inside = [row for row in rows if row["cell"] in ("32x4", "48x4")]
    mine = [row for row in inside if "workers_live" in row]
    assert {(row["workers_planned"], row["workers_live"]) for row in mine} == {(2, 2)}
    assert {row["users_planned"] for row in mine} == {4}
    assert {row["users_planned"] for row in inside if row["worker"] in workers} == {2}


def test_a_killed_worker_is_replaced(fleets):
    """kill -9 of a worker in mid-cell: the visit is stopped and named, repeated with a new worker, the run is whole.
    What the dead worker had in flight is known too, from its spool."""
    fleet = fleets("kill")
    code = fleet.end()
    run = fleet.run
    assert code == run.summary["exit_code"], run.err
    assert code == 0 or run.saturated, run.err
    first, *_ = run.manifest["visits"]
    assert first["state"] == "stopped"
    assert "a worker was lost" in first["validity"]["reasons"][0]
    assert first["repeated_as"] == 1
    assert [visit["state"] for visit in run.manifest["visits"]][1] == "done"
    assert "aborted" in {row["outcome"] for row in run.records}
    fleet.check_killed()
    assert "was lost" in run.err
    assert run.summary["cells"][0]["n"] == 4 * ROUNDS
    fleet.check_tidy()


def test_a_killed_master_takes_its_workers_along(fleets):
    """kill -9 of the master: workers end what is in flight and leave; a merge of their spools makes the records whole,
    and the run is what it is, incomplete."""
    fleet = fleets("master")
    run, received = fleet.run, fleet.server.received(fleet.run.manifest["run_id"])
    assert received - fleet.before, "the master was too quick"
    first, second = fleet.merges
    assert (first.end(), second.end()) == (3, 3), first.err
    assert "merged 2 spools" in first.err
    assert "0 requests and 0 samples added" in second.err
    assert run.sent == received
    assert {row["outcome"] for row in run.records} == {"ok"}


def test_locusts_processes_are_workers_too(fleets):
    """locust --processes 2: the children are its workers, no listener is shared, nobody is left."""
    fleet = fleets("processes")
    fleet.check(0)
    assert len({row["worker"] for row in fleet.run.records}) == 2

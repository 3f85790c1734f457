"""What may go wrong in mid-run: the process is killed, the disk is full, the server dies, the loop is blocked."""

import os
import resource
import signal
import subprocess

import pytest

PLAN = ("--tiers", "32", "--concurrency", "2", "--no-check", "--max-tokens", "3")


BUSY = """
import time
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, events, install

@events.ttft.add_listener
def busy(**_):
    end = time.perf_counter() + 0.15
    while time.perf_counter() < end:
        pass

install(finish)
"""
FILE_LIMIT = 40_000


@pytest.fixture(scope="module")
def tiny_disk(tmp_path_factory):
    """A file system of 96 KiB, where this user may mount one; else None."""
    disk = tmp_path_factory.mktemp("disk")
    command = ["mount", "-t", "tmpfs", "-o", "size=96k", "none", str(disk)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    yield disk if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.fixture(scope="module")
def runs(make_sim, sim, loadkit, locust, locustfile, tiny_disk):
    """Every run of this module but those that lose their servers, under way at once."""
    killed = make_sim("--ttft-ms", "100", "--itl-ms", "4")
    narrow = make_sim("--ttft-ms", "1000", "--slots", "1", "--queue", "0")

    def restrict():
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))

    runs = {
        "killed": loadkit(killed.url, *PLAN, "--rounds", "2000"),
        "limited": loadkit(sim.url, *PLAN, "--rounds", "1000", preexec_fn=restrict),
        "narrow": loadkit(narrow.url, *PLAN, "--rounds", "1", "--no-retry"),
        "busy": locust(locustfile(BUSY), sim.url, *PLAN, "--rounds", "4"),
    }
    if tiny_disk is not None:
        runs["full"] = loadkit(sim.url, *PLAN, "--rounds", "1000", "--out", tiny_disk)
        (runs["full"].cwd / "runs").symlink_to(tiny_disk)
    for name, server in {"killed": killed, "narrow": narrow}.items():
        runs[name].server = server
    return runs


@pytest.fixture
def dying(request, make_sim, loadkit, locust, locustfiles):
    """A run of a minute by either command line, begun when it is looked at, and the server that is going to die."""
    server = make_sim("--ttft-ms", "300", "--itl-ms", "4")
    words = ("--tiers", "32,48", *PLAN[2:], "--rounds", "100")
    if request.param == "loadkit":
        run = loadkit(server.url, *words)
    else:
        run = locust(locustfiles / "ladder.py", server.url, *words)
    run.server = server
    return run


@pytest.fixture
def embedded(loadkit, until):
    """A run against a simulator of its own, begun: it takes ten seconds."""
    plan = ("--target", "sim", "--tiers", "32", "--concurrency", "1", "--rounds", "100", "--max-tokens", "3")
    run = loadkit(None, *plan)
    manifest = run.cwd / "runs" / "latest" / "manifest.json"
    until(lambda: manifest.exists() and run.manifest["started_at"], "a run")
    return run


def test_a_killed_run_leaves_every_finished_request(runs, start):
    """After kill -9 the records hold what had ended; `loadkit report` makes a partial report of it, code 3."""
    run = runs["killed"]
    run.server.reached(received=9, in_flight=2)
    run.process.kill()
    run.end()
    served = run.server.requests(run.manifest["run_id"])
    finished = {row["request_id"] for row in served if row["end"] == "complete"}
    kept = {row["request_id"] for row in run.records}
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert len(finished - kept) <= 2  # the server had written the end, the client had not read it yet
    assert len(kept) >= 6
    assert run.manifest["ended_at"] is None
    report = start("-m", "loadkit.cli.main", "report", run.folder)
    report.end()
    assert run.summary["exit_code"] == 3
    assert run.summary["totals"]["requests"] == len(kept)
    assert run.folder.name in report.out


def test_a_full_disk_ends_the_run_and_loses_nothing(runs, sim):
    """One line, code 3. Room kept back takes the requests that were in flight, the manifest and the report."""
    if "full" not in runs:
        pytest.xfail("only a user who may mount can fill a disk; the limit of a file's size below needs no rights")
    run = runs["full"]
    assert run.end() == (6 if run.saturated else 3), run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert "No space left on device" in line
    assert "Traceback" not in run.err
    assert run.sent == sim.received(run.manifest["run_id"])
    assert run.manifest["fault"] in line
    assert run.manifest["ended_at"]
    assert run.summary["totals"]["requests"] == len(run.records)
    assert not (run.folder / ".reserve").exists()


def test_a_file_that_may_not_grow_ends_the_run(runs, sim):
    """Nothing more can be kept: one line says how many were not, what was written stands, code 3."""
    run = runs["limited"]
    assert run.end() == (6 if run.saturated else 3), run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert "File too large" in line
    assert "Traceback" not in run.err
    assert (run.folder / "records.jsonl").stat().st_size > FILE_LIMIT - 4000
    whole = [row["request_id"] for row in run.records]
    served = sim.received(run.manifest["run_id"])
    lost = len(served) - len(whole)
    assert 1 <= lost <= 3
    assert f"; {lost} finished requests are not in the records" in line
    assert set(whole) <= set(served)


def test_a_report_that_cannot_be_written_is_one_line(sim, loadkit, until):
    """The records are whole all the same; the run is not complete."""
    run = loadkit(sim.url, *PLAN, "--rounds", "40")  # long enough to come in between
    until(lambda: (run.cwd / "runs" / "latest").exists(), "a folder")
    (run.folder / "summary.json.part").mkdir()  # stands where the summary is to be written
    assert run.end() == 3, run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert "summary.json" in line
    assert "Traceback" not in run.err
    assert run.manifest["ended_at"]
    assert sum(row["phase"] == "measure" for row in run.records) == 80


@pytest.mark.parametrize("dying", ["loadkit", "locust"], indirect=True)
def test_a_server_that_dies_is_an_outcome(dying):
    """Requests in flight break, later ones find nobody; every one has its name, and the run ends by itself."""
    run = dying
    run.server.reached(received=4, in_flight=2)
    run.server.kill()
    assert run.end() == run.summary["exit_code"]
    outcomes = [row["outcome"] for row in run.records]
    assert "Traceback" not in run.err
    assert set(outcomes[: outcomes.index("ok") + 1]) == {"ok"}
    assert set(outcomes) - {"ok", "reset", "stream_truncated"} == {"connect_error"}
    # Two were in flight, and the system may take two more connections while the process comes to its end.
    assert 1 <= sum(outcome in ("reset", "stream_truncated") for outcome in outcomes) <= 4
    assert {row["outcome"] for row in run.records if row["tier_tokens"] == 48} == {"connect_error"}
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}


def test_a_blocked_loop_is_seen_and_makes_the_cell_invalid(runs):
    """A listener that computes stamps everybody's reads late: the lag is in the telemetry, the exit code is 6."""
    run = runs["busy"]
    assert run.end() == 6, run.err
    (cell,) = run.summary["cells"]
    assert cell["validity"]["status"] == "invalid"
    assert any("event loop lag" in reason for reason in cell["validity"]["reasons"])
    assert max(row["hub_lag_max_ms"] or 0 for row in run.telemetry if row["cell"] == "32x2") > 140
    assert max(row["hub_lag_max_ms"] for row in run.records) > 140
    assert {row["outcome"] for row in run.records} == {"ok"}


def test_a_killed_run_leaves_no_target_behind(embedded, until):
    """A target of our own computes in a process beside the one that measures, and ends with it, however that ends."""
    run = embedded
    pid = run.manifest["target"]["pid"]
    os.kill(pid, 0)
    assert pid != run.process.pid
    run.process.kill()
    run.end()

    def gone():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    until(gone, "the end of the target")


def test_a_target_of_our_own_that_dies_makes_the_run_incomplete(embedded):
    """It is said, in the manifest too."""
    run = embedded
    os.kill(run.manifest["target"]["pid"], signal.SIGKILL)
    assert run.end() in (3, 5, 6), run.err
    assert run.manifest["fault"] == "the sim ended by itself while it was loaded"
    assert "loadkit: the sim ended by itself while it was loaded" in run.lines


def test_a_server_that_refuses_at_once_is_not_flooded(runs):
    """One place at the server: a stream has it for a second, the other fills that time and is refused each time."""
    run = runs["narrow"]
    run.end()
    outcomes = [row["outcome"] for row in run.records]
    assert set(outcomes) == {"ok", "rate_limited"}
    assert len(outcomes) < 60  # without a pause it is thousands
    assert run.sent == run.server.received(run.manifest["run_id"])

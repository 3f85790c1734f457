"""What may go wrong in mid-run: the process is killed, the disk is full, the server dies, the loop is blocked."""

import os
import resource
import signal
import subprocess

import pytest

PLAN = ("--tiers", "32", "--concurrency", "2", "--no-check", "--max-tokens", "3")


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 96 KiB, where this user may mount one; else None."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "none", str(disk)], capture_output=True, check=False
    )
    if mount.returncode:
        yield None
        return
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_killed_run_leaves_every_finished_request(make_sim, loadkit, start):
    """After kill -9 the records hold what had ended; `loadkit report` makes a partial report of it, code 3."""
    server = make_sim("--ttft-ms", "100", "--itl-ms", "4")
    run = loadkit(server.url, *PLAN, "--rounds", "100")
    server.reached(received=9, in_flight=2)
    run.process.kill()
    run.end()
    finished = {row["request_id"] for row in server.requests(run.manifest["run_id"]) if row["end"] == "complete"}
    kept = {row["request_id"] for row in run.records}
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert len(finished - kept) <= 2  # the server had written the end, the client may not have read it yet
    assert len(kept) >= 6
    assert run.manifest["ended_at"] is None
    report = start("-m", "loadkit.cli.main", "report", run.folder)
    report.end()
    assert run.summary["exit_code"] == 3
    assert run.summary["totals"]["requests"] == len(kept)
    assert "32" in report.out


def test_a_killed_run_leaves_no_target_behind(loadkit, until):
    """A target of our own computes in a process beside the one that measures, and ends with it, however that ends."""
    run = loadkit(
        None, "--target", "sim", "--tiers", "32", "--concurrency", "1", "--rounds", "1000", "--max-tokens", "3"
    )
    until(lambda: (run.cwd / "runs" / "latest" / "manifest.json").exists() and run.manifest["started_at"], "a run")
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


def test_a_full_disk_ends_the_run_and_loses_nothing(sim, loadkit, tiny_disk):
    """One line, code 3. Room kept back takes the requests that were in flight, the manifest and the report."""
    if tiny_disk is None:
        pytest.xfail("only a user who may mount can fill a disk; the limit of a file's size below needs no rights")
    run = loadkit(sim.url, *PLAN, "--rounds", "1000", "--out", tiny_disk)
    code = run.end()
    (run.cwd / "runs").symlink_to(tiny_disk)
    assert code == (6 if run.saturated else 3), run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert "No space left on device" in line
    assert "Traceback" not in run.err
    assert run.sent == sim.received(run.manifest["run_id"])
    assert run.manifest["fault"] in line
    assert run.manifest["ended_at"]
    assert run.summary["totals"]["requests"] == len(run.records)
    assert not (run.folder / ".reserve").exists()


def test_a_file_that_may_not_grow_ends_the_run(sim, loadkit):
    """Nothing more can be kept: one line says how many were not, what was written stands, code 3."""
    limit = 40_000

    def restrict():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    run = loadkit(sim.url, *PLAN, "--rounds", "1000", preexec_fn=restrict)
    assert run.end() == (6 if run.saturated else 3), run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit:")]
    assert "File too large" in line
    assert "Traceback" not in run.err
    assert (run.folder / "records.jsonl").stat().st_size > limit - 4000
    whole = [row["request_id"] for row in run.records]
    served = sim.received(run.manifest["run_id"])
    lost = len(served) - len(whole)
    assert 1 <= lost <= 3
    assert f"; {lost} finished requests are not in the records" in line
    assert set(whole) <= set(served)


@pytest.mark.parametrize("host", ["loadkit", "locust"])
def test_a_server_that_dies_is_an_outcome(make_sim, loadkit, locust, locustfiles, host):
    """Requests in flight break, later ones find nobody; every one has its name, and the run ends by itself."""
    server = make_sim("--ttft-ms", "300", "--itl-ms", "4")
    plan = ("--tiers", "32,48", *PLAN[2:], "--rounds", "3")
    run = loadkit(server.url, *plan) if host == "loadkit" else locust(locustfiles / "ladder.py", server.url, *plan)
    server.reached(received=4, in_flight=2)
    server.kill()
    code = run.end()
    outcomes = [row["outcome"] for row in run.records]
    assert code == run.summary["exit_code"]
    assert "Traceback" not in run.err
    assert set(outcomes[: outcomes.index("ok") + 1]) == {"ok"}
    assert set(outcomes) - {"ok", "reset", "stream_truncated"} == {"connect_error"}
    assert 1 <= sum(outcome in ("reset", "stream_truncated") for outcome in outcomes) <= 2
    assert {row["outcome"] for row in run.records if row["tier_tokens"] == 48} == {"connect_error"}
    assert {visit["state"] for visit in run.manifest["visits"]} == {"done"}
    assert len(outcomes) < 60  # a drain against nobody is not a flood


def test_a_target_of_our_own_that_dies_makes_the_run_incomplete(loadkit, until):
    """It is said, in the manifest too."""
    run = loadkit(None, "--target", "sim", "--tiers", "32", "--concurrency", "1", "--rounds", "3", "--max-tokens", "3")
    until(lambda: (run.cwd / "runs" / "latest" / "manifest.json").exists() and run.manifest["started_at"], "a run")
    os.kill(run.manifest["target"]["pid"], signal.SIGKILL)
    assert run.end() in (3, 5, 6), run.err
    assert run.manifest["fault"] == "the sim ended by itself while it was loaded"
    assert "loadkit: the sim ended by itself while it was loaded" in run.lines


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


def test_a_blocked_loop_is_seen_and_makes_the_cell_invalid(sim, locust, locustfile):
    """A listener that computes stamps everybody's reads late: the lag is in the telemetry, the exit code is 6."""
    run = locust(locustfile(BUSY), sim.url, *PLAN, "--rounds", "4")
    assert run.end() == 6, run.err
    (cell,) = run.summary["cells"]
    assert cell["validity"]["status"] == "invalid"
    assert any("event loop lag" in reason for reason in cell["validity"]["reasons"])
    assert max(row["hub_lag_max_ms"] or 0 for row in run.telemetry if row["cell"] == "32x2") > 140
    assert max(row["hub_lag_max_ms"] for row in run.records) > 140
    assert {row["outcome"] for row in run.records} == {"ok"}

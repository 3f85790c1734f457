"""A master under Locust's command line that cannot begin: one line and the right exit code."""

import socket

import pytest


@pytest.fixture(scope="module")
def master(start, locustfiles, sim):
    """master(*options): a headless master of two workers."""

    def begin(*options):
        words = ("-m", "locust", "-f", locustfiles / "ladder.py", "--headless", "--master", "--expect-workers", "2")
        return start(*words, "--url", sim.url, "--no-metrics", *options)

    return begin


def test_a_taken_port_is_one_line(master):
    """A second master on one port is a configuration error that names the port, and no traceback."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        run = master("--master-bind-port", port)
        assert run.end() == 2
    assert "Traceback" not in run.err
    (line,) = [line for line in run.lines if line.startswith("loadkit: ")]
    assert f"port {port}" in line
    assert "--master-bind-port" in line


def test_workers_that_do_not_come_make_an_incomplete_run(master):
    """After --expect-workers-max-wait the run ends with exit code 3, a line that says who is missing, and a folder."""
    run = master("--master-bind-port", "0", "--expect-workers-max-wait", "1")
    assert run.end() == 3
    assert "Traceback" not in run.err
    assert [line for line in run.lines if line.startswith("loadkit: ")] == [
        "loadkit: 0 of 2 workers came in 1 s (--expect-workers-max-wait): start the missing ones, or plan fewer"
    ]
    assert run.summary["exit_code"] == 3
    assert run.records == []

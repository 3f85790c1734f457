"""With Locust's web page instead of --headless: the ladder is started there, and a signal still ends it whole."""

import signal
import socket
import urllib.request

import pytest

CASES = [("in mid-run", signal.SIGTERM), ("in mid-run", signal.SIGINT), ("after the run", signal.SIGINT)]


@pytest.fixture(scope="module")
def runs(make_sim, locust, locustfiles):
    """A run with a web page per case, under way at once."""
    servers = {case: make_sim("--ttft-ms", "200", "--itl-ms", "4") for case in CASES}

    def begin(case):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        rounds = "500" if case[0] == "in mid-run" else "2"
        plan = ("--tiers", "32", "--concurrency", "2", "--rounds", rounds, "--max-tokens", "2", "--no-check")
        web = ("--web-host", "127.0.0.1", "--web-port", port, "--autostart")
        run = locust(locustfiles / "ladder.py", servers[case].url, *plan, *web, headless=False)
        run.server, run.page = servers[case], f"http://127.0.0.1:{port}/stats/requests"
        return run

    return {case: begin(case) for case in CASES}


@pytest.mark.parametrize(("when", "number"), CASES)
def test_a_signal_ends_a_run_with_a_web_page(runs, when, number):
    """In mid-run it drains; after the last visit the run is complete, whatever ends the process then."""
    run = runs[when, number]
    if when == "in mid-run":
        run.server.reached(received=4, in_flight=2)
    else:
        run.said("[1/1] cell 32x2")
    with urllib.request.urlopen(run.page, timeout=20) as page:
        assert page.status == 200
    run.signal(number)
    code = run.end()
    assert "Traceback" not in run.err
    assert run.sent == run.server.received(run.manifest["run_id"])
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert run.manifest["ended_at"]
    (visit,) = run.manifest["visits"]
    assert code == run.summary["exit_code"]
    if when == "in mid-run":
        assert (code, visit["state"], run.manifest["stopped_by"]) == (7, "stopped", number.name)
    else:
        assert (code, visit["state"], run.manifest["stopped_by"]) == (6 if run.saturated else 0, "done", None)

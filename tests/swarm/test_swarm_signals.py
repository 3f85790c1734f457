"""A signal in mid-run: the first drains, the second aborts; the folder is complete and no request is lost."""

import json
import signal
from collections import Counter

import pytest

# Two users without a shape; what Locust's own event is told goes to standard output.
OWN = """
import json
from locust import events, task
from loadkit.report.finish import finish
from loadkit.swarm import PromptUser, install

class Reader(PromptUser):
    @task
    def read(self):
        self.send("32")

@events.request.add_listener
def told(name, exception, **kwargs):
    print("REQUEST", json.dumps([name, exception and str(exception)]))

install(finish)
"""
SPY = """
@events.request.add_listener
def told(name, exception, **kwargs):
    print("REQUEST", json.dumps([name, exception and str(exception)]))
"""
LADDER = "import json\nfrom locust import events\nfrom loadkit.report.finish import finish\n"
LADDER += "from loadkit.swarm import LadderShape, LadderUser, install\n" + SPY + "\ninstall(finish)\n"
HOSTS = ("loadkit", "ladder", "own")
PLAN = ("--tiers", "32", "--concurrency", "2", "--rounds", "50", "--no-check")
SHORT = ("--max-tokens", "4", *PLAN)  # each request takes half a second
ENDLESS = ("--max-tokens", "100000", "--yes", *PLAN)


@pytest.fixture(scope="module")
def begin(make_sim, loadkit, locust, locustfile, locustfiles):
    """begin(host, options): a run against a server of its own."""

    def start(host, options, ttft_ms=400):
        server = make_sim("--ttft-ms", str(ttft_ms), "--itl-ms", "10")
        if host == "loadkit":
            run = loadkit(server.url, *options)
        elif host == "ladder":
            run = locust(locustfile(LADDER), server.url, *options)
        else:
            run = locust(locustfile(OWN), server.url, *options, "-u", "2", "-r", "10", "-t", "1m")
        run.server = server
        return run

    return start


@pytest.fixture(scope="module")
def drained(begin):
    """(host, signal) -> the run that got it while its third and fourth request were in flight, ended."""
    runs = {(host, number): begin(host, SHORT) for host in HOSTS for number in (signal.SIGTERM, signal.SIGINT)}
    for (_, number), run in runs.items():
        run.server.reached(received=4, in_flight=2)
        run.in_flight = run.server.stats()["in_flight"]
        run.signal(number)
    for run in runs.values():
        run.code = run.end()
    return runs


@pytest.fixture(scope="module")
def aborted(begin, until):
    """Host -> the run that got a second signal while it drained, ended."""
    runs = {host: begin(host, ENDLESS, ttft_ms=0) for host in HOSTS}
    for run in runs.values():
        run.server.reached(in_flight=2)
        until(lambda server=run.server: server.stats()["late_ms"]["p50"] is not None, "a token")
        run.signal(signal.SIGTERM)
    for run in runs.values():
        run.said("draining")
        run.signal(signal.SIGTERM)
    for run in runs.values():
        run.code = run.end()
    return runs


@pytest.fixture(params=HOSTS)
def host(request):
    """`loadkit run`, plain Locust with our shape, and plain Locust with users of its own and no shape."""
    return request.param


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_signal_drains(drained, host, number):
    """What was in flight is finished and kept, nothing is started after it, the folder is whole, exit code 7."""
    run = drained[host, number]
    assert run.code == run.summary["exit_code"] == 7, run.err
    assert run.in_flight == 2
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert run.sent == run.server.received(run.manifest["run_id"])
    assert len(run.records) <= 6  # two may have been replaced while the signal was on its way
    assert run.manifest["stopped_by"] == number.name
    assert run.manifest["ended_at"]
    assert (run.folder / "report.md").read_text()
    assert "Traceback" not in run.err
    assert len([line for line in run.lines if "draining" in line]) == 1
    assert [visit["state"] for visit in run.manifest["visits"]] == ([] if host == "own" else ["stopped"])


def test_a_second_signal_aborts(aborted, host):
    """Streams in flight are cut and become records `aborted`, with what was measured of them; the folder is whole."""
    run = aborted[host]
    assert run.code == run.summary["exit_code"] == 7, run.err
    assert [row["outcome"] for row in run.records] == ["aborted"] * 2
    assert any(row["ttft_ms"] is not None and row["token_events"] >= 1 for row in run.records)
    assert run.sent == run.server.received(run.manifest["run_id"])
    assert {row["end"] for row in run.server.requests(run.manifest["run_id"])} == {"client_gone"}
    assert run.manifest["ended_at"]
    assert (run.folder / "report.md").read_text()
    assert "Traceback" not in run.err
    assert [visit["state"] for visit in run.manifest["visits"]] == ([] if host == "own" else ["stopped"])


@pytest.mark.parametrize("host", ["ladder", "own"])
def test_an_aborted_request_is_told_to_locust_once(aborted, host):
    """events.request fires for it as for any other, with its outcome."""
    told = [json.loads(line.removeprefix("REQUEST ")) for line in aborted[host].out.splitlines() if "REQUEST" in line]
    assert told == [["32x2", "aborted"]] * 2


def test_locusts_own_stop_timeout_cuts_streams_into_records(begin):
    """-s and -t of Locust's: users that do not finish in time are killed, and their requests are not lost."""
    run = begin("own", (*ENDLESS, "--stop-timeout", "1"))
    run.server.reached(in_flight=2)
    run.signal(signal.SIGTERM)
    assert run.end() == 7, run.err
    assert Counter(row["outcome"] for row in run.records) == {"aborted": 2}
    assert run.sent == run.server.received(run.manifest["run_id"])


def test_a_signal_ends_the_wait_for_a_retry(make_sim, loadkit):
    """A request that waits half a minute to be sent again is not sent again: the drain does not wait for it."""
    server = make_sim("--error-rate", "1", "--error-status", "429", "--retry-after", "30")
    run = loadkit(server.url, "--tiers", "32", "--concurrency", "2", "--no-check")
    server.reached(received=2)
    run.signal(signal.SIGTERM)
    assert run.end() == 7, run.err
    assert [row["outcome"] for row in run.records] == ["aborted"] * 2
    assert [[attempt["outcome"] for attempt in row["attempts"]] for row in run.records] == [["rate_limited"]] * 2
    assert run.sent == server.received(run.manifest["run_id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
@pytest.mark.parametrize("host", ["loadkit", "ladder"])
def test_a_signal_before_the_first_request_is_one_line(make_sim, loadkit, locust, locustfiles, host, number):
    """While the target is still being checked there is nothing to drain: exit code 7, no traceback, no folder."""
    server = make_sim("--ttft-ms", "60000")
    options = ("--tiers", "32", "--concurrency", "1")
    run = (
        loadkit(server.url, *options) if host == "loadkit" else locust(locustfiles / "ladder.py", server.url, *options)
    )
    server.reached(in_flight=1)  # the ping
    run.signal(number)
    assert run.end() == 7
    assert [line for line in run.lines if line.startswith("loadkit")] == ["loadkit: stopped"]
    assert "Traceback" not in run.err
    assert not (run.cwd / "runs").exists()

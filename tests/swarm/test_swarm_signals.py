"""A signal in mid-run: the first drains, the second aborts; the folder is complete and no request is lost."""

import json
import signal

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
PLAN = ("--tiers", "32", "--concurrency", "2", "--rounds", "500", "--no-check")
SHORT = ("--max-tokens", "4", *PLAN)  # each request takes half a second
CHECKED = ("--tiers", "32", "--concurrency", "1")
BOTH = (signal.SIGTERM, signal.SIGINT)
ENDLESS = ("--max-tokens", "100000", "--yes", *PLAN)


@pytest.fixture(scope="module")
def begin(loadkit, locust, locustfile):
    """begin(server, host, options): a run by this command line, which keeps its server."""

    def start(server, host, options):
        if host == "loadkit":
            run = loadkit(server.url, *options)
        elif host == "ladder":
            run = locust(locustfile(LADDER), server.url, *options)
        else:
            run = locust(locustfile(OWN), server.url, *options, "-u", "2", "-r", "10", "-t", "10m")
        run.server = server
        return run

    return start


@pytest.fixture(scope="module")
def runs(make_sim, begin):
    """The runs that take long enough to be looked at later, under way at once, each against a server of its own."""
    plans = {
        **{("drain", host, number): (host, SHORT, ("--ttft-ms", "400")) for host in HOSTS for number in BOTH},
        **{("abort", host): (host, ENDLESS, ("--ttft-ms", "0")) for host in HOSTS},
        "stop timeout": ("own", (*ENDLESS, "--stop-timeout", "1"), ("--ttft-ms", "0")),
    }
    servers = {name: make_sim("--itl-ms", "10", *law) for name, (_, _, law) in plans.items()}
    return {name: begin(servers[name], host, options) for name, (host, options, _) in plans.items()}


@pytest.fixture(params=HOSTS)
def host(request):
    """`loadkit run`, plain Locust with our shape, and plain Locust with users of its own and no shape."""
    return request.param


@pytest.fixture(scope="module")
def aborted(runs, until):
    """Host -> the run that got a second signal while it drained, ended."""
    chosen = {host: runs["abort", host] for host in HOSTS}
    for run in chosen.values():
        run.server.reached(in_flight=2)
        until(lambda server=run.server: server.stats()["late_ms"]["p50"] is not None, "a token")
        run.signal(signal.SIGTERM)
    for run in chosen.values():
        run.said("draining")
        run.signal(signal.SIGTERM)
        run.code = run.end()
    return chosen


@pytest.mark.parametrize("number", BOTH, ids=["term", "int"])
def test_a_signal_drains(runs, host, number):
    """What was in flight is finished and kept, nothing is started after it, the folder is whole, exit code 7."""
    run = runs["drain", host, number]
    before = run.server.reached(received=4, in_flight=2)["received"]
    run.signal(number)
    assert run.end() == run.summary["exit_code"] == 7, run.err
    assert {row["outcome"] for row in run.records} == {"ok"}
    assert run.sent == run.server.received(run.manifest["run_id"])
    assert len(run.records) <= before + 4  # the signal takes its time; the plan has a thousand
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


def test_locusts_own_stop_timeout_cuts_streams_into_records(runs):
    """-s of Locust's: users that do not finish in time are killed, and their requests are not lost."""
    run = runs["stop timeout"]
    run.server.reached(in_flight=2)
    run.signal(signal.SIGTERM)
    assert run.end() == 7, run.err
    assert [row["outcome"] for row in run.records] == ["aborted"] * 2
    assert run.sent == run.server.received(run.manifest["run_id"])
    told = [line for line in run.out.splitlines() if line.startswith("REQUEST")]
    assert told == ['REQUEST ["32x2", "aborted"]'] * 2


def test_a_signal_ends_the_wait_for_a_retry(make_sim, loadkit):
    """A request that waits a minute to be sent again is not sent again: the drain does not wait for it."""
    # Begun here: while the tests above go on the minute would pass.
    server = make_sim("--error-rate", "1", "--error-status", "429", "--retry-after", "60")
    run = loadkit(server.url, *SHORT)
    server.reached(received=2)
    run.signal(signal.SIGTERM)
    assert run.end() == 7, run.err
    assert [row["outcome"] for row in run.records] == ["aborted"] * 2
    assert [[attempt["outcome"] for attempt in row["attempts"]] for row in run.records] == [["rate_limited"]] * 2
    assert run.sent == server.received(run.manifest["run_id"])


@pytest.mark.parametrize(("host", "number"), [("loadkit", signal.SIGTERM), ("ladder", signal.SIGINT)])
def test_a_signal_before_the_first_request_is_one_line(make_sim, begin, host, number):
    """While the target is still being checked there is nothing to drain: exit code 7, no traceback, no folder."""
    run = begin(make_sim("--ttft-ms", "60000"), host, CHECKED)
    run.server.reached(in_flight=1)  # the ping
    run.signal(number)
    assert run.end() == 7
    assert [line for line in run.lines if line.startswith("loadkit")] == ["loadkit: stopped"]
    assert "Traceback" not in run.err
    assert not (run.cwd / "runs").exists()


LATE = """
import atexit, os, signal, sys
from loadkit.cli.main import main

atexit.register(os.kill, os.getpid(), signal.SIGTERM)
sys.exit(main(["run", *sys.argv[1:]]))
"""


def test_a_signal_at_the_very_end_does_not_change_the_exit_code(sim, start):
    """The report is written and the code is settled: what comes while the process ends is too late."""
    run = start("-c", LATE, sim.url, *CHECKED, "--rounds", "1", "--max-tokens", "2")
    assert run.end() == run.summary["exit_code"] == (6 if run.saturated else 0)

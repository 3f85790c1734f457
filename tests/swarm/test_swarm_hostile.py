"""Listeners that end more than themselves, a terminal that goes away, a folder that somebody removes."""

import json
import shutil
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

PLAN = ("--tiers", "32", "--concurrency", "1,2", "--no-check", "--max-tokens", "3")

OWN = """
import sys
from locust.exception import StopUser
from loadkit.report.finish import finish
from loadkit.swarm import LadderShape, LadderUser, events, install
import locust

seen = []

def listener(**_):
    seen.append(1)
    if len(seen) == 3:
        {action}

{hook}.add_listener(listener)
install(finish)
"""


@pytest.fixture(scope="module")
def bad_listeners(locust, locustfile, sim):
    """A run per bad listener, all under way at once, ended; by name."""
    kinds = {
        "stage StopUser": ("raise StopUser", "events.stage"),
        "stage exit": ("sys.exit(9)", "events.stage"),
        "record exit": ("sys.exit(9)", "events.record"),
        "request exit": ("sys.exit(4)", "locust.events.request"),
    }
    runs = {
        name: locust(locustfile(OWN.format(action=action, hook=hook)), sim.url, *PLAN, "--rounds", "30")
        for name, (action, hook) in kinds.items()
    }
    for run in runs.values():
        run.end()
    return runs


@pytest.mark.parametrize("name", ["stage StopUser", "stage exit", "record exit", "request exit"])
def test_a_listener_that_ends_things_ends_the_run_cleanly(bad_listeners, name):
    """The folder is complete, the fault is named, every request is there, and the code is ours."""
    run = bad_listeners[name]
    assert run.manifest["ended_at"]
    assert "raised" in run.manifest["fault"]
    assert run.summary["exit_code"] in (3, 6)
    assert run.process.returncode == run.summary["exit_code"]
    assert "Traceback" not in run.err
    assert len({row["request_id"] for row in run.records}) == len(run.records) > 0


def test_a_terminal_that_goes_away_drains(loadkit, make_sim):
    """SIGHUP is like SIGTERM: what is in flight ends, and the folder is whole."""
    slow = make_sim("--ttft-ms", "100", "--itl-ms", "4")
    run = loadkit(slow.url, *PLAN, "--rounds", "500")
    slow.reached(received=4)
    run.signal(signal.SIGHUP)
    assert run.end() == 7
    assert run.manifest["stopped_by"] == "SIGHUP"
    assert run.sent == slow.received(run.manifest["run_id"])


def test_a_removed_folder_ends_the_run_within_seconds(loadkit, make_sim):
    """What is written to a deleted file is lost, so the run does not go on for hours, and says so."""
    slow = make_sim("--ttft-ms", "100", "--itl-ms", "4")
    run = loadkit(slow.url, *PLAN, "--concurrency", "2", "--rounds", "500")
    slow.reached(received=4)
    shutil.rmtree(run.folder)
    assert run.end() not in (0, 1)
    assert "was deleted or moved while the run went on" in run.err
    assert "Traceback" not in run.err


KEY = 'K%41ey"$(id)z9z8z7z6'


class Echo(BaseHTTPRequestHandler):
    """A server that puts the key it was sent into the name of its only model."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer({"data": [{"id": f"m-{self.headers.get('Authorization', '').removeprefix('Bearer ')}"}]})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]})

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def test_a_key_inside_a_model_name_is_nowhere(loadkit):
    """Whatever the server calls its model, no file and no stream holds the key."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        run = loadkit(url, *PLAN, "--rounds", "1", env={"LOADKIT_API_KEY": KEY})
        run.end()
    finally:
        server.shutdown()
    texts = [path.read_text(errors="replace") for path in run.cwd.rglob("*") if path.is_file()]
    assert "Traceback" not in run.err
    assert not [text for text in texts if KEY in text or json.dumps(KEY)[1:-1] in text]

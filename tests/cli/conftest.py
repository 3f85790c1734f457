"""What the tests of the command line share: the program as a user starts it, and servers for it."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadkit.target import process

HANG_S = 100
VARIABLES = ("LOADKIT_", "OPENAI_", "ANTHROPIC_", "XDG_")


@pytest.fixture
def environ(tmp_path):
    """The environment of a user who has set nothing: no endpoints, no keys, a home of its own, no weights."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    return {**kept, "HOME": str(tmp_path / "home"), "LOADKIT_WEIGHTS": "no-such-file", "COLUMNS": "300"}


@pytest.fixture
def loadkit(tmp_path, environ, finished_warm):
    """Runs `loadkit WORDS` in an empty folder; returns the finished process."""

    def run(*words, **variables):
        return finished_warm(words, cwd=tmp_path, env={**environ, **variables}, timeout=HANG_S)

    return run


@pytest.fixture(scope="session")
def sim():
    """Starts simulators as targets are started; returns the running one. All end with the session."""
    started = []

    def start(*arguments):
        started.append(process.start("loadkit.sim", ["--ttft-ms", "2", "--itl-ms", "1", *arguments]))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def echo():
    """A server that refuses every request and says the key back, in its message, in JSON escapes and in base64."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def refuse(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            given = self.headers.get("authorization", "")
            listing = self.command == "GET"
            body = {"data": [{"id": "m1"}]} if listing else {"error": {"message": f"Bad key in {given!r} ({given})"}}
            raw = json.dumps(body).encode()
            self.send_response(200 if listing else 401)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.send_header("x-echo", given)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = refuse

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()

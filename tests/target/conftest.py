"""What the tests of this room share: a server that answers by a table, and modules to start as targets."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadkit.plan.endpoint import Endpoint
from loadkit.target.check import check
from loadkit.target.control import open_client


class Scripted:
    """A server whose routes are "METHOD /path": an answer, or a function of the parsed body that gives one.

    A route that is not there is a 404. `asked` holds (route, parsed body, headers) of every request.
    """

    def __init__(self):
        self.routes = {}
        self.asked = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                route = f"{self.command} {self.path}"
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                body = json.loads(raw) if raw else None
                scripted.asked.append((route, body, dict(self.headers)))
                found = scripted.routes.get(route) or scripted.routes.get("*") or scripted.refusal(404, "no such path")
                status, kind, data = found(body) if callable(found) else found
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = answer

            def log_message(self, *args):
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """A client that left is no fault of the server's."""

        self.server = Quiet(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @staticmethod
    def document(value, status=200):
        """A JSON answer."""
        return status, "application/json", json.dumps(value).encode()

    @staticmethod
    def models(*names, **facts):
        """A list of models, each with the given facts."""
        return Scripted.document({"object": "list", "data": [{"id": name, **facts} for name in names]})

    @staticmethod
    def refusal(status, message, **fields):
        """An error in OpenAI's form."""
        return Scripted.document({"error": {"message": message, **fields}}, status)

    @staticmethod
    def stream(prompt_tokens=None):
        """A stream of two tokens, its usage only where prompt_tokens is given."""
        events = [
            {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in ("yes", " it is")
        ]
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if prompt_tokens is not None:
            events.append({"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 2}})
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return 200, "text/event-stream", "".join([*lines, "data: [DONE]\n\n"]).encode()

    @property
    def order(self):
        """The routes asked, in order."""
        return [route for route, _, _ in self.asked]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server():
    """A scripted server without any route."""
    scripted = Scripted()
    yield scripted
    scripted.close()


@pytest.fixture
def dead_url():
    """The address of a port where nobody listens."""
    scripted = Scripted()
    scripted.close()
    return scripted.url


@pytest.fixture
def checked():
    """Checks an endpoint as a run does; returns what was found. `said` of the function is what was printed."""

    def run(url, key=None, environ=None, ping=True, **fields):
        run.said.clear()
        endpoint = Endpoint(name="lab", base_url=url, **fields)
        with open_client(endpoint, key, environ or {}) as client:
            return check(client, endpoint, key, environ or {}, ping=ping, say=run.said.append)

    run.said = []
    return run


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module that a target can be started from, and makes it importable in child processes."""

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return name

    return write

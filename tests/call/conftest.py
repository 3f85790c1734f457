"""A scripted server that can misbehave in any way, a sink that writes down what it is told, and a test CA.

A written-out case is played in step with the client: the server writes a read when the client has been told the one
before, so that each is one network read, and no result depends on how fast anything is.
"""

import contextlib
import importlib.util
import random
import socket
import ssl
import struct
import subprocess
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import gevent
import pytest

from loadkit.call.ask import Ask
from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget
from loadkit.call.transport import WireRequest
from loadkit.plan.endpoint import Endpoint, Timeouts
from loadkit.prompt.prompt import Prompt
from loadkit.record.names import Outcome

spec = importlib.util.spec_from_file_location("cases", Path(__file__).parents[1] / "protocol" / "cases.py")
stream_cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stream_cases)

GUARD_S = 20.0  # longer than anything here may take: a hang fails, it does not stay


class Peer:
    """The server's end of one connection."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def head(self):
        """Read up to the end of a request head; return it."""
        while b"\r\n\r\n" not in self.buffer:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self.buffer += data
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head

    def request(self):
        """Read one whole request; return (head, body)."""
        head = self.head()
        lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        size = int(lengths[0])
        while len(self.buffer) < size:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError
            self.buffer += data
        body, self.buffer = self.buffer[:size], self.buffer[size:]
        return head, body

    def send(self, *pieces):
        """Send each piece with a write of its own."""
        for piece in pieces:
            self.sock.sendall(piece)

    def gone(self):
        """Wait until the client has closed."""
        with contextlib.suppress(ConnectionError):
            while self.sock.recv(65536):
                pass

    def reset(self):
        """Close with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


class ScriptedServer:
    """Gives each connection the next script, a function of its Peer; further connections are closed at once."""

    def __init__(self, scripts, family=socket.AF_INET, tls=None):
        self.tls = tls
        self.scripts = list(scripts)
        self.connections = 0
        self.failures = []
        self.socks = []
        self.players = []
        self.listener = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
        self.listener.settimeout(GUARD_S)
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def url(self, host="127.0.0.1", path="/v1/chat/completions"):
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    def serve(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            script = self.scripts.pop(0) if self.scripts else lambda peer: None
            self.socks.append(sock)
            self.players.append(threading.Thread(target=self.play, args=(sock, script), daemon=True))
            self.players[-1].start()

    def play(self, sock, script):
        sock.settimeout(GUARD_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            script(Peer(sock))
        except (EOFError, ConnectionError, ssl.SSLError):
            pass  # the client has gone
        except Exception as exc:  # noqa: BLE001 - told to the test by the fixture
            self.failures.append(exc)
        finally:
            sock.close()

    def close(self):
        # shutdown wakes a thread that waits on the socket; close alone would leave it there
        for sock in (self.listener, *self.socks):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in (self.thread, *self.players):
            thread.join(GUARD_S)


class Log:
    """A sink that writes down what it is told. `enough` and `limit` are functions that decide as a call would."""

    settled = False
    alike = (b"", b"")

    def __init__(self, enough=lambda body: False, limit_s=GUARD_S, outcome=Outcome.TTFT_TIMEOUT):
        self.enough = enough
        self.limit_s = limit_s
        self.outcome = outcome
        self.started = time.perf_counter_ns()
        self.events = []
        self.status = None
        self.headers = []
        self.body = b""
        self.reads = []

    def connecting(self, ns):
        self.events.append(("connecting", ns))

    def connected(self, started_ns, ended_ns):
        assert started_ns <= ended_ns
        self.events.append(("connected", ended_ns))

    def sending(self, ns):
        self.events.append(("sending", ns))

    def sent(self, ns):
        self.events.append(("sent", ns))

    def head(self, ns, status, headers):
        self.events.append(("head", ns))
        self.status, self.headers = status, headers

    def read(self, ns, data):
        assert data
        self.events.append(("read", ns))
        self.reads.append((ns, data))
        self.body += data
        return self.enough(self.body)

    def deadline(self, now_ns):
        return self.started + int(self.limit_s * 1e9), self.outcome

    @property
    def names(self):
        """The events in order, runs of reads as one."""
        found = []
        for name, _ in self.events:
            if not (name == "read" and found and found[-1] == "read"):
                found.append(name)
        return found


class Step:
    """Keeps a server in step with its client: how many heads and reads the client has been told."""

    def __init__(self):
        self.told = 0
        self.free = False  # the client wants no more: nothing is waited for
        self.changed = threading.Condition()

    def tell(self, free=False):
        with self.changed:
            self.told += 1
            self.free = self.free or free
            self.changed.notify_all()

    def wait(self, count):
        with self.changed:
            assert self.changed.wait_for(lambda: self.free or self.told >= count, GUARD_S)


class Overheard:
    """A transport that writes down what it tells the sink, and lets the server go on."""

    def __init__(self, transport, step):
        self.transport, self.step = transport, step
        self.name, self.proxied = transport.name, transport.proxied
        self.t0 = None
        self.status, self.headers = None, []
        self.reads = []  # (stamp, data)
        self.told = []  # when the sink had taken each read
        self.end = None

    def exchange(self, request, sink):
        self.sink = sink
        self.connecting, self.connected, self.sent = sink.connecting, sink.connected, sink.sent
        self.deadline = sink.deadline
        self.end = self.transport.exchange(request, self)
        self.step.tell(free=True)
        return self.end

    @property
    def settled(self):
        return self.sink.settled

    alike = (b"", b"")  # the server goes on when a read was told: none may wait

    def sending(self, ns):
        self.t0 = ns
        self.sink.sending(ns)

    def head(self, ns, status, headers):
        self.status, self.headers = status, headers
        self.sink.head(ns, status, headers)
        self.step.tell()

    def read(self, ns, data):
        enough = self.sink.read(ns, data)
        self.reads.append((ns, data))
        self.told.append(time.perf_counter_ns())
        self.step.tell(free=enough)
        return enough


def pytest_generate_tests(metafunc):
    """`stream_case` is every written-out case in turn, `refusal_case` every one that says whether to try again."""
    chosen = {"stream_case": lambda case: True, "refusal_case": lambda case: "retryable" in case["expect"]}
    for name in chosen.keys() & set(metafunc.fixturenames):
        found = [case for case in stream_cases.CASES if chosen[name](case)]
        metafunc.parametrize(name, found, ids=[case["name"] for case in found])


@dataclass
class Played:
    """A case as it was played: the record, what the transport told, and when the server wrote each read."""

    record: object
    heard: Overheard
    wrote: list


@pytest.fixture(scope="session")
def cases():
    """The module of the written-out cases and of the tables that read them."""
    return stream_cases


@pytest.fixture
def play(serve, caller, prompt):
    """Play a case to a Caller over the named transport: play(case, name, **fields of the Caller) -> Played."""

    def run(case, name, *, ask=None, labels=None, **fields):
        step, wrote = Step(), []

        def script(peer):
            def before(index):
                step.wait(index + (case["status"] is not None))
                wrote.append(time.perf_counter_ns())

            peer.request()
            stream_cases.scenario.play(peer.sock, case, before)

        heard = Overheard(TRANSPORTS[name](None), step)
        if "now" in case:
            fields.setdefault("wall", lambda: datetime.fromtimestamp(case["now"], UTC))
        made = caller(serve(script).url(path="/v1"), heard, ask=ask, **fields)
        record = made.run(Call(lambda: prompt, {"request_id": "r1", **(labels or {})}))
        heard.transport.close()
        return Played(record, heard, wrote)

    return run


@pytest.fixture
def serve():
    """Start a scripted server: serve(script, script, ..., family=..., tls=...)."""
    servers = []

    def start(*scripts, **options):
        servers.append(ScriptedServer(scripts, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
    assert [server.failures for server in servers] == [[] for _ in servers]


@pytest.fixture(autouse=True)
def present():
    """gevent's delays and timeouts count from when its loop last ran: minutes ago, where other tests came before."""
    gevent.get_hub().loop.update_now()


@pytest.fixture
def prompt():
    """A prompt of two pieces, counted by a tokenizer."""
    return Prompt((b"tell me ", memoryview(b"a story")), 9, True, "tokenizer", 15, "ab" * 32)


@pytest.fixture
def caller(prompt):
    """Make a Caller for a URL and a transport; any of its fields may be given."""

    def make(base_url, transport, *, timeouts=None, key=None, protocol="openai-chat", ask=None, **fields):
        named = {"key_env": "LAB_API_KEY"} if key else {}
        endpoint = Endpoint("lab", base_url, "m1", protocol, timeouts=timeouts or Timeouts(), **named)
        asked = Ask(endpoint, key, **(ask or {}))
        made = {"budget": RetryBudget(), "rng": random.Random(3), "policy": NO_RETRY, **fields}
        return Caller(ask=asked, transport=transport, **made)

    return make


@pytest.fixture
def step():
    """Keeps a server in step with its client."""
    return Step()


@pytest.fixture
def log():
    """Class of the recording sink."""
    return Log


@pytest.fixture
def wire_request():
    """A request of the given body parts to a URL."""

    def make(url, *body, headers=(("X-Request-Id", "r1"),)):
        return WireRequest("POST", url, tuple(headers), body or (b'{"a":1}',))

    return make


@pytest.fixture(params=sorted(TRANSPORTS))
def transport(request):
    """Each transport of the dict in turn."""
    made = TRANSPORTS[request.param](None)
    yield made
    made.close()


@pytest.fixture(scope="session")
def certificate_folder(tmp_path_factory):
    """Folder of cert.pem (its own CA) and key.pem, made by openssl for 127.0.0.1 and localhost."""
    folder = tmp_path_factory.mktemp("tls")
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    run += ["-days", "2", "-subj", "/CN=loadkit test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    run += ["-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(run, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def certificates(certificate_folder):
    """(server context, client context that trusts it)."""
    folder = certificate_folder
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=folder / "cert.pem")

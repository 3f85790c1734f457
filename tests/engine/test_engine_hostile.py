"""Clients that mean no good, or have no luck: the server answers in one line, holds little memory and lives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import socket
import struct
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadkit.engine import http
from loadkit.engine.errors import ApiError
from loadkit.engine.http import Connection, Hall, parse_head

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
CROWD = 1000


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.fixture
def many_files():
    """Let this process open as many files as the crowd needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, CROWD + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_connections_held_open(start_engine, many_files):
    """A thousand connections, half of them in the middle of a head or a body, cost little memory; others are served,
    also over a connection that was there before."""
    engine = start_engine()
    before = resident_mib(engine.process.pid)
    beginnings = [b"", b"GET /hea", b"POST /tokenize HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{", b"\r\n\r\n"]
    with contextlib.ExitStack() as held:
        for index in range(CROWD):
            one = held.enter_context(socket.create_connection(("127.0.0.1", engine.port), timeout=60))
            one.sendall(beginnings[index % len(beginnings)])
        assert engine.post(CHAT, {"messages": HELLO, "max_tokens": 3})[2]["usage"]["completion_tokens"] == 3
        assert resident_mib(engine.process.pid) - before < 60
        one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")
    assert engine.request("GET", "/health")[0] == 200


def request_bytes(**body: object) -> bytes:
    text = json.dumps({"messages": HELLO, **body}).encode()
    return f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def test_clients_that_vanish(engine):
    """Clients that reset the connection anywhere in a request or its answer leave nothing behind."""
    whole = request_bytes(max_tokens=1500, stream=True)
    for cut in (1, 30, 80, len(whole) - 1, len(whole)) * 4:
        gone = socket.create_connection(("127.0.0.1", engine.port), timeout=60)
        gone.sendall(whole[:cut])
        if cut == len(whole):
            assert gone.recv(20).startswith(b"HTTP/1.1 ")
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
    # Three slots: this one gets its turn only because those who left have freed theirs.
    assert engine.post(CHAT, {"messages": HELLO, "max_tokens": 3})[0] == 200
    assert engine.metric("num_requests_running") == 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=200)
    | st.tuples(st.sampled_from([b"GET /health", b"POST /tokenize", b"\xff"]), st.binary(max_size=60)).map(b" ".join)
    | st.builds(
        lambda name, value: b"POST /tokenize HTTP/1.1\r\n" + name + b": " + value + b"\r\n\r\n{}",
        st.sampled_from([b"Content-Length", b"Transfer-Encoding", b"content-length ", b"X"]),
        st.sampled_from([b"1e3", b"2, 2", b"+2", b"\xb2", b"99999999999999999999", b"chunked", b"2\r\nX: \0"]),
    )
)
def test_any_bytes_are_answered_or_ended(engine, data):
    """Whatever bytes come, each complete request is answered with a status of 200 or 400 to 505, then the end."""
    with socket.create_connection(("127.0.0.1", engine.port), timeout=20) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(65536):
                said += part
    assert said == b"" or int(said[9:12]) in (200, 400, 404, 405, 411, 413, 431, 505)
    assert engine.request("GET", "/health")[0] == 200


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, 400), max_size=4))
def test_requests_arrive_in_any_pieces(engine, cuts):
    """Requests sent one behind the other, cut anywhere, get all their answers in their order."""
    asked = request_bytes(max_tokens=1) + b"GET /nowhere HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}x"
    asked += b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"
    edges = [0, *sorted(min(cut, len(asked)) for cut in cuts), len(asked)]
    with socket.create_connection(("127.0.0.1", engine.port), timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start, end in pairwise(edges):
            client.sendall(asked[start:end])
        said = b""
        while part := client.recv(65536):
            said += part
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health", 400),
        (b"GET  /health HTTP/1.1", 400),
        (b"GET /health HTTP/2.0", 400),
        (b"GET /health HTTP/1.1\r\nno colon", 400),
        (b"GET /health HTTP/1.1\r\n name: x", 400),
        (b"GET /health HTTP/1.1\r\nA: x\nB: y", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: 1, 1", 400),
        (b"GET /health HTTP/1.1\r\nContent-Length: 101", 413),
        (b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked", 411),
        (b"POST /health HTTP/1.1", 411),
    ],
)
def test_heads_that_could_be_read_in_two_ways(head, status):
    """What two servers might frame differently is refused."""
    with pytest.raises(ApiError) as caught:
        parse_head(head, 100)
    assert caught.value.status == status


class Wire(asyncio.Transport):
    """A transport that keeps what is written and never sends it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def can_write_eof(self) -> bool:
        return False

    def abort(self) -> None:
        self.ended = "abort"

    def close(self) -> None:
        self.ended = "close"

    def is_closing(self) -> bool:
        return bool(self.ended)


def connect(hall: Hall) -> tuple[Connection, Wire]:
    connection, wire = Connection(hall, 10**9, lambda *_: None), Wire()
    connection.connection_made(wire)
    return connection, wire


POST = b"POST /tokenize HTTP/1.1\r\nContent-Length: 1000\r\n\r\n"


def test_bodies_under_way_share_a_limit(monkeypatch):
    """Incomplete bodies may hold so many bytes together; the one above is told 503, and its bytes are given back."""
    monkeypatch.setattr(http, "MAX_PENDING", 1500)

    async def scene() -> None:
        hall = Hall(10)
        (one, quiet), (two, refused) = connect(hall), connect(hall)
        one.data_received(POST + b"x" * 900)
        two.data_received(POST + b"x" * 600)
        assert hall.pending == 1500
        two.data_received(b"x")
        assert refused.written.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1\r\n" in refused.written
        assert hall.pending == 900
        assert quiet.written == b""
        one.data_received(b"x" * 100)
        assert hall.pending == 0
        one.connection_lost(None)
        assert hall.pending == 0

    asyncio.run(scene())


def test_a_client_that_does_not_read_is_cut_off(monkeypatch):
    """An answer whose bytes pile up ends its connection."""
    monkeypatch.setattr(http, "MAX_UNSENT", 1000)

    async def scene() -> None:
        connection, wire = connect(Hall(10))
        connection.write(b"x" * 1000)
        assert wire.ended == ""
        connection.write(b"x")
        assert wire.ended == "abort"

    asyncio.run(scene())


def test_who_waits_too_long_is_closed():
    """A minute without a step forward closes a connection: bytes of a head are none, bytes of a body are."""
    clock = [0.0]

    async def scene() -> None:
        hall = Hall(10, now=lambda: clock[0])
        pairs = [connect(hall) for _ in range(4)]
        silent, dripping, body, works = (connection for connection, _ in pairs)
        works.data_received(b"GET /health HTTP/1.1\r\n\r\n")
        clock[0] = 40.0
        dripping.data_received(b"GET /he")
        body.data_received(POST + b"x")
        clock[0] = 61.0
        hall.sweep()
        assert [wire.ended for _, wire in pairs] == ["abort", "abort", "", ""]
        clock[0] = 101.0
        hall.sweep()
        assert [wire.ended for _, wire in pairs] == ["abort", "abort", "abort", ""]
        assert silent not in hall.open

    asyncio.run(scene())


def test_a_refused_body_is_read_for_a_while():
    """After a refusal more bytes are taken, so that the client sees the answer, but not without end."""

    async def scene() -> None:
        connection, wire = connect(Hall(10))
        connection.data_received(b"POST /tokenize HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n")
        assert wire.written.startswith(b"HTTP/1.1 413 ")
        connection.data_received(b"x" * http.DRAIN)
        assert wire.ended == ""
        connection.data_received(b"x")
        assert wire.ended == "abort"

    asyncio.run(scene())


def test_stopping_ends_streams_in_words(start_engine):
    """After SIGTERM an answer under way ends with an error in the stream and [DONE], a whole one with 503."""
    engine = start_engine("--grace", "0")
    stream = engine.stream(CHAT, messages=HELLO, max_tokens=20000)
    stream.next_text()
    whole = engine.connect()
    whole.request("POST", CHAT, json.dumps({"messages": HELLO, "max_tokens": 20000}))
    while engine.metric("num_requests_running") < 2:
        stream.next_text()
    engine.process.send_signal(signal.SIGTERM)
    *_, last = list(stream)
    assert last["error"]["message"] == "the engine is stopping"
    assert whole.getresponse().status == 503
    assert engine.process.wait(timeout=20) == 0


def test_stopping_lets_answers_end(start_engine):
    """Within the grace an answer under way comes whole; a new request is told 503 and a time to wait."""
    engine = start_engine("--grace", "60")
    kept = engine.connect()
    kept.request("GET", "/health")
    kept.getresponse().read()
    stream = engine.stream(CHAT, messages=HELLO, max_tokens=120)
    stream.next_text()
    engine.process.send_signal(signal.SIGTERM)
    refused = 200
    while refused == 200:  # the signal is on its way
        kept.request("POST", CHAT, json.dumps({"messages": HELLO, "max_tokens": 1}))
        answer = kept.getresponse()
        answer.read()
        refused = answer.status
    assert refused == 503
    assert answer.headers["Retry-After"] == "1"
    *_, last = list(stream)
    assert last["timings"]["predicted_n"] == 120
    assert engine.process.wait(timeout=20) == 0


def test_a_prefix_is_computed_once(engine):
    """With `cache_prompt` a prompt's second time takes its beginning from the cache, says so, and answers the same."""
    asked = {"messages": [{"role": "user", "content": "the same long beginning " * 10}], "max_tokens": 8}
    plain = engine.post(CHAT, asked)[2]
    first, second = (engine.post(CHAT, asked | {"cache_prompt": True})[2] for _ in range(2))
    assert [body["choices"] for body in (first, second)] == [plain["choices"]] * 2
    total = plain["usage"]["prompt_tokens"]
    cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in (plain, first, second)]
    assert cached == [0, 0, total - 1]
    assert (second["timings"]["cache_n"], second["timings"]["prompt_n"]) == (total - 1, 1)
    assert engine.metric("prefix_cache_queries_total") == 2 * total
    assert engine.metric("prefix_cache_hits_total") == total - 1

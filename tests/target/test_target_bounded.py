"""Exchanges of the control client end, whatever the server does: in time, head included, and in bytes."""

import contextlib
import itertools
import socket
import threading

import pytest

from loadkit.plan.endpoint import Endpoint
from loadkit.target import bounded
from loadkit.target.bounded import AnswerUnfinished
from loadkit.target.control import list_models, open_client

OPENING = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@pytest.fixture
def endless():
    """Starts a server that answers with some bytes, then with others again and again; `ended`: it was left."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(first, again):
        ended = threading.Event()

        def run():
            connection, _ = listener.accept()
            with contextlib.suppress(OSError), connection:
                connection.recv(65536)
                connection.sendall(first)
                while again:
                    connection.sendall(again)
                connection.recv(1)  # until the client goes
            ended.set()

        threading.Thread(target=run, daemon=True).start()
        return Endpoint("lab", f"http://127.0.0.1:{listener.getsockname()[1]}/v1"), ended

    yield serve
    listener.close()


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (OPENING, b"x: y\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OPENING + b"\r\n{", b" "),
        (OPENING + b"\r\n{", b""),
    ],
    ids=["head", "continue", "body", "silence"],
)
def test_an_exchange_ends_in_time(endless, monkeypatch, first, again):
    """Head or body, dripped or silent: each look at the clock finds ten seconds gone, and the connection is closed."""
    monkeypatch.setattr(bounded, "EXCHANGE_S", 0.5)
    endpoint, ended = endless(first, again)
    clock = itertools.count(0.0, 0.1)
    with (
        open_client(endpoint, None, {}, now=lambda: next(clock)) as client,
        pytest.raises(AnswerUnfinished, match="did not finish within"),
    ):
        list_models(client, endpoint)
    assert ended.wait(10)


def test_an_exchange_ends_at_its_size(endless, monkeypatch):
    """Memory is bounded too: what is beyond the limit is not read."""
    monkeypatch.setattr(bounded, "MAX_ANSWER", 2**20)
    endpoint, ended = endless(OPENING + b"\r\n[", b"1," * 4096)
    with (
        open_client(endpoint, None, {}) as client,
        pytest.raises(AnswerUnfinished, match="did not finish within 1 MiB"),
    ):
        list_models(client, endpoint)
    assert ended.wait(10)


def test_a_compressed_answer_is_no_answer(server):
    """A small body may unpack to any size, and identity was asked for."""
    server.routes["GET /v1/models"] = server.models("m1")
    endpoint = Endpoint("lab", f"{server.url}/v1")
    with open_client(endpoint, None, {}) as client:
        assert list_models(client, endpoint) is not None
    assert server.asked[0][2]["Accept-Encoding"] == "identity"
    body = OPENING + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\nabcd"
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run():
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(body)
                connection.recv(1)

        threading.Thread(target=run, daemon=True).start()
        endpoint = Endpoint("lab", f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
        with open_client(endpoint, None, {}) as client:
            assert list_models(client, endpoint) is None

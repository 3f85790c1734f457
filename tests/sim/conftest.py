"""A sim in its own process and a client that is nothing but a socket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

HANG_S = 20


@dataclass
class Reply:
    """One answer as it came: `reads` are (perf_counter_ns, raw bytes)."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    reads: list[tuple[int, bytes]] = field(repr=False)

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def data(self) -> list:
        """The JSON documents of an SSE body, [DONE] left out."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]

    @property
    def text(self) -> str:
        deltas = [choice["delta"].get("content", "") for item in self.data for choice in item.get("choices", [])]
        return "".join(deltas)


class Wire:
    """One connection; `ask` sends raw bytes, `answer` reads one answer to its end."""

    def __init__(self, address) -> None:
        self.socket = socket.create_connection(address, timeout=HANG_S)

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: sim", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def answer(self) -> Reply:
        reads, raw = [], b""
        while not (done := _finished(raw)):
            data = self.socket.recv(65536)
            reads.append((time.perf_counter_ns(), data))
            raw += data
            if not data:
                break
        head, _, rest = raw.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        chunked = headers.get("transfer-encoding") == "chunked"
        body = _dechunk(rest) if chunked else rest
        return Reply(int(lines[0].split(" ")[1]), headers, body, bool(done), reads)

    def close(self) -> None:
        self.socket.close()


def _finished(raw: bytes) -> bool:
    head, end, rest = raw.partition(b"\r\n\r\n")
    if not end:
        return False
    if b"Transfer-Encoding: chunked" in head:
        return rest.endswith(b"\r\n0\r\n\r\n")
    length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
    return len(rest) >= length


def _dechunk(raw: bytes) -> bytes:
    body = b""
    while raw:
        size, _, rest = raw.partition(b"\r\n")
        body += rest[: int(size, 16)]
        raw = rest[int(size, 16) + 2 :]
    return body


class Server:
    """A running sim."""

    def __init__(self, args: tuple[str, ...], log: Path, env: dict[str, str] | None, stdin=subprocess.DEVNULL) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "loadkit.sim", "serve", *args],
                stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, **(env or {})},
            )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, log.read_text()
        self.ready = json.loads(line)
        url = urlsplit(self.ready["url"])
        self.address = (url.hostname, url.port)

    def wire(self) -> Wire:
        return Wire(self.address)

    def send(self, method, path, body=b"", headers=None) -> Reply:
        wire = self.wire()
        try:
            wire.send(method, path, body, headers)
            return wire.answer()
        finally:
            wire.close()

    def chat(self, content="hello", *, sim=None, headers=None, **fields) -> Reply:
        return self.send("POST", "/v1/chat/completions", chat_body(content, sim=sim, **fields), headers)

    def get(self, path: str) -> dict:
        return self.send("GET", path).json

    def truth(self, key: str) -> dict:
        """The one record of `key`, as soon as it is there."""
        deadline = time.monotonic() + HANG_S
        while not (found := self.get(f"/sim/truth?id={key}")["requests"]):
            assert time.monotonic() < deadline, f"no record of {key}"
        (record,) = found
        return record

    def until(self, name: str, value: int) -> dict:
        """Ask for the counters until `name` has `value`."""
        deadline = time.monotonic() + HANG_S
        while (stats := self.get("/sim/stats"))[name] != value:
            assert time.monotonic() < deadline, stats
        return stats

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANG_S)


def chat_body(content="hello", *, sim=None, **fields) -> bytes:
    body = {"model": "sim", "stream": True, "max_tokens": 4, "messages": [{"role": "user", "content": content}]}
    return json.dumps(body | ({"sim": sim} if sim else {}) | fields).encode()


@pytest.fixture(scope="session")
def start_sim(tmp_path_factory):
    """start_sim(*args, env=None, stdin=...) starts a server; at the end none is left and none wrote a traceback."""
    servers: list[Server] = []

    def start(*args: str, env=None, stdin=subprocess.DEVNULL) -> Server:
        servers.append(Server(args, tmp_path_factory.mktemp("sim") / "stderr.log", env, stdin))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop()
        server.process.stdout.close()
    assert [log for log in (server.log.read_text() for server in servers) if "Traceback" in log or "Error" in log] == []


@pytest.fixture(scope="session")
def sim(start_sim) -> Server:
    """One server for every test that shapes its requests by X-Sim: TTFT 5 ms, ITL 1 ms."""
    return start_sim("--ttft-ms", "5", "--itl-ms", "1")


@pytest.fixture(scope="session")
def make_body():
    """make_body(content, sim=None, **fields): the bytes of a streamed chat request for four tokens."""
    return chat_body

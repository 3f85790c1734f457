"""Ten thousand connections held open on the embedded engine: what they cost, and whether others are still served.

    python benchmarks/engine_connections.py [--connections 10000]

A quarter of them send nothing, a quarter half a head, a quarter half a body, a quarter an empty line. Meanwhile a chat
is asked over a connection of its own, and one of the held connections asks for /health. The limits of open files of
both processes are raised as far as the system lets them.
"""

import argparse
import contextlib
import http.client
import json
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

BEGINNINGS = (b"", b"GET /hea", b"POST /tokenize HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{", b"\r\n\r\n")
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 16}


def resident_mib(pid: int) -> float:
    """MiB of memory that a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def chat_ms(port: int) -> float:
    """Milliseconds of a short chat over a connection of its own; SystemExit when it is not answered."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(CHAT))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    if answer.status != 200 or body["usage"]["completion_tokens"] != CHAT["max_tokens"]:
        raise SystemExit(f"the chat was answered {answer.status}")
    return 1e3 * (time.perf_counter() - began)


def main() -> None:
    """Start an engine, hold the connections open, look at it, let go, and look again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    wanted = parser.parse_args().connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted + 200)), hard))
    command = [sys.executable, "-m", "loadkit.engine", "serve", "--stdin-guard"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        assert engine.stdin is not None
        assert engine.stdout is not None
        ready = json.loads(engine.stdout.readline())
        port = int(ready["url"].rsplit(":", 1)[1].split("/")[0])
        alone, before = chat_ms(port), resident_mib(engine.pid)
        with contextlib.ExitStack() as held:
            for index in range(wanted):
                one = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
                one.sendall(BEGINNINGS[index % len(BEGINNINGS)])
            beside, during = chat_ms(port), resident_mib(engine.pid)
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            served = one.recv(100).startswith(b"HTTP/1.1 200 ")
        after = chat_ms(port)
        print(f"{wanted} connections held open, limit {ready['connections']}: a held one is served: {served}")
        print(f"memory {before:.0f} MiB before, {during:.0f} held: {1024 * (during - before) / wanted:.1f} KiB each")
        print(
            f"a chat of {CHAT['max_tokens']} tokens: {alone:.0f} ms alone, {beside:.0f} beside them, {after:.0f} after"
        )
        engine.stdin.close()
        print(f"the engine ended with code {engine.wait(timeout=20)}")


if __name__ == "__main__":
    main()

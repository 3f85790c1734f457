"""The floor that loadkit's client is held against: greenlets that recv_into a buffer, stamp and count, and no more.

    python benchmarks/raw_reader.py URL STREAMS

Prints one JSON object: streams, events, CPU us per event. URL is the base URL of a truth server (ends in /v1).
"""

import json
import sys
import time
from array import array
from urllib.parse import urlsplit

import gevent
from gevent import socket

ROUNDS, OUTPUT_TOKENS = 4, 128
END = b"0\r\n\r\n"


def request(host: str, path: str) -> bytes:
    """One streaming chat request, ready to be sent again and again."""
    body = json.dumps(
        {
            "model": "sim",
            "messages": [{"role": "user", "content": "x" * 120}],
            "max_tokens": OUTPUT_TOKENS,
            "stream": True,
        }
    ).encode()
    head = f"POST {path}/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_streams(address: tuple[str, int], data: bytes, stamps: array) -> int:
    """One user: ROUNDS requests over one connection; returns the token events it counted."""
    connection = socket.create_connection(address)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(65536)
    view = memoryview(buffer)
    events = 0
    for _ in range(ROUNDS):
        connection.sendall(data)
        tail = b""
        while not tail.endswith(END):
            size = connection.recv_into(view)
            stamps.append(time.perf_counter_ns())
            if not size:
                raise SystemExit("the server closed the connection")
            events += buffer.count(b'"content":"', 0, size)
            tail = (tail + bytes(view[max(0, size - 5) : size]))[-5:]
    connection.close()
    return events


def main(url: str, streams: int) -> dict:
    """Read with so many greenlets at once and measure the CPU of this process."""
    parts = urlsplit(url)
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    data = request(parts.netloc, parts.path)
    stamps = array("q")
    started = time.process_time()
    users = [gevent.spawn(read_streams, address, data, stamps) for _ in range(streams)]
    gevent.joinall(users, raise_error=True)
    events = sum(user.value for user in users)
    return {"streams": streams, "events": events, "cpu_us_per_event": (time.process_time() - started) / events * 1e6}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

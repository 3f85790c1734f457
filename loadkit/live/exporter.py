"""Serves the metrics at /metrics, and at / the page that shows them in a browser: a small socket server that yields
between pieces, so that no read is stamped late.

Plain threads and sockets: under gevent's patches they are greenlets that run between the streams of a run.
"""

import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from threading import BoundedSemaphore, Thread

from loadkit.live import render
from loadkit.live.page import page
from loadkit.live.registry import Registry

ADDRESS = "127.0.0.1"
PORT = 9646  # the one that exporters for Locust use
TRIED_PORTS = 20
MAX_HEAD = 8192  # bytes
CLIENTS = 8  # at once
CLIENT_S = 10.0  # for one of them, until its request is here and between two pieces of the answer
PIECE = 32 * 1024  # bytes handed over before others may run
SLICE_S = 0.0002  # of writing before others may run
PAUSE_S = 0.0005  # in which they do; with 0 gevent would not look at the sockets

LEAST_LINGER_S = 12.0
MOST_LINGER_S = 60.0
LINGER_INTERVALS = 2.5  # two scrapes, and half an interval for one that comes late
FINAL_SCRAPES = 2
LOOK_S = 0.1


class Exporter:
    """One page of one registry. `start` before `url` and `linger`."""

    def __init__(
        self,
        registry: Registry,
        address: str = ADDRESS,
        port: int = PORT,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Listens on `address`; the next free port is taken where `port` is not free, any where it is 0."""
        self._registry = registry
        self._address = address
        self._wanted = port
        self._now = now
        self._sleep = sleep
        self._slots = BoundedSemaphore(CLIENTS)
        self._socket: socket.socket | None = None
        self._site = page.html(), f"Content-Security-Policy: {page.policy()}"
        self.port = 0
        self.scrapes: list[float] = []  # when each began that was answered in whole

    def start(self) -> None:
        """Begin to listen. Raises OSError where that cannot be done."""
        self._socket = _listen(self._address, self._wanted)
        self.port = self._socket.getsockname()[1]
        Thread(target=self._accept, args=(self._socket,), name="metrics", daemon=True).start()

    @property
    def url(self) -> str:
        """Where the page is."""
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{self.port}/metrics"

    @property
    def moved(self) -> bool:
        """Whether the port is another one than was asked for, which was taken."""
        return self._wanted not in (0, self.port)

    def linger_s(self) -> float:
        """How long two more scrapes are waited for at most (s); 0 where nobody scraped."""
        if not self.scrapes:
            return 0.0
        times = self.scrapes[-4:]
        gap = max((later - earlier for earlier, later in pairwise(times)), default=0.0)
        return min(MOST_LINGER_S, max(LEAST_LINGER_S, LINGER_INTERVALS * gap))

    def linger(self, hurried: Callable[[], bool] = lambda: False) -> bool:
        """Wait until two scrapes have seen what is counted now; False where time ran out or `hurried` said so."""
        since, longest = self._now(), self.linger_s()
        while sum(began >= since for began in self.scrapes) < FINAL_SCRAPES:
            if hurried() or self._now() - since >= longest:
                return False
            self._sleep(LOOK_S)
        return True

    def stop(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()
            self._socket = None

    # -- inside ----------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError as error:
                if self._socket is not listener or error.errno not in (errno.ECONNABORTED, errno.EMFILE, errno.ENFILE):
                    return
                self._sleep(LOOK_S)
                continue
            if self._slots.acquire(blocking=False):
                Thread(target=self._serve, args=(client,), name="scrape", daemon=True).start()
            else:
                client.close()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                client.settimeout(CLIENT_S)
                began = self._now()
                if self._answer(client, self._request(client)):
                    self.scrapes.append(began)
        except OSError:
            pass  # a client that left
        finally:
            self._slots.release()

    def _request(self, client: socket.socket) -> bytes:
        """The head of the request; what is longer or slower than a scrape is cut."""
        data, since = b"", self._now()
        while b"\r\n\r\n" not in data and len(data) < MAX_HEAD and self._now() - since < CLIENT_S:
            part = client.recv(MAX_HEAD)
            if not part:
                break
            data += part
        return data

    def _answer(self, client: socket.socket, request: bytes) -> bool:
        """Write the answer; True where it was the page."""
        method, path, accept = _parsed(request)
        if method not in ("GET", "HEAD"):
            return _send(client, "405 Method Not Allowed", b"only GET\n")
        if path == "/":
            site, policy = self._site
            client.sendall(_head("200 OK", page.KIND, len(site), policy) + (site if method == "GET" else b""))
            return False
        if path != "/metrics":
            return _send(client, "404 Not Found", b"the metrics are at /metrics, a page for browsers is at /\n")
        openmetrics = render.wants_openmetrics(accept)
        self._registry.scraped()
        text = list(self._in_slices(render.pieces(self._registry, openmetrics)))
        kind = render.OPENMETRICS if openmetrics else render.TEXT
        client.sendall(_head("200 OK", kind, sum(map(len, text))))
        if method == "HEAD":
            return False
        for part in _joined(text):
            client.sendall(part)
            self._sleep(PAUSE_S)
        return True

    def _in_slices(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The pieces as they are written, with a pause after each slice of time."""
        since = self._now()
        for piece in pieces:
            yield piece
            if self._now() - since > SLICE_S:
                self._sleep(PAUSE_S)
                since = self._now()


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for number in range(port, min(port + TRIED_PORTS, 65536)) if port else (0,):
        try:
            return socket.create_server((address, number), family=family, backlog=CLIENTS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise OSError(errno.EADDRINUSE, f"ports {port} to {port + TRIED_PORTS - 1} are taken")


def _parsed(request: bytes) -> tuple[str, str, str]:
    """Method, path and Accept header of a request; empty where there is none."""
    first, *fields = request.decode("latin-1").split("\r\n")
    method, path, *_ = (*first.split(" "), "", "")
    accepted = [field.partition(":")[2] for field in fields if field.lower().startswith("accept:")]
    return method, path.partition("?")[0], ",".join(accepted)


def _head(status: str, kind: str, length: int, *more: str) -> bytes:
    lines = f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {length}", "Connection: close", *more
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _send(client: socket.socket, status: str, body: bytes) -> bool:
    client.sendall(_head(status, "text/plain; charset=utf-8", len(body)) + body)
    return False


def _joined(pieces: list[bytes]) -> Iterator[bytes]:
    """The page in parts of about PIECE bytes."""
    part: list[bytes] = []
    size = 0
    for piece in pieces:
        part.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(part)
            part, size = [], 0
    yield b"".join(part)

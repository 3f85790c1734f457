"""The one channel between workers and master, over Locust's messages: what is said, and rows that must not be lost.

Rows (records and telemetry) go in compressed batches and are kept by the worker until the master has acknowledged them;
the master takes each once, in order. Nothing is sent where a read is stamped: a greenlet of its own ships, and it gives
the loop back after every batch.
"""

from locust.exception import RPCError

import json
import time
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import gevent
import orjson
from gevent.event import Event
from gevent.queue import SimpleQueue

from loadkit.swarm.guard import passed_over

MESSAGE = "loadkit"  # the one type of Locust message that is ours
BATCH_ROWS = 64
BATCH_BYTES = 64 * 1024  # compressing this holds the loop for about half a millisecond
PAUSE_S = 0.2  # rows are collected for so long
RESEND_S = 2.0  # without an acknowledgement, rows are sent again
LARGEST_BATCH = 64 * 1024 * 1024  # bytes of rows; more is not of ours

Data = dict[str, Any]


class Batch(NamedTuple):
    """Rows `first`, `first + 1`, … of a worker, as compressed lines."""

    first: int
    data: bytes


class Outbox:
    """Lines of a worker by number, from 1, until they are acknowledged."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque()
        self._first = 1  # number of the first one that is kept
        self._sent = 0  # how many of them have been given out

    @property
    def empty(self) -> bool:
        """Everything is acknowledged."""
        return not self._lines

    @property
    def last(self) -> int:
        """Number of the newest line; 0 when there was none."""
        return self._first + len(self._lines) - 1

    @property
    def first(self) -> int:
        """Number of the oldest line that is not acknowledged, or of the next one."""
        return self._first

    def put(self, line: bytes) -> None:
        """One more line."""
        self._lines.append(line)

    def take(self) -> Batch | None:
        """The next batch to send, None when all was sent."""
        lines: list[bytes] = []
        size = 0
        for number in range(self._sent, min(len(self._lines), self._sent + BATCH_ROWS)):
            size += len(self._lines[number])
            if lines and size > BATCH_BYTES:
                break
            lines.append(self._lines[number])
        if not lines:
            return None
        first = self._first + self._sent
        self._sent += len(lines)
        return Batch(first, zlib.compress(b"".join(lines), 1))

    def acknowledged(self, number: int) -> None:
        """The master has every line up to `number`."""
        while self._lines and self._first <= number:
            self._lines.popleft()
            self._first += 1
            self._sent = max(0, self._sent - 1)

    def rewind(self) -> None:
        """What is not acknowledged is sent again."""
        self._sent = 0


class Inbox:
    """What the master has of each worker's lines."""

    def __init__(self) -> None:
        self._have: dict[str, int] = {}

    def have(self, worker: str) -> int:
        """The number up to which everything of this worker is here."""
        return self._have.get(worker, 0)

    def take(self, worker: str, batch: Batch) -> list[Data]:
        """The rows of a batch that are new. A batch beyond a gap gives none: the worker will send from the gap on."""
        have = self.have(worker)
        if batch.first > have + 1:
            return []
        lines = _unpacked(batch.data).splitlines()
        self._have[worker] = max(have, batch.first + len(lines) - 1)
        return [_row(line) for line in lines[have + 1 - batch.first :]]


def _row(line: bytes) -> Data:
    try:
        return orjson.loads(line)
    except ValueError:  # it is stricter than what may have written the line
        return json.loads(line)


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, LARGEST_BATCH)
    if unpacker.unconsumed_tail:
        raise ValueError("a batch of rows is too large")
    return text


class Shipper:
    """Sends the lines of an outbox, in a greenlet of its own, until it is stopped."""

    def __init__(
        self, outbox: Outbox, send: Callable[[Batch], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._outbox = outbox
        self._send = send
        self._now = now
        self._hurry = Event()
        self._first, self._since = outbox.first, now()
        self._greenlet = gevent.spawn(self._run)

    def hurry(self) -> None:
        """Send what there is without waiting for more."""
        self._hurry.set()

    def flush(self, seconds: float) -> bool:
        """Wait until everything is acknowledged; false when that took longer."""
        with gevent.Timeout(seconds, False):
            while not self._outbox.empty:
                self.hurry()
                gevent.sleep(0.02)
            return True
        return False

    def stop(self) -> None:
        """End the greenlet."""
        self._greenlet.kill()

    def _run(self) -> None:
        while True:
            self._hurry.wait(PAUSE_S)
            self._hurry.clear()
            self.rewind_if_stuck()
            self.send_all()

    def send_all(self) -> None:
        """Send now what was not sent yet; several greenlets may do so."""
        while (batch := self._outbox.take()) is not None:
            try:
                self._send(batch)
            except RPCError:  # Locust has tried for seconds; the connection is made again meanwhile
                self._outbox.rewind()
                break
            gevent.sleep(0)

    def rewind_if_stuck(self) -> None:
        """Send everything again where the oldest line has waited for its acknowledgement for RESEND_S."""
        first, now = self._outbox.first, self._now()
        if first != self._first or self._outbox.empty:
            self._first, self._since = first, now
        elif now - self._since >= RESEND_S:
            self._outbox.rewind()
            self._since = now


class Link:
    """Sends and takes messages of one run over a Locust runner; payloads are builtins, all with the run's id.

    Messages that arrive wait in a queue: Locust's listener, which also answers heartbeats, only puts them there. Make
    the link before anybody may send, and `start` it when there is somebody to read. `run_id` None: not known yet.
    """

    def __init__(self, runner: Any) -> None:
        self.run_id: str | None = None
        self._runner = runner
        self._queue: SimpleQueue[tuple[str, Data]] = SimpleQueue()
        self._greenlet: gevent.Greenlet | None = None
        runner.register_message(MESSAGE, self._arrived)

    def start(self, handle: Callable[[str, str, Data], None]) -> None:
        """Hand messages to `handle(sender, what, data)`, one after another, in a greenlet of their own."""
        self._greenlet = gevent.spawn(self._run, handle)

    def send(self, what: str, data: Data | None = None, to: str | None = None) -> None:
        """Send; to the master, or to the worker with this id, or to all. Raises RPCError when Locust gives up."""
        self._runner.send_message(MESSAGE, {"what": what, "run": self.run_id, **(data or {})}, client_id=to)

    def stop(self) -> None:
        """Take no more messages."""
        if self._greenlet is not None:
            self._greenlet.kill()

    def _arrived(self, environment: Any, msg: Any) -> None:
        if isinstance(msg.data, dict) and isinstance(msg.data.get("what"), str):
            self._queue.put((msg.node_id, msg.data))

    def _run(self, handle: Callable[[str, str, Data], None]) -> None:
        while True:
            sender, data = self._queue.get()
            what = data.pop("what")
            try:
                handle(sender, what, data)
            except Exception as error:  # noqa: BLE001 - it must not silence the ones after it
                passed_over(what, sender, error)

"""Workers that measure nothing and report all the same, many in one process: a real master hears no difference.

    python benchmarks/reporters.py PORT COUNT RECORDS_PER_SECOND SECONDS

Each has a connection of its own, answers Locust's messages, and says on loadkit's channel what a worker says: hello,
ready, users, its state and a row of telemetry every second, and synthetic records of 64 gaps at its part of the rate,
through the outbox and the shipper that real workers have. Prints what came of it as JSON: records acknowledged, and how
long after a record was there its acknowledgement came.
"""

import locust
from locust.rpc import Message, zmqrpc
from locust.stats import RequestStats

import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import gevent
from gevent.event import Event

from loadkit.measure.quantile import nearest_rank
from loadkit.record.record import Record
from loadkit.swarm.channel import Batch, Data, Link, Outbox, Shipper
from loadkit.swarm.health import LagProbe

TICK_S = 0.1
GAPS = 64
DIFFERENT = 16  # records of each reporter that differ in more than number and time


class Reporter:
    """One simulated worker; it is the runner that its `Link` sends over."""

    def __init__(self, port: int, number: int, rate: float, seconds: float) -> None:
        self.done = Event()
        self.lags: list[float] = []
        self.acknowledged = 0
        self._ending = False
        self._id = f"reporter_{number:04d}"
        self._client = zmqrpc.Client("127.0.0.1", port, self._id)
        self._rate, self._seconds = rate, seconds
        self._users = 0
        self._state: Data | None = None
        self._visit: Data = {}
        self._outbox = Outbox()
        self._put: deque[tuple[int, float]] = deque()  # (number of the last line, when it was put)
        self._rng = random.Random(number)
        self._stats = RequestStats()
        self._link = Link(self)
        self._link.start(self._on_message)
        self._shipper = Shipper(self._outbox, self._ship)
        self._greenlets = [gevent.spawn(loop) for loop in (self._listen, self._begin)]

    # -- the runner of the link --------------------------------------------------------------------------------------

    def register_message(self, _: str, arrived: Callable[..., None]) -> None:
        """The link's messages go here."""
        self._arrived = arrived

    def send_message(self, kind: str, data: Any = None, client_id: str | None = None) -> None:
        """To the master."""
        self._client.send(Message(kind, data, self._id))

    # -- Locust's part -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        gevent.sleep(self._rng.random())  # else all would speak at the same instants for ever
        self.send_message("client_ready", locust.__version__)
        for second in range(10**6):
            usage = {"state": "running" if self._users else "ready", "current_cpu_usage": 50.0}
            self.send_message("heartbeat", {**usage, "current_memory_usage": 100_000_000})
            if second % 3 == 0:
                self.send_message("stats", self._report())
            if self._state is None:
                if self._link.run_id is None:
                    self._link.send("hello", {"name": self._id})
            elif not self._ending:
                self._tell(again=True)
            gevent.sleep(1.0)

    def _report(self) -> Data:
        return {
            "stats": self._stats.serialize_stats(),
            "stats_total": self._stats.total.get_stripped_report(),
            "errors": {},
            "user_classes_count": {"LadderUser": self._users},
            "user_count": self._users,
        }

    def _listen(self) -> None:
        while True:
            message = self._client.recv()
            if message.type == "spawn":
                classes = message.data["user_classes_count"]
                self._users = sum(classes.values())
                self.send_message("spawning")
                self.send_message("spawning_complete", {"user_classes_count": classes, "user_count": self._users})
                if self._state is not None:
                    self._link.send("users", {"live": self._users})
            elif message.type == "loadkit":
                self._arrived(environment=None, msg=message)
            elif message.type == "quit":
                self.stop()

    # -- loadkit's part ----------------------------------------------------------------------------------------------

    def _on_message(self, _: str, what: str, data: Data) -> None:
        if what == "brief" and self._state is None:
            self._link.run_id = data["run"]
            self._state = _state(None)
            self._link.send("ready", {"name": self._id})
            self._link.send("users", {"live": self._users})
        elif what == "stage" and data["visit"]["index"] != (self._state or {}).get("visit"):
            self._greenlets.append(gevent.spawn(self._measure, data["visit"]))
        elif what == "ack":
            self._on_ack(data["number"])
        elif what == "end" and not self._ending:
            self._ending = True
            gevent.spawn(self._end)
        elif what == "leave":
            self.stop()

    def _measure(self, visit: Data) -> None:
        """The part of a visit: so many records a second, for so long."""
        cell = visit["cell"]
        self._visit = {"visit": visit["index"], "cell": f"{cell['tier_tokens']}x{cell['concurrency']}"}
        self._state = {**_state(visit["index"]), "started": True, "full": True, "planned": 1}
        self._tell()
        records = [_record(self._visit, self._link.run_id, self._id, self._rng) for _ in range(DIFFERENT)]
        began, sent = time.monotonic(), 0
        while (passed := time.monotonic() - began) < self._seconds:
            due = int(self._rate * passed)
            for number in range(sent, due):
                self._stats.log_request("LLM", self._visit["cell"], 1500, 4000)
                start = b"%.6f" % (time.perf_counter_ns() / 1e6)
                line = records[number % DIFFERENT].replace(b'"START"', start)
                self._outbox.put(line.replace(b"NUMBER", b"%06d" % number))
            if due > sent:
                self._put.append((self._outbox.last, time.monotonic()))
            sent = due
            gevent.sleep(TICK_S)
        self._state |= {"measured": 1, "all_measured": True}
        self._tell()
        self._shipper.send_all()
        self._state |= {"finished": True}
        self._tell()
        self._visit = {}

    def _tell(self, again: bool = False) -> None:
        assert self._state is not None
        self._link.send("users", {"live": self._users})
        self._link.send("state", {**self._state, "again": again})
        self._outbox.put(_line(_sample(self._id, self._visit.get("cell"), self._users)))

    def _ship(self, batch: Batch) -> None:
        self._link.send("rows", {"first": batch.first, "data": batch.data})

    def _on_ack(self, number: int) -> None:
        self._outbox.acknowledged(number)
        now = time.monotonic()
        self.acknowledged = number
        while self._put and self._put[0][0] <= number:
            self.lags.append(now - self._put.popleft()[1])

    def _end(self) -> None:
        self._shipper.flush(60)
        while not self.done.is_set():
            self._link.send("last", {"number": self._outbox.last})
            self.done.wait(1.0)

    def stop(self) -> None:
        """Go home."""
        self.done.set()
        for greenlet in self._greenlets:
            greenlet.kill(block=False)


def _line(row: Data) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _state(visit: int | None) -> Data:
    flags = dict.fromkeys(("started", "full", "all_measured", "finished"), False)
    return {"visit": visit, **flags, "measured": 0, "planned": 0, "arrivals": None}


def _sample(worker: str, cell: str | None, users: int) -> Data:
    health = LagProbe().take_window()
    stamps = {"kind": "telemetry", "timestamp": "2026-01-01T00:00:00.000+00:00", "at_ms": time.perf_counter_ns() / 1e6}
    load = {"cpu": 0.5, "streams_in_flight": users, "users_planned": users, "users_live": users}
    return {**stamps, "seconds": 1.0, "worker": worker, "cell": cell, **health, **load}


def _record(visit: Data, run_id: str | None, worker: str, rng: random.Random) -> bytes:
    """The line of a record as a stream of 65 tokens gives it, its times with as many digits as measured ones, and with
    a NUMBER and a "START" to be filled in."""
    ttft, gaps = 200 + rng.random(), [20 + rng.random() for _ in range(GAPS)]
    end = ttft + sum(gaps)
    names = ("last_token_ms", "finish_ms", "usage_ms", "done_ms", "e2e_ms")
    attempt = {"outcome": "ok", "http_status": 200, "start_ms": 0.0, "end_ms": end, "wait_ms": None}
    record = Record(
        run_id=run_id,
        request_id=f"{run_id}-{worker}-NUMBER",
        response_id="sim-NUMBER",
        worker=worker,
        tier_tokens=128,
        concurrency=1,
        round=1,
        phase="measure",
        timestamp="2026-01-01T00:00:00.000+00:00",
        endpoint="sim",
        model="sim",
        protocol="openai-chat",
        transport="loadkit",
        host="127.0.0.1:8000",
        path="/v1/chat/completions",
        target="sim",
        auth="none",
        cold=False,
        prompt_tokens=128,
        prompt_sha256=f"{rng.getrandbits(256):064x}",
        output_tokens=GAPS + 1,
        ttft_ms=ttft,
        tpot_ms=sum(gaps) / GAPS,
        itl_ms=gaps,
        event_read=list(range(1, GAPS + 2)),
        token_events=GAPS + 1,
        http_status=200,
        outcome="ok",
        finish_reason="length",
        attempts=[attempt],
        **dict.fromkeys(names, end),
    )
    return _line({**record.to_json(), **visit, "start_ms": "START"})


def lines_of(count: int) -> list[bytes]:
    """So many lines that all differ."""
    rng = random.Random(1)
    return [_record({"visit": 0, "cell": "128x1"}, "run", "worker", rng) for _ in range(count)]


def main() -> None:
    """Run them until the master lets them go."""
    port, count, rate, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    before = time.process_time()
    reporters = [Reporter(port, number, rate / count, seconds) for number in range(count)]
    for reporter in reporters:
        with suppress(KeyboardInterrupt):
            reporter.done.wait()
    lags = [lag * 1e3 for reporter in reporters for lag in reporter.lags]
    print(
        json.dumps(
            {
                "rows": sum(reporter.acknowledged for reporter in reporters),
                "ack_p50_ms": nearest_rank(lags, 0.5),
                "ack_p99_ms": nearest_rank(lags, 0.99),
                "cpu_s": time.process_time() - before,
            }
        )
    )


if __name__ == "__main__":
    main()

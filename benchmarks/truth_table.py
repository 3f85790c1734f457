"""Plays the 31 scenarios of truth_table.json to loadkit's client and prints what it recorded, right or wrong.

    .venv/bin/python benchmarks/truth_table.py

A server in threads of this process writes each read at its time, on a real socket; `Caller` with the default transport
measures, all scenarios side by side. Counts and outcomes must be those of the file, exactly. Times are compared with
the server's own stamps of its writes (one clock): 15 ms are allowed, and a scenario whose times alone are off is
played again, alone, up to three times, because the machine may have been busy. Ends with 1 when a row is wrong.
"""

import contextlib
import random
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
import scenario

from loadkit.call.ask import Ask
from loadkit.call.choose import DEFAULT, TRANSPORTS
from loadkit.call.request import Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget
from loadkit.plan.endpoint import Endpoint, Timeouts
from loadkit.prompt.prompt import Prompt
from loadkit.record.record import Record

CASES = scenario.load(Path(__file__).with_name("truth_table.json"))
LATE_MS = 15.0
AGAIN = 3
SPREAD_S = 0.03  # between the starts: connecting 31 times at once takes longer than a read may be late
EXACT = ("outcome", "output_tokens", "output_tokens_source", "token_events")
MOMENTS = ("ttft_ms", "ttft_content_ms", "e2e_ms")
PROMPT = Prompt((b"Say something.",), 9, False, "estimate", 14, "0" * 64)


@dataclass
class Server:
    """Plays to each connection the case whose id is in the request's X-Request-Id; keeps the stamps of its writes."""

    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=64))
    stamps: dict[str, list[int]] = field(default_factory=dict)
    """By case: when the request had been read, then just before each write."""

    def __post_init__(self) -> None:
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                threading.Thread(target=self._answer, args=(sock,), daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(30)
        with sock, contextlib.suppress(OSError):
            asked = read_request(sock)
            case = next(case for case in CASES if case["id"] == asked)
            stamps = self.stamps[case["id"]] = [time.perf_counter_ns()]
            times = [at for at, _ in scenario.reads_of(case)]
            times.append((case.get("end") or {"t_ms": 1.0})["t_ms"])

            def before(index: int) -> None:
                due = stamps[0] + times[index] * 1e6
                time.sleep(max(0.0, (due - time.perf_counter_ns()) / 1e9))
                stamps.append(time.perf_counter_ns())

            scenario.play(sock, case, before)


def read_request(sock: socket.socket) -> str:
    """Read one whole request; return its X-Request-Id."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    named = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    while len(body) < int(named["Content-Length"]):
        body += sock.recv(65536)
    return named["X-Request-Id"]


def measure(server: Server, case: scenario.Case) -> Record:
    """One request, with loadkit's default transport and without retries."""
    endpoint = Endpoint("truth", server.base_url, "m", "openai-chat", timeouts=Timeouts(ttft=10, read=10, total=20))
    transport = TRANSPORTS[DEFAULT](None)
    caller = Caller(ask=Ask(endpoint), transport=transport, budget=RetryBudget(), rng=random.Random(1), policy=NO_RETRY)
    record = caller.run(Call(lambda: PROMPT, {"request_id": case["id"]}))
    transport.close()
    return record


def wrong_counts(case: scenario.Case, record: Record) -> list[str]:
    """What of outcome, counts and flags is not as the file has it."""
    expect = case["expect"]
    faults = [
        f"{name} {getattr(record, name)}, not {expect[name]}"
        for name in EXACT
        if name in expect and getattr(record, name) != expect[name]
    ]
    faults += [f"no flag {expect['flag']}" for _ in range("flag" in expect and expect["flag"] not in record.flags)]
    absent = [name for name in (*MOMENTS, "tpot_ms") if expect.get(name, 0) is None]
    return faults + [f"{name} is not absent" for name in absent if getattr(record, name) is not None]


def wrong_times(case: scenario.Case, record: Record, stamps: list[int]) -> list[str]:
    """Which times are further from the server's stamps than allowed. TTFT counts from t0, truth from the receipt."""
    expect, reads = case["expect"], scenario.reads_of(case)
    truth = {at: (stamp - stamps[0]) / 1e6 for (at, _), stamp in zip(reads, stamps[1:], strict=False)}
    faults = []
    for name in MOMENTS:
        if expect.get(name) is not None and not _near(getattr(record, name), truth[expect[name]], LATE_MS):
            faults.append(f"{name} {getattr(record, name)}, the server wrote at {truth[expect[name]]}")
    if expect.get("tpot_ms") is not None:
        tokens = (expect["e2e_ms"] - expect["ttft_ms"]) / expect["tpot_ms"]
        pace = (truth[expect["e2e_ms"]] - truth[expect["ttft_ms"]]) / tokens
        if not _near(record.tpot_ms, pace, LATE_MS / tokens):
            faults.append(f"tpot_ms {record.tpot_ms}, the server's was {pace}")
    return faults


def _near(found: float | None, truth: float, most: float) -> bool:
    return found is not None and abs(found - truth) <= most


def faults_of(server: Server, case: scenario.Case, record: Record) -> list[str]:
    """What is wrong with a record; its times are only looked at where the rest is right."""
    return wrong_counts(case, record) or wrong_times(case, record, server.stamps[case["id"]])


def judge(server: Server, case: scenario.Case, record: Record) -> tuple[Record, list[str]]:
    """The record of the case and its faults, after playing it again where only times are off."""
    for _ in range(AGAIN):
        if wrong_counts(case, record) or not faults_of(server, case, record):
            break
        record = measure(server, case)
    return record, faults_of(server, case, record)


def said(record: Record) -> str:
    """A record in a few words."""
    words: list[Any] = [record.outcome]
    if record.http_status not in (None, 200):
        words.append(record.http_status)
    if record.ttft_ms is not None:
        words.append(f"TTFT {record.ttft_ms:.0f}")
        if record.ttft_content_ms != record.ttft_ms and record.output_tokens:
            content = record.ttft_content_ms
            words.append("no content" if content is None else f"content {content:.0f}")
    if record.outcome == "ok":
        words.append("no TPOT" if record.tpot_ms is None else f"TPOT {record.tpot_ms:.1f}")
        words.append(f"{record.output_tokens} tok by {record.output_tokens_source}")
    elif record.token_events:
        words.append(f"{record.token_events} tok seen")
    words += [flag for flag in record.flags if flag != "cold"]
    return ", ".join(map(str, words))


def rows(cases: list[scenario.Case] | None = None) -> list[tuple[str, str, list[str]]]:
    """(name, what was recorded, faults) of every case, in the order of the file."""
    server, found = Server(), []
    cases = CASES if cases is None else cases
    gevent.get_hub().loop.update_now()  # delays and timeouts count from when the loop last ran: long ago
    greenlets = [gevent.spawn_later(SPREAD_S * n, measure, server, case) for n, case in enumerate(cases)]
    gevent.joinall(greenlets, timeout=60)
    for case, greenlet in zip(cases, greenlets, strict=True):
        record, faults = judge(server, case, greenlet.get(block=False))
        found.append((case["name"], said(record), faults))
    server.listener.close()
    return found


def markdown(found: list[tuple[str, str, list[str]]]) -> str:
    """The table."""
    lines = ["| case | loadkit recorded | verdict |", "|---|---|---|"]
    for name, words, faults in found:
        verdict = "wrong: " + "; ".join(faults) if faults else "right"
        lines.append(f"| {name} | {words} | {verdict} |")
    return "\n".join(lines)


def main() -> int:
    """Print the table and the count of wrong rows."""
    found = rows()
    wrong = sum(bool(faults) for _, _, faults in found)
    print(markdown(found))
    print(f"\n{len(found) - wrong} of {len(found)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""How far one machine goes: streams a worker measures well, and what a master pays for its workers.

    python benchmarks/scale.py streams [--workers 0,1,2,4] [--streams 16,64,128] [--truth URL]
    python benchmarks/scale.py shipping [--streams 16] [--pairs 1]
    python benchmarks/scale.py hold
    python benchmarks/scale.py workers [--workers 1,2,4] [--streams 32]
    python benchmarks/scale.py reporters [--reporters 1,50,200] [--rate 0,400]
    python benchmarks/scale.py saturation [--reporters 200] [--rate 200,400,800,1600]

Every row is a run of its own, with real processes. CPU is CPU time of a process, from its own telemetry inside the
visits of the run, so that other load on the machine changes it little; delays are as they were. `streams` and
`shipping` hold records against what the simulator stamped, or the truth server of `--truth`, which a simulator that is
late itself cannot stand for. Workers 0: no fleet, streams in the one process.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from client import line

from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram
from loadkit.measure.quantile import nearest_rank
from loadkit.record import jsonl
from loadkit.target import process
from loadkit.target.selftest import Truth, fetch_truth

HERE = Path(__file__).parent
SECONDS = 10
TOKENS = 128
LOCUSTFILE = "from loadkit.swarm import LadderShape, LadderUser, install\n\ninstall()\n"
SMOOTH = ("--ttft-ms", "200", "--itl-ms", "20")
SHORT = ("--ttft-ms", "20", "--itl-ms", "5")
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of processes inside the visits of a run, the seconds these took, and the p99 of their lag, ms."""

    cpu_s: float
    seconds: float
    lag_p99_ms: float | None

    @property
    def core(self) -> float:
        """Share of one core."""
        return self.cpu_s / self.seconds if self.seconds else 0.0


class Ended:
    """The folder of a run that is over."""

    def __init__(self, folder: Path) -> None:
        self.records = jsonl.read(folder / "records.jsonl").records
        self._samples = [row for row in jsonl.Rows(folder / "telemetry.jsonl") if row["kind"] == "telemetry"]

    @property
    def events(self) -> int:
        """Token events in all."""
        return sum(record["token_events"] or 0 for record in self.records)

    def cost(self, *, master: bool) -> Cost:
        """What the master, or all workers together, took; `seconds` are those of one process."""
        # Only a master's rows count workers. Where there is no fleet the one process is taken as the worker.
        rows = [row for row in self._samples if row["cell"] is not None and ("workers_live" in row) == master]
        lag, names = Histogram(LAG_BOUNDS_S), {row["worker"] for row in rows}
        for row in rows:
            lag.merge(Histogram.from_wire(LAG_BOUNDS_S, row["hub_lag"]))
        p99 = lag.quantile(0.99)
        return Cost(
            cpu_s=sum(row["cpu"] * row["seconds"] for row in rows),
            seconds=sum(row["seconds"] for row in rows) / max(1, len(names)),
            lag_p99_ms=None if p99 is None else p99 * 1e3,
        )


@contextmanager
def server(law: Iterable[str]) -> Iterator[str]:
    """The simulator, for as long as the block goes on."""
    running = process.start("loadkit.sim", list(law), background=False)
    os.sched_setaffinity(running.process.pid, {min(os.sched_getaffinity(0))})
    try:
        yield running.url
    finally:
        running.stop()


def run(url: str, workers: int, streams: int, *options: str) -> Ended:
    """`loadkit run` against the server at `url`."""
    with tempfile.TemporaryDirectory() as scratch:
        words = ["run", url, "--tiers", "128", "--concurrency", str(streams), "--no-retry", "--no-check", "--quiet"]
        words += [
            "--yes",
            "--no-metrics",
            "--out",
            scratch,
            *(["--workers", str(workers)] if workers else []),
            *options,
        ]
        ours = subprocess.Popen(
            [sys.executable, "-m", "loadkit.cli.main", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        apart(ours, workers)
        ours.wait()
        return Ended(Path(scratch) / "latest")


def apart(ours: "subprocess.Popen[bytes]", workers: int) -> None:
    """Those that measure on all cores but the first, which server and master have."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        return
    measuring = [psutil.Process(ours.pid)]
    if workers:
        os.sched_setaffinity(ours.pid, {first})
        while len(measuring := psutil.Process(ours.pid).children()) < workers:
            time.sleep(0.1)
    for one in measuring:
        one.cpu_affinity(others)


def reported(url: str, reporters: int, rate: float) -> tuple[Ended, Row]:
    """A real master and simulated workers that report `rate` records a second together; what these say of it."""
    with tempfile.TemporaryDirectory() as scratch, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        file = Path(scratch) / "locustfile.py"
        file.write_text(LOCUSTFILE)
        words = ["-f", file, "--headless", "--master", "--master-bind-host", "127.0.0.1", "--master-bind-port", port]
        words += ["--expect-workers", reporters, "--url", url, "--tiers", "128", "--concurrency", reporters, "--yes"]
        words += ["--duration", f"{SECONDS}s", "--no-check", "--no-metrics", "--quiet", "--out", scratch]
        master = subprocess.Popen(
            [sys.executable, "-m", "locust", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            told = subprocess.run(
                [sys.executable, HERE / "reporters.py", *map(str, (port, reporters, rate, SECONDS))],
                stdout=subprocess.PIPE,
                check=True,
                timeout=110,
            ).stdout
            master.wait(30)
        finally:
            master.kill()
            master.wait()
        return Ended(Path(scratch) / "latest"), json.loads(told)


def errors(records: Iterable[Row], truth: dict[str, Truth]) -> tuple[list[float], list[float]]:
    """|client - truth| of TTFT and of every gap, ms, over answered requests that were measured."""
    ttft, gaps = [], []
    for record in records:
        if record["phase"] == "measure" and record["outcome"] == "ok":
            true = truth[record["request_id"]]
            ttft.append(abs(record["ttft_ms"] - true.ttft_ms))
            gaps += [abs(ours - theirs) for ours, theirs in zip(record["itl_ms"], true.gaps_ms, strict=True)]
    return ttft, gaps


def truth_of(url: str) -> dict[str, Truth]:
    """What the simulator stamped."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        return fetch_truth(client, url.removesuffix("/v1"))


def streams(args: argparse.Namespace) -> None:
    """Errors and CPU per event, by workers and streams."""
    table("workers", "streams", "TTFT err p50 / p99 ms", "ITL err p50 / p99 ms", "CPU us/event", "lag p99 ms", "core")
    for workers in args.workers:
        for count in args.streams:
            with nullcontext(args.truth) if args.truth else server(SMOOTH) as url:
                ended = run(url, workers, count, "--rounds", "2", "--max-tokens", str(TOKENS))
                ttft, gaps = errors(ended.records, truth_of(url))
            cost = ended.cost(master=False)
            row(
                workers,
                count,
                *(f"{nearest_rank(found, 0.5):.3f} / {nearest_rank(found, 0.99):.3f}" for found in (ttft, gaps)),
                f"{cost.cpu_s / ended.events * 1e6:.1f}",
                _ms(cost.lag_p99_ms),
                f"{cost.core / max(1, workers):.0%}",
            )


def shipping(args: argparse.Namespace) -> None:
    """The errors of a worker that ships against those of a process that does not, both at once at the same server, so
    that whatever else the machine does falls on both."""
    (count,) = args.streams[:1]
    found: dict[int, tuple[list[float], list[float]]] = {0: ([], []), 1: ([], [])}
    with server(("--ttft-ms", "100", "--itl-ms", "10")) as url, ThreadPoolExecutor() as both:
        for _ in range(args.pairs):
            ran = list(
                both.map(lambda workers: run(url, workers, count, "--rounds", "24", "--max-tokens", "32"), found)
            )
            truth = truth_of(url)
            for ended, both_errors in zip(ran, found.values(), strict=True):
                first = [row for row in ended.records if row["visit"] == 0]  # a repeat has the machine for itself
                for kept, new in zip(both_errors, errors(first, truth), strict=True):
                    kept += new
    table("error", "quantile", "local ms", "worker that ships ms", "ratio", "n")
    for name, local, shipped in zip(("TTFT", "ITL"), found[0], found[1], strict=True):
        for quantile in (0.5, 0.9, 0.99):
            ours, theirs = nearest_rank(shipped, quantile), nearest_rank(local, quantile)
            assert ours is not None
            assert theirs is not None
            counted = f"{len(local)} / {len(shipped)}"
            row(name, f"p{100 * quantile:.0f}", f"{theirs:.3f}", f"{ours:.3f}", f"{ours / theirs:.2f}", counted)


def workers(args: argparse.Namespace) -> None:
    """What the master of real workers takes per record."""
    table("workers", "records/s", "master core", "master CPU ms / 1,000 records", "workers' CPU ms / 1,000 records")
    (count,) = args.streams[:1]
    for fleet in args.workers:
        with server(SHORT) as url:
            ended = run(url, fleet, count, "--duration", f"{SECONDS}s", "--max-tokens", "16")
        cost, theirs, records = ended.cost(master=True), ended.cost(master=False), len(ended.records)
        per = [f"{one.cpu_s / records * 1e6:.0f}" for one in (cost, theirs)]
        row(fleet, f"{records / cost.seconds:.0f}", f"{cost.core:.1%}", *per)


def reporters(args: argparse.Namespace) -> None:
    """What the master takes for its workers, and what for their records."""
    measured = []
    _reporters_head()
    with server(SHORT) as url:
        for rate in args.rate:
            for count in args.reporters:
                measured.append(_reporters_row(url, count, rate))
    print(f"\n{fit(measured)}")


def saturation(args: argparse.Namespace) -> None:
    """More and more records from the same workers."""
    _reporters_head()
    with server(SHORT) as url:
        for rate in args.rate:
            _reporters_row(url, args.reporters[-1], rate)


def _reporters_head() -> None:
    table("reporters", "records/s due", "taken/s", "master core", "lag p99 ms", "ack p50 / p99 ms", "reporters' core")


def _reporters_row(url: str, count: int, rate: float) -> tuple[int, float, float]:
    """Prints a row; returns (reporters, records taken a second, master's share of a core)."""
    ended, told = reported(url, count, rate)
    cost = ended.cost(master=True)
    taken = len(ended.records) / cost.seconds
    acks = "-" if told["ack_p50_ms"] is None else f"{told['ack_p50_ms']:.0f} / {told['ack_p99_ms']:.0f}"
    mine = f"{told['cpu_s'] / cost.seconds:.0%}"
    row(count, f"{rate:g}", f"{taken:.0f}", f"{cost.core:.1%}", _ms(cost.lag_p99_ms), acks, mine)
    return count, taken, cost.core


def fit(measured: Iterable[tuple[int, float, float]]) -> str:
    """Master's share of a core = base + a * workers + b * records/s, by least squares."""
    import numpy as np

    rows = np.array(list(measured))
    design = np.column_stack([np.ones(len(rows)), rows[:, :2]])
    base, worker, record = np.linalg.lstsq(design, rows[:, 2], rcond=None)[0]
    parts = f"{base * 100:.1f} % + {worker * 100:.3f} % per worker + {record * 1e5:.1f} % per 1,000 records/s"
    return f"master core = {parts}; 1,000 workers that report nothing: {(base + 1000 * worker) * 100:.0f} % of a core"


def table(*head: str) -> None:
    """The head of a Markdown table."""
    row(*head)
    row(*("---" for _ in head))


def row(*cells: object) -> None:
    """A line of it, as soon as it is measured."""
    print(line(map(str, cells)), flush=True)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _list(kind: type) -> Any:
    return lambda text: [kind(item) for item in text.split(",")]


def hold(args: argparse.Namespace) -> None:
    """How long shipping has the loop for itself: CPU of taking a batch from the outbox and giving it to the socket."""
    from reporters import lines_of
    from locust.rpc import Message, zmqrpc  # isort: skip
    from loadkit.swarm.channel import Outbox

    table("records in a batch", "bytes", "CPU ms p50", "CPU ms p99")
    sink = zmqrpc.Server("127.0.0.1", 0)
    client = zmqrpc.Client("127.0.0.1", sink.port, "worker")
    for size in (1, 4, 16, 64):
        times, sizes = [], []
        for _ in range(200):
            outbox = Outbox()
            for text in lines_of(size):
                outbox.put(text)
            began = time.thread_time_ns()
            batch = outbox.take()
            client.send(Message("loadkit", {"first": batch.first, "data": batch.data}, "worker"))
            times.append((time.thread_time_ns() - began) / 1e6)
            sizes.append(len(batch.data))
            sink.recv_from_client()
        row(size, max(sizes), *(f"{nearest_rank(times, q):.3f}" for q in (0.5, 0.99)))


VERBS = {run.__name__: run for run in (streams, shipping, hold, workers, reporters, saturation)}
DEFAULTS = {
    "streams": {"workers": [0, 1, 2, 4], "streams": [16, 64, 128]},
    "shipping": {"streams": [16]},
    "hold": {},
    "workers": {"workers": [1, 2, 4], "streams": [32]},
    "reporters": {"reporters": [1, 50, 200], "rate": [0.0, 400.0]},
    "saturation": {"reporters": [200], "rate": [200.0, 400.0, 800.0, 1600.0]},
}


def main() -> None:
    """Print the table that is asked for, as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=VERBS)
    parser.add_argument("--workers", type=_list(int))
    parser.add_argument("--streams", type=_list(int))
    parser.add_argument("--reporters", type=_list(int))
    parser.add_argument("--rate", type=_list(float))
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--truth", metavar="URL", help="a truth server for `streams` in place of the simulator")
    args = parser.parse_args()
    for name, value in DEFAULTS[args.table].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}\n")
    VERBS[args.table](args)


if __name__ == "__main__":
    main()

"""What scrapes of the live metrics do to the numbers of a run that goes on meanwhile.

    python benchmarks/scrapes.py [--rate 0,1,10] [--streams 64] [--seconds 6] [--rounds 3] [--truth URL]

Each run is a real `loadkit run` whose plan has as many cells as may have series of their own (100), with every kind of
objective. It visits the first cell and ends. That is 37,640 series; 100 cells at concurrency 1, all visited, are 45,535
but one stream is no load. This process is the scraper; it and the server have the first core, the run has the others.
Records are held against what the server stamped. A round runs every rate once, so that what the machine does meanwhile
falls on all; the quantiles are of all rounds together, `lag` is the median of the runs' own. Rate 0: nobody scrapes.
"""

import argparse
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from scale import SMOOTH, Ended, apart, errors, row, server, table, truth_of

from loadkit.live.labels import MAX_CELLS
from loadkit.live.render import OPENMETRICS
from loadkit.measure.quantile import nearest_rank

FIRST_TIER, STEP = 128, 8  # tokens
SLO = "ttft=9s,itl=900ms,tpot=900ms,e2e=99s"
VISITED = b'state="visit"} 1\n'


@dataclass(slots=True)
class Found:
    """What the runs of one rate said, times in ms; `page` is the last that was scraped."""

    page: bytes = b""
    scrapes: list[float] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    gap_errors: list[float] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)

    def take(self, ended: Ended, url: str) -> None:
        """Hold the records of a run against the server's truth."""
        ttft, gap_errors = errors(ended.records, truth_of(url))
        self.ttft += ttft
        self.gap_errors += gap_errors
        for record in ended.records:
            if (record["phase"], record["outcome"]) == ("measure", "ok"):
                self.gaps += record["itl_ms"]
        if (lag := ended.cost(master=False).lag_p99_ms) is not None:
            self.lags.append(lag)


def run(url: str, streams: int, seconds: float, rate: float, found: Found) -> None:
    """One run against the server at `url`, scraped `rate` times a second."""
    with tempfile.TemporaryDirectory() as scratch:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        tiers = ",".join(str(FIRST_TIER + STEP * number) for number in range(MAX_CELLS))
        words = ["run", url, "--tiers", tiers, "--concurrency", str(streams), "--slo", SLO, "--out", scratch]
        words += ["--duration", f"{seconds:g}s", "--max-duration", f"{seconds:g}s", "--metrics-port", str(port)]
        words += ["--no-retry", "--no-check", "--quiet", "--yes"]
        ours = subprocess.Popen(
            [sys.executable, "-m", "loadkit.cli.main", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        apart(ours, 0)
        with first_core():
            for took_ms, page in scrapes(ours, port, 1 / rate) if rate else ():
                if VISITED in page:  # else the run has not begun, or is over and lingers
                    found.scrapes.append(took_ms)
                    found.page = page
            ours.wait()
        found.take(Ended(Path(scratch) / "latest"), url)


@contextmanager
def first_core() -> Iterator[None]:
    """This process is where the server is, and not where the run measures."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def scrapes(ours: "subprocess.Popen[bytes]", port: int, every_s: float) -> Iterator[tuple[float, bytes]]:
    """Time (ms) and page of each scrape, as long as the run lives; at fixed times, as Prometheus does."""
    due = time.monotonic()
    while ours.poll() is None:
        time.sleep(max(0.0, due - time.monotonic()))
        due += every_s
        began = time.monotonic()
        with suppress(OSError, http.client.HTTPException):
            page = fetched(port)
            yield (time.monotonic() - began) * 1e3, page


def fetched(port: int) -> bytes:
    """The page, in the form that Prometheus asks for."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        asked.request("GET", "/metrics", headers={"Accept": OPENMETRICS})
        return asked.getresponse().read()
    finally:
        asked.close()


def both(values: list[float]) -> str:
    """p50 / p99 in ms."""
    return " / ".join("-" if (at := nearest_rank(values, q)) is None else f"{at:.3f}" for q in (0.5, 0.99))


def show(rate: float, found: Found) -> None:
    """The line of one rate."""
    row(
        f"{rate:g}",
        len(found.scrapes),
        sum(not text.startswith(b"#") for text in found.page.splitlines()) or "-",
        len(found.page) or "-",
        both(found.scrapes),
        both(found.gaps),
        both(found.gap_errors),
        both(found.ttft),
        f"{median(found.lags):.2f}" if found.lags else "-",
        len(found.gap_errors),
    )


def main() -> None:
    """Measure, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="0,1,10", help="scrapes a second")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=6.0, help="that a run is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--truth", metavar="URL", help="a truth server in place of the simulator")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, {args.rounds} rounds\n", flush=True)
    found = {float(rate): Found() for rate in args.rate.split(",")}
    for number in range(args.rounds):
        for rate, so_far in sorted(found.items(), reverse=bool(number % 2)):
            with nullcontext(args.truth) if args.truth else server(SMOOTH) as url:
                run(url, args.streams, args.seconds, rate, so_far)
    table(
        *("scrapes/s", "scrapes", "series", "page bytes", "scrape p50 / p99 ms", "ITL p50 / p99 ms"),
        *("ITL err p50 / p99 ms", "TTFT err p50 / p99 ms", "lag p99 ms", "gaps"),
    )
    for rate, so_far in sorted(found.items()):
        show(rate, so_far)


if __name__ == "__main__":
    main()

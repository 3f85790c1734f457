"""Hours in minutes: does anything grow in a run that goes on and on?

    python benchmarks/soak.py [--minutes 20] [--streams 200] [--itl-ms 100] [--workers 2]

Requests arrive at a constant rate that keeps so many streams in flight at the simulator, shared by the workers of a
`locust --processes` run. Bars, from the end of the first minute to the end: memory of each worker grows by less than
5 %, no process has more descriptors or greenlets than its streams explain, the schedule does not drift, and every
arrival is answered or counted as dropped. Prints a table; exit code 1 when a bar is broken.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from client import line

from loadkit.record import jsonl
from loadkit.target import process

HERE = Path(__file__).parent
TTFT_MS, TOKENS = 300, 16
FIRST_S = 60.0
GROWTH = 0.05  # of a worker's memory
MORE = 0.10  # of descriptors and greenlets, whose number follows the streams in flight
DRIFT_MS = 100.0  # between the first and the last fifth of the schedule
Row = dict[str, Any]


class Bar(NamedTuple):
    """One line of the table. `held` None: told, without a bar."""

    what: str
    first: float
    last: float
    unit: str
    held: bool | None


def soak(minutes: float, streams: int, itl_ms: float, workers: int) -> tuple[list[Bar], int]:
    """Run it; the bars, and the exit code of the run."""
    rate = streams / ((TTFT_MS + itl_ms * (TOKENS - 1)) / 1e3)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        server = process.start("loadkit.sim", ["--ttft-ms", str(TTFT_MS), "--itl-ms", str(itl_ms)], background=False)
        try:
            code = _run(folder, server.url, rate, minutes, streams, workers)
        finally:
            server.stop()
        run = folder / "runs" / "latest"
        manifest = json.loads((run / "manifest.json").read_text())
        records = [row for row in jsonl.Rows(run / "records.jsonl") if row["kind"] == "request"]
        notes = [[json.loads(text) for text in path.read_text().splitlines()] for path in sorted(folder.glob("*-*"))]
    return [*held(notes), *kept(records, manifest, rate)], code


def _run(folder: Path, url: str, rate: float, minutes: float, streams: int, workers: int) -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = ["-f", str(HERE / "soak_probe.py"), "--headless", "--processes", str(workers)]
    words += ["--master-bind-host", "127.0.0.1", "--master-bind-port", port, "--master-port", port]
    words += ["--url", url, "--tiers", "128", "--max-tokens", str(TOKENS), "--no-check", "--yes", "--no-metrics"]
    words += ["--rate", f"{rate:.3f}", "--arrivals", "constant", "--max-in-flight", str(streams * 2)]
    words += ["--duration", f"{minutes * 60:.0f}s", "--out", str(folder / "runs")]
    environ = {**os.environ, "SOAK_NOTES": str(folder)}
    command = [sys.executable, "-m", "locust", *words]
    return subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, timeout=minutes * 60 + 120).returncode


def held(notes: Iterable[list[Row]]) -> Iterator[Bar]:
    """What each process had after the first minute and at the end."""
    for process_notes in notes:
        role = process_notes[0]["role"]
        first, last = ends(process_notes)
        for name, scale, unit in (("rss", 1e-6, "MB"), ("descriptors", 1, ""), ("greenlets", 1, "")):
            before, after = (median(note[name] for note in part) * scale for part in (first, last))
            most = GROWTH if name == "rss" else MORE
            # A master keeps every TTFT and gap of the run, so that its numbers are exact ones.
            fits = None if (role, name) == ("master", "rss") else after < before * (1 + most)
            yield Bar(f"{role}: {name}", before, after, unit, fits)


def ends(notes: list[Row]) -> tuple[list[Row], list[Row]]:
    """The notes of a while after the first minute, and of as long a while before the load ended."""
    began = notes[0]["at"] + FIRST_S
    busy = [note for note in notes if note["at"] >= began]
    most = max(note["descriptors"] for note in busy)
    busy = [note for note in busy if note["descriptors"] >= most * 0.9]  # not after the streams have gone home
    part = max(2, len(busy) // 5)
    return busy[:part], busy[-part:]


def kept(records: list[Row], manifest: Row, rate: float) -> Iterator[Bar]:
    """Whether the schedule was kept, and what came of its arrivals."""
    for worker, rows in _by_worker(records).items():
        offsets = [row["start_ms"] - row["arrival"] / rate * 1e3 for row in rows]
        part = max(1, len(offsets) // 5)
        # The least: on a busy machine requests start late now and then, under a schedule that drifts all do.
        first, last = min(offsets[:part]), min(offsets[-part:])
        yield Bar(f"{worker}: drift of the schedule", 0.0, last - first, "ms", abs(last - first) < DRIFT_MS)
    counts = [visit["arrivals"] for visit in manifest["visits"] if "repeated_as" not in visit]
    planned, dropped = (sum(count[name] for count in counts) for name in ("planned", "dropped"))
    standing = {visit["visit"] for visit in manifest["visits"] if "repeated_as" not in visit}
    measured = [row for row in records if row["phase"] == "measure" and row["visit"] in standing]
    answered = sum(row["outcome"] == "ok" for row in measured)
    yield Bar("arrivals: planned, answered or dropped", planned, answered + dropped, "", answered + dropped == planned)
    # Dropped where the machine was too busy to serve so many: no fault of time.
    yield Bar("arrivals: planned, dropped", planned, dropped, "", None)


def _by_worker(records: list[Row]) -> dict[str, list[Row]]:
    """Arrivals of each worker and visit in the order of the schedule."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in sorted((row for row in records if row["arrival"] is not None), key=lambda row: row["arrival"]):
        found[f"worker {row['worker']} visit {row['visit']}"].append(row)
    return found


def main() -> int:
    """Print the table; 1 when a bar is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--itl-ms", type=float, default=100)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    bars, code = soak(args.minutes, args.streams, args.itl_ms, args.workers)
    print(line(("what", "after 1 minute", "at the end", "unit", "bar")))
    print(line("---" for _ in range(5)))
    for bar in bars:
        verdict = "-" if bar.held is None else "held" if bar.held else "BROKEN"
        print(line((bar.what, f"{bar.first:.1f}", f"{bar.last:.1f}", bar.unit, verdict)))
    broken = [bar for bar in bars if bar.held is False]
    print(f"\n{len(broken)} bars broken; exit code of the run: {code}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Find out how wrong the client is at a load: real requests to a server that knows the truth, stamp against stamp."""

import argparse
import json
import os
import re
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from loadkit.plan.errors import ConfigError
from loadkit.plan.given import filled
from loadkit.record.names import ExitCode

if TYPE_CHECKING:
    from loadkit.target.selftest import ErrorBars

DEFAULT_STREAMS = "8,64,256"
LATE_MS = 1.0  # a server that is later than this was too busy itself


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Streams to try, and another truth server than our own simulator."""
    parser.add_argument("--streams", default=DEFAULT_STREAMS, metavar="LIST", help=f"default {DEFAULT_STREAMS}")
    parser.add_argument("--truth", metavar="URL", help="base URL of another truth server; default: the simulator")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def main(args: argparse.Namespace) -> int:
    """Measure at each load, print the error bars, keep them for later runs on this machine."""
    items = [item.strip() for item in args.streams.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,5}", item) and 1 <= int(item) <= 10_000 for item in items):
        raise ConfigError(f"--streams {args.streams[:40]!r}: must be whole numbers from 1 to 10000, such as 64,256")
    truth = None if args.truth is None else filled("--truth", args.truth)
    try:
        bars = _measure(sorted({int(item) for item in items}), truth)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    print(json.dumps([asdict(bar) for bar in bars], indent=2) if args.json else table(bars))
    return ExitCode.COMPLETE


def _measure(loads: list[int], url: str | None) -> "list[ErrorBars]":
    # The swarm patches the standard library, so it comes before what opens sockets, and only for this verb.
    from loadkit.swarm.selftest import measure  # isort: skip
    from loadkit.swarm.progress import Progress
    from loadkit.target import process
    from loadkit.target.selftest import keep

    running = None if url else process.start("loadkit.sim", ["--ttft-ms", "200", "--itl-ms", "20"], background=False)
    if running is not None and running.process is not None:
        _share_cores(running.process.pid)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bars = [
                measure(
                    url or (running.url if running else ""),
                    streams,
                    Path(scratch),
                    os.environ,
                    progress=lambda request: Progress(request.plan, sys.stderr),
                )
                for streams in loads
            ]
    finally:
        if running is not None:
            running.stop()
    keep(bars, os.environ)
    return bars


def _share_cores(server: int) -> None:
    """The server on one core and this process on the others, where there are two: each would steal the other's time."""
    with suppress(OSError, AttributeError):
        first, *rest = sorted(os.sched_getaffinity(0))
        if rest:
            os.sched_setaffinity(server, {first})
            os.sched_setaffinity(0, rest)


def table(bars: "list[ErrorBars]") -> str:
    """The error bars as plain text, and the highest load at which they stay under 1 ms."""
    head = ("streams", "events/s", "TTFT err p50", "p99 ms", "ITL err p50", "p99 ms", "CPU us/event", "server late p99")
    rows: list[tuple[str, ...]] = [head]
    for bar in bars:
        values = (bar.ttft_p50_ms, bar.ttft_p99_ms, bar.itl_p50_ms, bar.itl_p99_ms)
        shown = ["-" if value is None else f"{value:.3f}" for value in values]
        rate = "-" if bar.events_per_s is None else f"{bar.events_per_s:,.0f}"
        cost = "-" if bar.cpu_s_per_million is None else f"{bar.cpu_s_per_million:.1f}"
        late = "-" if bar.server_late_p99_ms is None else f"{bar.server_late_p99_ms:.3f} ms"
        rows.append((str(bar.streams), rate, *shown, cost, late))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(value.rjust(width) for value, width in zip(row, widths, strict=True)) for row in rows]
    good = [bar.streams for bar in bars if bar.good]
    lines.append(
        f"Errors stay under 1 ms at p99 up to {max(good)} streams." if good else "No load stays under 1 ms at p99."
    )
    late_loads = [str(bar.streams) for bar in bars if (bar.server_late_p99_ms or 0) > LATE_MS]
    if late_loads:
        lines.append(
            f"At {', '.join(late_loads)} streams the server itself was late; the truth is what it really wrote."
        )
    return "\n".join(lines)

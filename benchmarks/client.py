"""Accuracy and cost of the client against a truth server, with a bare socket reader beside it in the same run.

    python benchmarks/client.py [--streams 8,64,256,512] [--truth URL] [--rounds 3]

Client and bare reader take turns, and each number is the median of its rounds: a machine that others use is faster at
one moment than at the next. Without a URL the simulator is the truth server, smooth and then in lock step (all tokens
at the same instant, as batching engines emit). Read the ratio: the machine's own speed is in both columns. Server on
the first core, client on the others.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from statistics import median

from loadkit.target import process

HERE = Path(__file__).parent
COLUMNS = (
    *("load", "streams", "TTFT err p50 / p99 ms", "ITL err p50 / p99 ms"),
    *("CPU us/event", "bare reader", "ratio", "server late p99 ms"),
)
SIMULATORS = {"smooth": ["--ttft-ms", "200", "--itl-ms", "20"]}
SIMULATORS["lock step"] = [*SIMULATORS["smooth"], "--lock-step"]


def measured(url: str, streams: int) -> dict:
    """The error bars of the client, from `loadkit selftest` in a process of its own."""
    command = ["loadkit.cli.main", "selftest", "--truth", url, "--streams", str(streams), "--json"]
    return json.loads(_run(["-m", *command]))[0]


def bare(url: str, streams: int) -> dict:
    """The floor, from raw_reader.py in a process of its own."""
    return json.loads(_run([str(HERE / "raw_reader.py"), url, str(streams)]))


def _run(arguments: list[str]) -> str:
    return subprocess.run(
        [sys.executable, *arguments], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout


def row(load: str, url: str, streams: int, rounds: int) -> str:
    """One line of the table."""
    pairs = [(measured(url, streams), bare(url, streams)["cpu_us_per_event"]) for _ in range(rounds)]
    ours = {name: [one[name] for one, _ in pairs] for name in pairs[0][0]}
    cells = [
        load,
        str(streams),
        f"{median(ours['ttft_p50_ms']):.3f} / {median(ours['ttft_p99_ms']):.3f}",
        f"{median(ours['itl_p50_ms']):.3f} / {median(ours['itl_p99_ms']):.3f}",
        f"{median(ours['cpu_s_per_million']):.1f}",
        f"{median(floor for _, floor in pairs):.1f}",
        f"{median(one['cpu_s_per_million'] / floor for one, floor in pairs):.2f}",
        "-" if None in (late := ours["server_late_p99_ms"]) else f"{median(late):.3f}",
    ]
    return line(cells)


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="8,64,256,512")
    parser.add_argument("--truth", metavar="URL")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    print(line(COLUMNS))
    print(line("---" for _ in COLUMNS))
    for load, law in {"given": []}.items() if args.truth else SIMULATORS.items():
        running = None if args.truth else process.start("loadkit.sim", law, background=False)
        if running is not None and len(cores) > 1:
            with suppress(OSError):
                os.sched_setaffinity(running.process.pid, {cores[0]})
                os.sched_setaffinity(0, set(cores[1:]))
        for streams in args.streams.split(","):
            print(row(load, args.truth or running.url, int(streams), args.rounds), flush=True)
        if running is not None:
            running.stop()


if __name__ == "__main__":
    main()

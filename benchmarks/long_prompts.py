"""How late the stamps of light streams get while long prompts are sent beside them, in one process on one core.

    python benchmarks/long_prompts.py [--truth URL] [--bytes 4194304] [--seconds 5]

Three stretches: the light streams alone, beside long prompts sent by loadkit, and beside the same prompts sent by stock
httpx (`json=`, sockets patched by gevent). Late is our stamp of an event minus the server's of its write, on one clock:
over the whole stretch, and for events written while a prompt was on its way, from its building to its last byte.
Read the ratio: the machine's own speed is in all rows. Without a URL the simulator is the truth server.
"""

import argparse
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate

import httpx
from beside import ITL_MS, Bench, Stretch, measure, send_spliced, send_stock
from gevent import monkey

from loadkit.measure.quantile import nearest_rank
from loadkit.plan.endpoint import Endpoint
from loadkit.prompt.build import BuildSpec, build_in_child
from loadkit.target import process
from loadkit.target.selftest import fetch_rows

LIGHT_BYTES = 256
LAW = ["--ttft-ms", "50", "--jitter", "0.2", "--itl-ms", str(ITL_MS)]
SENDERS = {"nobody": None, "loadkit": send_spliced, "stock httpx": send_stock}
COLUMNS = (
    *("long prompts by", "sent", "events", "late p50 / p99 / max ms"),
    *("events while sending", "late p50 / p99 / max ms", "p99 to loadkit's"),
    *("upload p50 / max ms", "before t0 p50 / max ms", "of it prompt() ms", "RSS before / after MB"),
)


def lateness(stretch: Stretch, truth: dict[str, list[int]]) -> tuple[list[float], list[float]]:
    """Our stamp minus the server's (ms) of all events, and of those written while a long prompt was on its way."""
    every, while_sending = [], []
    for record in stretch.light:
        assert record.start_ms is not None
        assert record.ttft_ms is not None
        assert record.request_id is not None
        stamps = accumulate(record.itl_ms or (), initial=record.start_ms + record.ttft_ms)
        for ours, theirs in zip(stamps, truth.get(record.request_id, ()), strict=False):
            every.append(ours - theirs / 1e6)
            if any(start <= theirs <= end for start, end in stretch.sending):
                while_sending.append(every[-1])
    return every, while_sending


def row(name: str, stretch: Stretch, late: tuple[list[float], list[float]], base: float | None) -> str:
    """One line of the table; `base` is the p99 that the others are held against."""
    every, while_sending = late
    p99 = nearest_rank(while_sending or every, 0.99)
    cells = [
        name,
        str(len(stretch.sending)),
        str(len(every)),
        quantiles(every, 0.5, 0.99, 1),
        str(len(while_sending)),
        quantiles(while_sending, 0.5, 0.99, 1),
        f"{p99 / base:.2f}" if p99 is not None and base else "-",
        quantiles(stretch.upload, 0.5, 1),
        quantiles(stretch.before_t0, 0.5, 1),
        quantiles(stretch.splice, 0.5, 1),
        " / ".join(f"{value:.0f}" for value in stretch.rss),
    ]
    return line(cells)


def quantiles(values: list[float], *wanted: float) -> str:
    """Nearest-rank quantiles, ms; 1 is the largest."""
    return " / ".join(f"{nearest_rank(values, q):.3f}" for q in wanted) if values else "-"


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def told(url: str) -> dict[str, list[int]]:
    """The server's event times (ns) by request id."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        rows = fetch_rows(client, url.removesuffix("/v1"))
    return {request_id: times for request_id, _, times in rows}


def table(url: str, long_bytes: int, seconds: float) -> None:
    """Measure the stretches, then ask the server for the truth and print the rows."""
    with tempfile.TemporaryDirectory() as folder:
        light, long = build_in_child(BuildSpec("bytes", {}, (LIGHT_BYTES, long_bytes), 0, "en", folder))
        bench = Bench(Endpoint("truth", url, "sim"), light, long)
        stretches = {name: measure(bench, seconds, send) for name, send in SENDERS.items()}
    truth = told(url)
    late = {name: lateness(stretch, truth) for name, stretch in stretches.items()}
    base = nearest_rank(late["loadkit"][1], 0.99)
    print(line(COLUMNS))
    print(line("---" for _ in COLUMNS))
    for name, stretch in stretches.items():
        print(row(name, stretch, late[name], base))


def main() -> None:
    """Server on the first core, this process on the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", metavar="URL")
    parser.add_argument("--bytes", type=int, default=4 << 20, help="of a long prompt")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each stretch")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    running = None if args.truth else process.start("loadkit.sim", LAW, background=False)
    if running is not None and len(cores) > 1:
        with suppress(OSError):
            os.sched_setaffinity(running.process.pid, {cores[0]})
            os.sched_setaffinity(0, set(cores[1:]))
    monkey.patch_socket()  # what stock httpx needs to share the process; loadkit does not care
    try:
        table(running.url if running else args.truth, args.bytes, args.seconds)
    finally:
        if running is not None:
            running.stop()


if __name__ == "__main__":
    main()

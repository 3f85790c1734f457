"""How long `loadkit report` takes over a run folder, and how much memory.

    python benchmarks/report_speed.py [--records 200000] [--gaps 128] [--folder DIR]

The run is made up: eight tiers at concurrency 1, 16, 64 and 256 on four workers, every record with all its gaps, one in
a hundred refused, and a row of telemetry per worker and second. With --folder it is kept, and used again the next time.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from loadkit.measure.histogram import LAG_BOUNDS_S, Histogram
from loadkit.record.jsonl import Writer, header
from loadkit.record.record import Record

TIERS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
CONCURRENCIES = (1, 16, 64, 256)
WORKERS = 4


def cells(records: int) -> Iterator[tuple[int, int, int]]:
    """(tier, concurrency, number in the cell) of every record, the cells one after another."""
    rounds = -(-records // (len(TIERS) * sum(CONCURRENCIES)))
    left = records
    for concurrency in CONCURRENCIES:
        for tier in TIERS:
            count = min(rounds * concurrency, left)
            yield from ((tier, concurrency, number) for number in range(count))
            left -= count


def write(folder: Path, records: int, gaps: int) -> None:
    """The records and the telemetry of a run of that size, as a run writes them."""
    rng = np.random.default_rng(1)
    with Writer(folder / "records.jsonl") as writer:
        writer.header(header())
        free: list[float] = []  # when each stream of the open visit is free again, ms
        end_ms, visit, place = 0.0, 0, None
        for tier, concurrency, number in cells(records):
            if place != (tier, concurrency):
                place, visit, free = (tier, concurrency), visit + 1, [end_ms] * concurrency
            itl = np.round(rng.lognormal(3.0, 0.1, gaps), 6).tolist()
            ttft = round(float(0.2 * tier * rng.lognormal(0, 0.02) + 40), 6)
            last = ttft + sum(itl)
            stream = number % concurrency
            writer.write(_record(tier, concurrency, number, visit, free[stream], ttft, last, itl))
            free[stream] += last + 0.5
            end_ms = max(end_ms, free[stream])
    with Writer(folder / "telemetry.jsonl") as writer:
        lag = Histogram(LAG_BOUNDS_S)
        lag.add(0.3)
        row = {"kind": "telemetry", "timestamp": "2026-01-01T00:00:00.000+00:00", "cpu": 0.2}
        row |= {"hub_lag": lag.to_wire(), "users_planned": 1, "users_live": 1}
        for second in range(int(end_ms / 1000)):
            for worker in range(WORKERS):
                writer.write({**row, "at_ms": 1000.0 * second, "worker": f"w{worker}"})


def _record(
    tier: int, concurrency: int, number: int, visit: int, at_ms: float, ttft: float, last: float, itl: list[float]
) -> Record:
    record = Record(
        run_id="speed",
        request_id=f"speed-{visit}-{number}",
        response_id=f"made-up-{number}",
        worker=f"w{number % concurrency % WORKERS}",
        cell=f"{tier}x{concurrency}",
        tier_tokens=tier,
        target_tokens=tier,
        concurrency=concurrency,
        round=1 + number // concurrency,
        visit=visit,
        phase="measure",
        timestamp="2026-01-01T00:00:00.000+00:00",
        start_ms=at_ms,
        endpoint="made-up",
        model="made-up",
        response_model="made-up",
        prompt_sha256="0" * 64,
        hub_lag_max_ms=0.2,
        max_tokens=len(itl) + 1,
    )
    if number % 100 == 99:
        record.outcome, record.http_status, record.error_message = "rate_limited", 429, "slow down"
        record.done_ms = last
        return record
    record.outcome, record.http_status, record.finish_reason = "ok", 200, "length"
    record.prompt_tokens, record.prompt_tokens_source, record.bos_tokens, record.cached_tokens = tier, "usage", 1, 0
    record.output_tokens, record.output_tokens_source = len(itl) + 1, "usage"
    record.ttft_ms = record.ttft_content_ms = ttft
    record.last_token_ms = record.finish_ms = record.done_ms = record.e2e_ms = last
    record.decode_ms, record.tpot_ms = last - ttft, (last - ttft) / len(itl)
    record.itl_ms, record.event_tokens = itl, None
    record.event_read, record.token_events = list(range(1, len(itl) + 2)), len(itl) + 1
    record.prefill_tokens_per_s, record.decode_tokens_per_s = 1000 * tier / ttft, 1000 / record.tpot_ms
    record.unit_price_ms = ttft / (tier - 1)
    record.attempts = [{"outcome": "ok", "http_status": 200, "start_ms": 0.0, "end_ms": last, "wait_ms": None}]
    return record


def report(folder: Path) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak resident memory (MB) of `loadkit report` over the folder, in its own process."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "loadkit.cli.main", "report", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Make the run, report it, print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--gaps", type=int, default=128)
    parser.add_argument("--folder", type=Path, help="keep the made-up run here, or use the one that is there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "records.jsonl"
        if not path.exists():
            write(folder, args.records, args.gaps)
        size = path.stat().st_size / 1e6
        seconds, cpu, peak = report(folder)
        summary = json.loads((folder / "summary.json").read_text())
        print(
            f"{summary['totals']['requests']} records, {size:.0f} MB of JSON: "
            f"reported in {seconds:.1f} s ({cpu:.1f} s of CPU), peak {peak:.0f} MB"
        )


if __name__ == "__main__":
    main()

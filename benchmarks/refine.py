"""What `--refine` saves: the interval of a known knee, and the tokens it took, of three ladders on the simulator.

    python benchmarks/refine.py [--knee 700] [--rounds 3]

A coarse ladder of doubling tiers, the same with `--refine`, and uniformly finer ladders: with two steps per doubling,
and with as many as it takes to reach the refined interval. TTFT jumps at the knee, so an interval is a gap between two
tiers. Times are long enough that a busy machine does not matter; all prompt and output tokens count, warm-up too.
"""

import argparse
import subprocess
import sys
import tempfile
from math import ceil, log2
from pathlib import Path

from loadkit.analysis.knee import Knee, locate
from loadkit.record import jsonl
from loadkit.target import process

TIERS = tuple(128 * 2**i for i in range(6))
OUTPUT_TOKENS = 2
LAW = ["--ttft-ms", "40", "--per-token-ms", "0.01", "--break-ms", "120", "--itl-ms", "2"]


def measured(url: str, tiers: list[int], rounds: int, refine: int) -> list[dict]:
    """The records of one run."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["run", url, "--tiers", ",".join(map(str, tiers)), "--concurrency", "1", "--rounds", str(rounds)]
        words += ["--max-tokens", str(OUTPUT_TOKENS), "--refine", str(refine), "--seed", "1", "--out", folder]
        # Exit codes say that the machine was busy, which the long times of the law make irrelevant.
        subprocess.run(
            [sys.executable, "-m", "loadkit.cli.main", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return jsonl.read(Path(folder) / "latest" / "records.jsonl").records


def located(records: list[dict]) -> Knee:
    """The knee of TTFT over the tiers that were measured."""
    samples: dict[int, list[float]] = {}
    for record in records:
        if record["phase"] == "measure":
            samples.setdefault(record["tier_tokens"], []).append(record["ttft_ms"])
    return locate(list(samples), list(samples.values()))


def octaves(knee: Knee) -> float:
    """Width of the interval of a knee, in doublings; infinite without one."""
    return log2(knee.ci[1] / knee.ci[0]) if knee.ci and knee.ci[0] > 0 else float("inf")


def row(name: str, records: list[dict]) -> str:
    """One line of the table."""
    knee = located(records)
    tiers = {record["tier_tokens"] for record in records}
    tokens = sum(record["prompt_tokens"] + record["output_tokens"] for record in records)
    interval = f"{knee.ci[0]:,.0f} to {knee.ci[1]:,.0f}" if knee.ci else "-"
    return f"| {name} | {len(tiers)} | {knee.kind} | {interval} | {octaves(knee):.2f} | {tokens:,} |"


def main() -> None:
    """Print the table as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--knee", type=int, default=700, help="prompt tokens above which TTFT jumps")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    simulator = process.start("loadkit.sim", [*LAW, "--break-at", str(args.knee)], background=False)
    url = simulator.url
    print(f"The knee is at {args.knee} tokens.\n")
    print("| ladder | tiers | kind | 90 % interval | octaves | tokens |\n| --- | --- | --- | --- | --- | --- |")
    try:
        print(row("coarse", measured(url, list(TIERS), args.rounds, 0)), flush=True)
        refined = measured(url, list(TIERS), args.rounds, 5)
        print(row("coarse, --refine 5", refined), flush=True)
        for parts in sorted({2, min(16, ceil(1 / octaves(located(refined)) - 0.1) or 1)}):
            finer = [round(TIERS[0] * 2 ** (i / parts)) for i in range(parts * (len(TIERS) - 1) + 1)]
            print(row(f"uniform, {parts} per octave", measured(url, finer, args.rounds, 0)), flush=True)
    finally:
        simulator.stop()


if __name__ == "__main__":
    main()

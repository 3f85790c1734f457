"""Two minutes of what `make soak` does for twenty: nothing grows, and the schedule does not drift."""

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"
HANG_S = 300


@pytest.mark.timeout(HANG_S + 20)
def test_nothing_grows_and_the_schedule_is_kept():
    """200 streams on two workers for two minutes: all bars of the table are held, each process has its lines in it."""
    words = ["--minutes", "2", "--streams", "200", "--itl-ms", "200"]
    done = subprocess.run([sys.executable, SOAK, *words], capture_output=True, text=True, timeout=HANG_S, check=False)
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|")][2:]
    assert [row for row in rows if row[-1] == "BROKEN"] == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert [sum(row[0] == f"worker: {name}" for row in rows) for name in ("rss", "descriptors", "greenlets")] == [2] * 3
    assert sum("drift of the schedule" in row[0] for row in rows) == 2
    planned = next(row[1] for row in rows if row[0] == "arrivals: planned, answered or dropped")
    assert float(planned) > 100 * 60  # 200 streams of 3.3 s for 120 s

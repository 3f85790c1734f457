"""The table of what a master pays for many workers, as docs/scale.md prints it, with few of them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCALE = Path(__file__).parents[2] / "benchmarks" / "scale.py"
HANG_S = 100
REPORTERS, RATE = 3, 60.0


@pytest.mark.timeout(HANG_S + 20)
def test_simulated_workers_are_workers_to_the_master():
    """A real master takes what they report at the rate that is due, and acknowledges it."""
    words = ["saturation", "--reporters", str(REPORTERS), "--rate", str(RATE)]
    done = subprocess.run([sys.executable, SCALE, *words], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    *_, row = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    count, due, taken, *_, acknowledged, _ = row
    assert (count, float(due)) == (str(REPORTERS), RATE)
    assert RATE / 2 < float(taken) < 2 * RATE
    median, worst = map(float, acknowledged.split(" / "))
    assert 0 < median <= worst

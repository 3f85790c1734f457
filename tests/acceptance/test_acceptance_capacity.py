"""A goodput read off a closed-loop ladder is what an open loop sustains: one setting of `benchmarks/capacity_check.py`,
shortened."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.quiet

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "capacity_check.py"
BUSY = ("lag", "CPU")


@pytest.fixture(scope="module")
def capacity_check():
    """The benchmark as a module."""
    spec = importlib.util.spec_from_file_location("capacity_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["capacity_check"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["capacity_check"]


def test_the_predicted_rate_holds_at_095_and_fails_at_11(capacity_check, tmp_path):
    """Two slots of 200 ms: predicted within 10 % of 10 requests/s, confirmed on both sides. A cell that cannot be used
    blames the machine, and then nothing can be said."""
    setting = capacity_check.Setting(2, {"ttft-ms": 150, "itl-ms": 10}, 128, 6, "ttft=250ms", rounds=4)
    found = capacity_check.check(setting, tmp_path, seconds=4)
    if found.invalid:
        assert all(any(word in reason for word in BUSY) for reason in found.invalid), found.invalid
        return
    assert found.confirmed, found.text
    assert "at 2 streams (the law allows 10.000), bound by TTFT" in found.text
    assert 9.0 < float(found.text.split()[1].removesuffix("/s")) < 10.2

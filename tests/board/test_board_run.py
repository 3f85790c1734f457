"""`loadkit run --target board` end to end: a fake Rock 5B, a server whose law is known, and heat in the middle."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from loadkit.plan.edge import Edge
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.target import board as target

HANG_S = 100
RATE = 41.58  # tokens/s: the published one of Qwen2-0.5B as w8a8
HERE = Endpoint(name="b", base_url="http://127.0.0.1:8080/v1", model="m")
AWAY = Endpoint(name="b", base_url="http://rock-5b:8080/v1", model="m")


@pytest.fixture
def server():
    """A simulator that decodes at RATE, under the name of a model that has a card."""
    law = ("--ttft-ms", "40", "--per-token-ms", "0.05", "--itl-ms", str(1000 / RATE))
    words = (
        sys.executable,
        "-P",
        "-m",
        "loadkit.sim",
        "serve",
        "--model",
        "Qwen2-0.5B-Instruct",
        "--stdin-guard",
        *law,
    )
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield json.loads(process.stdout.readline())["url"]
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def lines(path):
    """The whole lines of a file that may still be written, or not be there yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_a_run_on_a_board_that_gets_hot(rk3588, server, tmp_path):
    """The decode rate is the law's, its share of the memory's bound the published one, the cells after the heat began
    are marked and the one before is not, and the first three answers of each stratum are recorded and left out."""
    rk3588.set("sys/class/devfreq/dmc/governor", "performance")
    rk3588.until("sys/class/devfreq/dmc/cur_freq", 2112000000)
    words = ("run", server, "--target", "board", "--board", "rk3588", "--sysfs-root", str(rk3588.root))
    words += ("--quant", "w8a8", "--rounds", "1", "--max-tokens", "24", "--no-metrics", "--out", str(tmp_path / "runs"))
    command = [sys.executable, "-P", "-m", "loadkit.cli.main", *words]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "runs" / "latest"
    heat(process, folder, rk3588)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode in (0, 6), err
    manifest = json.loads((folder / "manifest.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    records = [row for row in lines(folder / "records.jsonl") if row["kind"] == "request"]

    order = [visit["cell"] for visit in manifest["visits"]]
    assert sorted(order) == ["1024x1", "128x1", "512x1"]
    assert [ping["outcome"] for ping in manifest["check"]["pings"]] == ["ok", "ok"]
    for cell in order:
        phases = [row["phase"] for row in records if row["cell"] == cell]
        assert phases == ["warmup", "warmup", "warmup", "measure"]
    cells = {cell["cell"]: cell for cell in summary["cells"]}
    assert {"throttled", "unlocked"}.isdisjoint(cells[order[0]]["cell_flags"])
    for cell in order[1:]:
        assert "throttled" in cells[cell]["cell_flags"]
        assert cells[cell]["validity"]["status"] != "valid"
        assert any("thermal-cpufreq-0 was in use (state 3)" in reason for reason in cells[cell]["validity"]["reasons"])
    assert "unlocked" in cells[order[1]]["cell_flags"]

    board = summary["board"]
    assert (board["device"], board["quantisation"]["weight_bits"], board["runs_on"]) == ("Radxa ROCK 5B", 8, "npu")
    assert board["ranges"]["frequency_hz"]["ddr"] == [1560e6, 2112e6]
    row = next(row for row in board["cells"] if row["cell"] == order[0])
    assert row["decode_tokens_per_s"] == pytest.approx(RATE, rel=0.1)
    assert row["Decode_TPS_P50"] == pytest.approx(1000 / row["ITL_P50"])
    assert row["bound"]["tokens_per_s"] == pytest.approx(68.4, abs=0.05)
    assert row["bound"]["share"] == pytest.approx(0.608, rel=0.1)
    assert row["bound"]["reading"] == "plausible"
    assert all(each["n"] == 1 for each in board["cells"])
    for name in ("TTFT_P50", "TTFT_P99", "ITL_P50", "ITL_P99", "Decode_TPS_P50"):
        assert name in out
        assert name in (folder / "report.md").read_text()
    assert f"Board: {board['title']} (Radxa ROCK 5B), w8a8 (8 bit weights" in " ".join(out.split())


def heat(process, folder, fake):
    """When the second cell's third answer is there, throttle: a cooling device in use and memory at a lower step."""
    until = time.monotonic() + HANG_S
    while process.poll() is None:
        assert time.monotonic() < until, "the run does not come to its second cell"
        visits = [row.get("visit") for row in lines(folder / "records.jsonl") if row["kind"] == "request"]
        if len([visit for visit in visits if visit == 1]) >= 2:
            fake.set("sys/class/thermal/cooling_device0/cur_state", 3)
            fake.set("sys/class/devfreq/dmc/max_freq", 1560000000)
            return
        time.sleep(0.05)


@pytest.fixture
def facts(rk3588, tmp_path):
    """What the manifest would say of the fake board; nobody sleeps."""

    def make(endpoint=HERE, **asked):
        edge = Edge(**{"board": "rk3588", "root": str(rk3588.root), "quant": "w8a8", **asked})
        return target.facts(edge, endpoint, tmp_path, sleep=lambda seconds: None)

    return SimpleNamespace(make=make, board=rk3588)


def test_the_board_and_the_way_to_its_server_are_two_things(facts):
    """A URL elsewhere says nothing of where the board is read: without a host it is not, and nothing is guessed."""
    away = facts.make(AWAY)
    assert away["host"] is None
    assert "before" not in away
    assert facts.make(HERE)["host"] == "local"
    assert facts.make(AWAY, host="local")["before"]["frequency_hz"]["npu"] == 3e8


def test_a_board_run_without_a_quantisation_is_refused(facts):
    """It is refused with what this board could run; one that the board cannot compute with too."""
    with pytest.raises(ConfigError, match=r"needs --quant NAME, such as w8a8, .*group size decide"):
        facts.make(quant=None)
    with pytest.raises(ConfigError, match=r"--quant w4a16: the NPU of Rockchip RK3588"):
        facts.make(quant="w4a16")


def test_bandwidth_is_theoretical_given_or_measured(facts):
    """The highest step of the board's own list, a figure as it was given, or a reading that names its reader."""
    found = facts.make()["bandwidth"]
    assert (found["bytes_per_s"], found["bus_bits"], found["clock_hz"]) == (33.792e9, 64, 2112e6)
    facts.board.set("sys/class/devfreq/dmc/available_frequencies", "528000000 1560000000")
    assert facts.make()["bandwidth"]["bytes_per_s"] == pytest.approx(24.96e9)
    given = facts.make(bandwidth="25.8GB")["bandwidth"]
    assert (given["bytes_per_s"], given["source"]) == (25.8e9, "given")
    with pytest.raises(ConfigError, match="--bandwidth measure needs the board itself"):
        facts.make(AWAY, bandwidth="measure")
    with pytest.raises(ConfigError, match="--bandwidth: 'fast' is no size"):
        facts.make(bandwidth="fast")


def test_a_card_that_is_named_goes_before_the_models_name(facts):
    """Its dimensions go into the manifest, where every later report finds them; an unknown one is a line."""
    assert facts.make(card="Qwen2.5-1.5B")["dimensions"]["layers"] == 28
    with pytest.raises(ConfigError, match="--card: no model card for 'nothing-1B'"):
        facts.make(card="nothing-1B")

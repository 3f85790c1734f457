"""A board read once a second: what the texts of a kernel mean, on the fake trees, and what the sampler says."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from loadkit.board import sensors
from loadkit.board.access import connect
from loadkit.board.description import load
from loadkit.board.telemetry import Sampler

MEMINFO = "MemTotal:  16222112 kB\nMemAvailable: 12000000 kB\nSwapTotal: 1000 kB\nSwapFree: 400 kB\nHugePages: 0"


def sampler(fake, name):
    """A sampler of the fake board with clocks of its own."""
    clock = iter(range(0, 10**12, 10**9))
    wall = datetime(2026, 1, 1, tzinfo=UTC)
    return Sampler(connect("local", str(fake.root)), load(name), now_ns=lambda: next(clock), wall=lambda: wall)


def test_a_row_holds_every_clock_zone_cooling_device_and_load(rk3588):
    """Frequencies are Hz from Hz and kHz files, zones have the names of their types, a fan is no cooling device."""
    rk3588.set("sys/kernel/debug/rknpu/load", "NPU load:  Core0:  12%, Core1:   0%, Core2:  40%,")
    row = sampler(rk3588, "rk3588").sample()
    assert (row["kind"], row["board"], row["at_ms"], row["timestamp"][:10]) == ("board", "rk3588", 0.0, "2026-01-01")
    assert row["frequency_hz"] == {
        "cpu.little": 408e6, "cpu.big0": 408e6, "cpu.big1": 408e6, "ddr": 528e6, "npu": 3e8, "gpu": 3e8,
    }  # fmt: skip
    assert list(row["temperature_c"]) == ["soc", "bigcore0", "bigcore1", "littlecore", "center", "gpu", "npu"]
    assert (row["temperature_c"]["soc"], row["temperature_c"]["npu"]) == (45.0, 48.0)
    assert row["cooling"] == {"thermal-cpufreq-0": 0.0, "thermal-devfreq-0": 0.0}
    assert row["load"] == {"npu.core0": 0.12, "npu.core1": 0.0, "npu.core2": 0.4, "ddr": 0.37}
    assert (row["memory"]["total"], row["swapped_pages"]) == (16_222_112 * 1024, 0)
    assert row["power_w"] == {}


def test_cores_are_busy_between_two_samples(rk3588):
    """The first sample has nothing to compare with; idle and iowait are spare time."""
    watching = sampler(rk3588, "rk3588")
    assert "cpu" not in watching.sample()["load"]
    rk3588.set("proc/stat", "cpu  1060 0 540 90080 40 0 5 0 0 0")
    assert watching.sample()["load"]["cpu"] == pytest.approx(100 / 200)


def test_what_cannot_be_read_is_left_out(rk3588):
    """A zone that answers with an error takes only itself out of the row."""
    watching = sampler(rk3588, "rk3588")
    rk3588.set("sys/class/thermal/thermal_zone0/temp", "")
    row = watching.sample()
    assert "soc" not in row["temperature_c"]
    assert row["temperature_c"]["npu"] == 48.0


def test_a_raspberry_pi_says_itself_whether_it_was_throttled(raspberry):
    """The bits of vcgencmd are in the row; a board without the program has no such key."""
    raspberry.program("vcgencmd", "echo throttled=0x50005")
    assert sampler(raspberry, "raspberry-pi-5").sample()["throttled_bits"] == 0x50005


def test_power_sensors_are_watts_whatever_they_count(rk3588):
    """One in microwatts, one in millivolts and milliamperes: the name is the chip's, with the channel."""
    rk3588.set("sys/class/hwmon/hwmon0/name", "ina226")
    rk3588.set("sys/class/hwmon/hwmon0/power1_input", 7_500_000)
    assert sampler(rk3588, "rk3588").sample()["power_w"] == {"ina226.power1": 7.5}
    rk3588.set("sys/class/hwmon/hwmon1/name", "ina3221")
    rk3588.set("sys/class/hwmon/hwmon1/in1_input", 19_000)
    rk3588.set("sys/class/hwmon/hwmon1/curr1_input", 500)
    assert sampler(rk3588, "jetson-orin").sample()["power_w"] == {"ina226.power1": 7.5, "ina3221.1": 9.5}


@pytest.mark.parametrize(
    ("npu", "ddr", "expected"),
    [
        ("NPU load:  0%", None, {"npu": 0.0}),
        ("NPU load:  Core0:  7%,", "37@1560000000Hz", {"npu.core0": 0.07, "ddr": 0.37}),
        (None, "garbage", {}),
    ],
)
def test_loads(npu, ddr, expected):
    """Both forms of the NPU driver and the memory controller's."""
    assert sensors.loads(npu, ddr) == expected


def test_memory_is_in_bytes_and_swapping_in_pages():
    """Kibibytes become bytes; pages in and out are one count."""
    assert sensors.memory(MEMINFO) == {
        "total": 16222112 * 1024,
        "available": 12000000 * 1024,
        "swap_total": 1024000,
        "swap_free": 409600,
    }
    assert sensors.swapped_pages("pgfault 3\npswpin 100\npswpout 28") == 128
    assert sensors.swapped_pages(None) is None


def test_sensors_of_one_name_are_numbered():
    """Two zones of a type are two sensors; a name keeps letters that a label may have."""
    assert sensors.named("soc", {"soc": 1, "soc-2": 1}) == "soc-3"
    assert sensors.named(" Über zone\n", {}) == "_ber_zone"


def start(fake, *more):
    words = (sys.executable, "-P", "-m", "loadkit.board.sampler", "--board", "rk3588", "--host", "local")
    command = [*words, "--root", str(fake.root), *more]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return SimpleNamespace(process=process, row=lambda: json.loads(process.stdout.readline()))


def test_the_sampler_process_counts_and_ends_with_its_input(rk3588):
    """One row a second, with the newest whole interval of perf; when its standard input ends so does it, and perf."""
    lines = (
        "1.000;5000;;armv8_cortex_a76/bus_access/;1000;66.50;;",
        "1.000;<not supported>;;armv8_cortex_a55/bus_access/;0;100.00;;",
        "1.000;12.5;MB;rockchip_ddr/read-bytes/;1000;100.00;;",
    )
    shown = "\\n".join(lines)
    rk3588.program("perf", f'echo "$@" > "$(dirname "$0")/asked"; printf "{shown}\\n"; exec sleep 60')
    running = start(rk3588, "--perf")
    rows = [running.row()]
    while "counters_per_s" not in rows[-1] and len(rows) < 5:
        rows.append(running.row())
    running.process.stdin.close()
    assert running.process.wait(10) == 0
    assert rows[-1]["counters_per_s"] == {"armv8_cortex_a76.bus_access": 5000.0}
    assert rows[-1]["memory_bytes_per_s"] == {"rockchip_ddr.read-bytes": 12.5 * 2**20}
    assert rows[-1]["counted_share"]["armv8_cortex_a76/bus_access/"] == pytest.approx(0.665)
    assert "armv8_cortex_a55/bus_access/,armv8_cortex_a55/l1d_cache_refill/" in rk3588.get("usr/bin/asked")


def test_counters_that_cannot_be_had_cost_no_sample(rk3588):
    """A perf that is refused: one warning with its words, and rows all the same."""
    rk3588.program("perf", "echo No permission to enable events >&2; exit 255")
    running = start(rk3588, "--perf")
    said = [running.row() for _ in range(3)]
    running.process.stdin.close()
    assert running.process.wait(10) == 0
    (warning,) = [row["warning"] for row in said if "warning" in row]
    assert warning == "perf ended with code 255: No permission to enable events"
    assert sum(row.get("kind") == "board" for row in said) == 2


def test_the_sampler_says_in_one_line_why_it_cannot(tmp_path):
    """A root that is not there: a JSON line with the reason, and exit code 1."""
    running = start(SimpleNamespace(root=tmp_path / "gone"))
    assert "no such folder" in running.row()["error"]
    assert running.process.wait(10) == 1
    running.process.stdin.close()

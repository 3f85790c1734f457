"""A probe says what a board is and who says so, and what stands in the way of a clean run."""

import json

import pytest

from loadkit.board.access import Access, connect
from loadkit.board.description import load, recognise
from loadkit.board.probe import compatible, look
from loadkit.cli.main import main

DMC = "sys/class/devfreq/dmc"
MODULE = """Memory Device
\tSize: 16 GB
\tData Width: 64 bits
\tType: DDR5
\tConfigured Memory Speed: 4800 MT/s
"""


def probed(board, **options):
    with connect("local", str(board.root)) as access:
        return look(access, recognise(compatible(access)), **options)


def fact(found, group, name):
    return next(fact for fact in found.facts if (fact.group, fact.name) == (group, name))


def test_a_rock_5b_tells_all_that_the_issue_lists(rk3588):
    """Model, SoC, DRAM, kernel, NPU driver, governors, steps, zones by type, coolers, PMU events, and each source."""
    found = probed(rk3588)
    assert found.board == "rk3588"
    expected = {
        ("machine", "model"): ("Radxa ROCK 5B", "sys/firmware/devicetree/base/model"),
        ("machine", "SoC"): ("rockchip,rk3588", "sys/firmware/devicetree/base/compatible"),
        ("machine", "kernel"): ("6.1.75-vendor-rk35xx", "proc/sys/kernel/osrelease"),
        ("memory", "clock"): (2112000000, f"{DMC}/available_frequencies"),
        ("memory", "installed, as the kernel uses it"): (16_222_112 * 1024, "proc/meminfo"),
        ("clocks", "ddr governor"): ("dmc_ondemand", f"{DMC}/governor"),
        ("clocks", "ddr steps"): ((528000000, 1068000000, 1560000000, 2112000000), f"{DMC}/available_frequencies"),
        ("clocks", "big1 steps"): (
            (408000000, 1200000000, 1800000000, 2256000000, 2352000000),  # Hz, of a file in kHz
            "sys/devices/system/cpu/cpufreq/policy6/scaling_available_frequencies",
        ),
        ("heat", "npu-thermal"): (48.0, "sys/class/thermal/thermal_zone6/temp"),
        ("heat", "cooling thermal-cpufreq-0"): ("0 of 7", "sys/class/thermal/cooling_device0/cur_state"),
        ("accelerator", "NPU driver"): ("RKNPU driver: v0.9.8", "sys/kernel/debug/rknpu/version"),
    }
    assert {key: (fact(found, *key).value, fact(found, *key).source) for key in expected} == expected
    assert {"bus_access", "l2d_cache_refill"} <= set(found.value("counters", "armv8_cortex_a76 events"))
    assert found.value("counters", "rockchip_ddr events") == ("cycles", "read-bytes", "write-bytes")
    width = fact(found, "memory", "width")
    assert width.value == 64
    assert width.source.startswith("description rk3588: ")  # no file of the board knows it
    bandwidth = fact(found, "memory", "theoretical bandwidth")
    assert bandwidth.value == 33_792_000_000
    assert "clock by sys/class/devfreq/dmc" in bandwidth.source
    assert "width by description rk3588" in bandwidth.source


def test_what_is_missing_for_a_clean_run_is_said_with_the_way_out(rk3588):
    """A board as it boots: free clocks and no perf. One made worse: each fault is one more line."""
    free = "clocks are free to move: ddr (dmc_ondemand), gpu (simple_ondemand), npu (rknpu_ondemand)"
    first = probed(rk3588).missing
    assert first[0].startswith(free)
    assert first[1:] == ("perf is not installed: no counters",)
    rk3588.program("perf", "echo perf version 6.1.192")
    rk3588.set("proc/loadavg", "3.50 1.00 0.50 2/210 4242")
    rk3588.set("proc/swaps", "Filename Type Size Used Priority\n/swap file 1000 12 -2")
    rk3588.set("sys/class/thermal/thermal_zone0/temp", 74000)
    rk3588.set("sys/class/thermal/cooling_device1/cur_state", 2)
    rk3588.set("sys/class/thermal/cooling_device2/cur_state", 3)  # a fan that turns is no throttling
    (rk3588.root / "sys/kernel/debug/rknpu/load").unlink()
    (rk3588.root / DMC).unlink()
    worse = probed(rk3588).missing
    assert worse[0].startswith("clocks are free to move: gpu (simple_ondemand), npu")
    assert list(worse[1:]) == [
        f"ddr has no {DMC}: its clock can be neither read nor held",
        "sys/kernel/debug/rknpu/load cannot be read (it takes root and the vendor's driver): no NPU load",
        "the board is warm already: soc-thermal 74 C",
        "thermal-devfreq-0 is throttling: 2 of 4",
        "the board is busy: load average 3.50",
        "swap is in use: a model that does not fit is read from disk",
    ]


def test_a_board_without_dmc_has_the_description_s_clock_and_says_whose_it_is(rk3588):
    """Some bootloaders lack the handler: no file tells the clock, so the source is no longer the board."""
    (rk3588.root / DMC).unlink()
    clock = fact(probed(rk3588), "memory", "clock")
    assert clock.value == 2112000000
    assert "fix_freq_rk3588.sh" in clock.source


def test_a_raspberry_pi_tells_its_sticky_bits(raspberry):
    """Its own program says more than sysfs: bits of under-voltage and throttling, now and since boot."""
    found = probed(raspberry)
    assert found.board == "raspberry-pi-5"
    assert found.value("accelerator", "vcgencmd get_throttled") == "throttled=0x0"
    assert found.value("memory", "theoretical bandwidth") == pytest.approx(17.0667e9, rel=1e-4)
    raspberry.program("vcgencmd", "echo throttled=0x50005")
    assert "throttled=0x50005: under-voltage or throttling now or since boot" in probed(raspberry).missing


def test_a_plain_linux_says_what_dmidecode_says(raspberry):
    """No device tree: two DDR5 modules of 64 bits at 4800 MT/s make 76.8 GB/s, by dmidecode and no one else."""
    for name in ("model", "compatible"):
        (raspberry.root / "sys/firmware/devicetree/base" / name).unlink()
    raspberry.program("dmidecode", f"cat <<'END'\n{MODULE}\n{MODULE}\nMemory Device\n\tSize: No Module Installed\nEND")
    found = probed(raspberry)
    assert found.board == "generic-linux"
    assert fact(found, "memory", "type").value == "DDR5"
    assert found.value("memory", "theoretical bandwidth") == 76_800_000_000
    assert fact(found, "memory", "width").source == "dmidecode -t 17, 2 modules"
    raspberry.program("dmidecode", "exit 1")
    assert any("no theoretical bandwidth" in line for line in probed(raspberry).missing)


def test_measured_bandwidth_names_its_reader(raspberry, monkeypatch):
    """A core's read, all cores' reads and copies are different numbers; all of them are of this machine, so above 0."""
    with connect("local", str(raspberry.root)) as access:
        readings = access.bandwidth(0.02)
    names = [reading["reader"] for reading in readings]
    assert names[0] == "CPU 1T read (memchr)"
    assert names[-1].endswith("copy (memcpy, bytes read + written)")
    assert all(1e7 < reading["bytes_per_s"] < 1e13 for reading in readings)
    short = Access.bandwidth
    monkeypatch.setattr(Access, "bandwidth", lambda access: short(access, 0.02))
    found = probed(raspberry, bandwidth=True)
    measured = [fact.name for fact in found.facts if fact.name.startswith("measured bandwidth")]
    assert measured == [f"measured bandwidth, {name}" for name in names]


def test_the_verb_prints_lines_and_json_over_ssh(sshd, rk3588, capsys):
    """The same findings, for people and for programs; the terminal obeys nothing that a board says."""
    (rk3588.root / "sys/firmware/devicetree/base/model").write_text("Rock \x1b[31m5B\n\x07" + "x" * 1000)
    where = ["board", "probe", sshd.host, "--sysfs-root", str(rk3588.root), "--ssh-config", str(sshd.config)]
    assert main(where) == 0
    out = capsys.readouterr().out
    assert "  model: Rock \\x1b[31m5B \\x07xxx" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) < 1000
    assert "ddr steps: 528 MHz, 1068 MHz, 1560 MHz, 2112 MHz  [sys/class/devfreq/dmc/available_frequencies]" in out
    assert "theoretical bandwidth: 33.8 GB/s" in out
    assert main([*where, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["board"] == "rk3588"
    assert {"group": "memory", "name": "width", "value": 64}.items() <= next(
        item for item in told["facts"] if item["name"] == "width"
    ).items()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["probe", "-oProxyCommand=x"], "required: HOST"),
        (["probe", "a;b"], "'a;b' is not a host"),
        (["probe", "local", "--board", "acme"], "no board 'acme'"),
        (["probe", "local", "--sysfs-root", "/nowhere"], "no such folder"),
        (["lock", "local", "--set", "ddr"], "--set 'ddr': must be NAME=VALUE"),
        (["lock", "local", "--ttl", "0"], "must be seconds from 0.5 to 3600"),
        (["lock", "local", "--limit", "nan"], "must be degrees Celsius from 40 to 120"),
        ([], "required"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(words, says, capsys):
    """What to change, and no traceback."""
    assert main(["board", *words]) == 2
    errors = capsys.readouterr().err
    assert says in errors
    assert len(errors.splitlines()) == 1


def test_limits_that_meet_count_as_held(rk3588):
    """A clock pinned by its limits is not free, whatever its governor is called."""
    rk3588.set(f"{DMC}/max_freq", 528000000)
    assert "ddr" not in probed(rk3588).missing[0]


def test_an_orin_s_memory_clock_is_its_own(rk3588):
    """emc_max_rate goes before the description: an Orin Nano before its Super mode has 68 GB/s, not 102."""
    base = rk3588.root / "sys/firmware/devicetree/base"
    (base / "compatible").write_text("nvidia,p3768\0nvidia,tegra234\0")
    (base / "model").write_text("NVIDIA Jetson Orin Nano Developer Kit\0")
    rk3588.set("sys/kernel/debug/bpmp/debug/clk/emc/max_rate", 2133000000)
    found = probed(rk3588)
    assert found.board == load("jetson-orin").name
    assert found.value("memory", "theoretical bandwidth") == 68_256_000_000

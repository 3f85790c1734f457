"""Output of `perf stat -x`, as perf 6.1 prints it, and the counters that a board's kernel lists."""

from dataclasses import astuple

import pytest

from loadkit.board import perf
from loadkit.board.access import connect
from loadkit.board.description import load

INTERVALS = """# started on Mon Jan  5 10:00:00 2026

     0.100158560;0.77;msec;task-clock;765613;100.00;0.008;CPUs utilized
     0.100158560;<not supported>;;cycles;0;100.00;;
     0.200418901;<not counted>;msec;task-clock;0;100.00;;
"""


def test_intervals():
    """Values, what is not supported and what was not counted; comments and blank lines are nothing."""
    assert [astuple(count) for count in perf.parse(INTERVALS)] == [
        ("task-clock", 0.77, "msec", 0.10015856, 1.0, None),
        ("cycles", None, "", 0.10015856, 1.0, "not supported"),
        ("task-clock", None, "msec", 0.200418901, 1.0, "not counted"),
    ]


def test_without_intervals_and_with_metrics():
    """The same without a time; a line that holds a metric alone has blank fields in front and is skipped."""
    text = "123456;;armv8_cortex_a76/bus_access/;400000;66.50;;\n;;;;;1.20;insn per cycle\n"
    (count,) = perf.parse(text)
    assert (count.event, count.value, count.at_s, count.share) == ("armv8_cortex_a76/bus_access/", 123456, None, 0.665)
    assert count.scaled
    assert not perf.parse("1.0;7;;cycles;10;100.00;;")[0].scaled


@pytest.mark.parametrize("text", ["", ";;;", "perf: not found", "1,5;msec;x;1", "a;b;c;d;e;f", "\x00;1;2;3;4"])
def test_other_lines_are_skipped(text):
    """Nothing perf might print instead is taken for a count: a comma is no decimal point."""
    assert perf.parse(text) == []


def test_a_row_is_rates_of_the_newest_interval():
    """Counts become rates, traffic is bytes whatever the unit, and what was counted in part is named."""
    text = (
        "1.0;1;;a76/bus_access/;1;100.00;;\n3.0;5000;;a76/bus_access/;1;50.00;;\n3.0;2;MB;ddr/read-bytes/;1;100.00;;\n"
    )
    made = perf.row(perf.last_interval(perf.parse(text)), seconds=2.0)
    assert made["counters_per_s"] == {"a76.bus_access": 2500.0}
    assert made["memory_bytes_per_s"] == {"ddr.read-bytes": 2.0**20}
    assert perf.not_counted([made["counted_share"], {"a76/bus_access/": 0.8}]) == [
        "a76/bus_access/ was counted 50 % of the time"
    ]


def test_events_are_those_the_kernel_lists(rk3588):
    """Each kind of core once, qualified by its PMU, and the memory controller; a bare name would be a syntax error."""
    found = perf.events(connect("local", str(rk3588.root)), load("rk3588"))
    assert found == [
        "armv8_cortex_a55/bus_access/", "armv8_cortex_a55/l1d_cache_refill/", "armv8_cortex_a55/l2d_cache_refill/",
        "armv8_cortex_a76/bus_access/", "armv8_cortex_a76/l1d_cache_refill/", "armv8_cortex_a76/l2d_cache_refill/",
        "rockchip_ddr/read-bytes/", "rockchip_ddr/write-bytes/",
    ]  # fmt: skip
    words = perf.argv(found)
    assert words[:7] == ["perf", "stat", "-a", "-x", ";", "-I", "1000"]
    assert words[-1].count(",") == 7


def test_a_kernel_with_an_older_name_for_its_pmu(rk3588):
    """Without armv8_cortex_a55 the next name of the description is tried; without a controller's PMU there is none."""
    for name in ("armv8_cortex_a55", "rockchip_ddr"):
        (rk3588.root / f"sys/bus/event_source/devices/{name}").unlink()
    rk3588.pmu("armv8_pmuv3_0", "0-3", {"bus_access": "event=0x19"})
    found = perf.events(connect("local", str(rk3588.root)), load("rk3588"))
    assert found[0] == "armv8_pmuv3_0/bus_access/"
    assert not any("ddr" in event for event in found)


def test_the_note_says_what_cores_do_not_see():
    """Evidence about the cores is not evidence about an NPU."""
    assert "NPU" in perf.NOTE
    assert "L3" in perf.NOTE

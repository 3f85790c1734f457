"""What samples say about the numbers measured meanwhile."""

import pytest

from loadkit.board import verdicts


def rows(part, *values):
    """Rows in which one sensor of a kind, `x`, had these values one after another."""
    return [{"kind": "board", part: {"x": value}} for value in values]


def test_one_sample_off_the_target_is_unlocked():
    """1 % is the width of the target; a single drop of a second says which clock, where it should be, where it was."""
    steady = rows("frequency_hz", 2112e6, 2100e6, 2112e6)
    assert verdicts.unlocked(steady, {"x": 2112e6}) == []
    dropped = rows("frequency_hz", 2112e6, 1560e6, 2112e6)
    assert verdicts.unlocked(dropped, {"x": 2112e6}) == ["x was locked to 2112 MHz and ran at 1560 MHz"]
    assert verdicts.unlocked(dropped, {}) == ["x was not locked and moved from 2112 MHz and ran at 1560 MHz"]


def test_a_clock_that_stands_at_another_step_than_its_target_is_unlocked():
    """Standing still is not enough where a target is known, and all that can be asked for where it is not."""
    still = rows("frequency_hz", 528e6, 528e6)
    assert verdicts.unlocked(still, {}) == []
    assert verdicts.unlocked(still, {"x": 2112e6}) == ["x was locked to 2112 MHz and ran at 528 MHz"]


def test_heat_raises_a_suspicion_and_cooling_is_proof():
    """A ramp from 50 to 86 °C is suspected throttling, 84 is not; a cooling device in use is more than a suspicion."""
    assert verdicts.throttled(rows("temperature_c", 50.0, 70.0, 84.9)) == []
    (line,) = verdicts.throttled(rows("temperature_c", 50.0, 70.0, 86.0))
    assert "x reached 86 °C" in line
    assert "throttling is suspected" in line
    assert verdicts.throttled(rows("cooling", 0.0, 2.0, 1.0)) == ["cooling device x was in use (state 2)"]


@pytest.mark.parametrize(
    ("before", "seen", "said"),
    [
        (0x0, (0x0, 0x0), None),
        (0x50000, (0x50000, 0x50000), None),  # it was so before the run
        (0x0, (0x0, 0x50000), "under-voltage, throttled"),  # new since the run began
        (0x50000, (0x50005,), "under-voltage, throttled"),  # and now
        (None, (0x20000, 0x20000), None),  # the first sample stands for what was before
        (0x0, (0x8,), "at its soft temperature limit"),
    ],
)
def test_sticky_bits_count_where_they_are_new(before, seen, said):
    """Bits of now always count, bits since boot only where they were not there before."""
    samples = [{"kind": "board", "throttled_bits": bits} for bits in seen]
    found = verdicts.throttled(samples, {"throttled_bits": before})
    assert found == ([] if said is None else [f"the board says it was {said}"])


def test_swapping_is_pages_that_moved_meanwhile():
    """What was swapped before the cell is not its; a few pages of somebody else's are nothing."""
    assert verdicts.swapping([{"swapped_pages": None}, {}]) == []
    quiet = [{"swapped_pages": pages} for pages in (90_000, 90_100)]
    assert verdicts.swapping(quiet) == []
    busy = [{"swapped_pages": pages} for pages in (90_000, 90_100, 95_000)]
    assert verdicts.swapping(busy) == ["5000 pages were swapped: the model does not fit the memory"]


def test_busy_before_the_start():
    """Cores above a tenth, an NPU above a twentieth; the memory controller's own load is no unit of work."""
    assert verdicts.busy({"load": {"cpu": 0.09, "npu.core0": 0.04, "ddr": 0.37}}) == []
    assert verdicts.busy({"load": {"cpu": 0.42, "npu.core0": 0.5}}) == [
        "its cores were 42 % busy before the run",
        "npu.core0 was 50 % busy before the run",
    ]


def test_rows_that_hold_anything_say_nothing():
    """A damaged row is no evidence and no error."""
    odd = [{"frequency_hz": None, "cooling": [1], "temperature_c": {"x": "hot", "y": True}, "throttled_bits": "0x1"}]
    assert verdicts.unlocked(odd, {"x": 1e9}) == []
    assert verdicts.throttled(odd) == []
    assert verdicts.swapping(odd) == []
    assert verdicts.busy({}) == []

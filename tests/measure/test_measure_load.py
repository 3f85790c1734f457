"""Offered and achieved load of an open loop, on servers whose capacity is known."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.measure.load import Load


def queue(rate, seconds, service_s, slots=1, workers=1):
    """Records of a server with `slots` places of `service_s` each, first come first served, at a constant rate."""
    free = [0.0] * slots
    rows = []
    for k in range(int(rate * seconds)):
        due = k / rate
        place = min(range(slots), key=free.__getitem__)
        start = max(due, free[place])
        free[place] = start + service_s
        late_ms = 2.0
        origin_ms = 1e6 * (k % workers)  # every process has a clock of its own
        rows.append(
            {
                "outcome": "ok",
                "worker": f"w{k % workers}",
                "arrival": k + 1,
                "start_ms": origin_ms + due * 1e3 + late_ms,
                "scheduled_ms": -late_ms,
                "queue_ms": late_ms - 0.5,
                "done_ms": (free[place] - due) * 1e3 - late_ms,
            }
        )
    return rows


def loaded(rows, counts=None):
    load = Load()
    for row in rows:
        load.add(row)
    return load.summary(counts)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_below_capacity_everything_is_achieved(workers):
    """Eight a second on a server for ten: no delay grows, however many processes measured."""
    found = loaded(queue(8, 20, 0.1, workers=workers))
    assert found["offered_per_s"] == pytest.approx(8)
    assert found["delay_growth"] == pytest.approx(0, abs=1e-9)
    assert (found["achieved_share"], found["dropped"]) == (pytest.approx(1), 0)
    assert found["achieved_per_s"] == pytest.approx(8)
    assert found["late_ms_p99"] == 1.5


@settings(max_examples=40)
@given(
    over=st.floats(1.02, 4.0),
    slots=st.integers(1, 4),
    service_s=st.floats(0.05, 0.4),
    workers=st.integers(1, 3),
)
def test_above_capacity_the_capacity_is_achieved(over, slots, service_s, workers):
    """Whatever the overload: achieved = slots / service time, though every request was answered in the end."""
    capacity = slots / service_s
    rate = over * capacity
    found = loaded(queue(rate, 200 / rate, service_s, slots, workers))
    assert found["achieved_per_s"] == pytest.approx(capacity, rel=0.03)


def test_where_a_measurement_is_cut_off_does_not_matter():
    """A tenth of the time gives the same answer, though the last answers then take most of it."""
    long, short = loaded(queue(8, 60, 0.1)), loaded(queue(8, 6, 0.1))
    assert long["achieved_per_s"] == pytest.approx(short["achieved_per_s"])
    long, short = loaded(queue(20, 60, 0.1)), loaded(queue(20, 6, 0.1))
    assert long["achieved_per_s"] == pytest.approx(short["achieved_per_s"], rel=1e-6)


def test_noise_of_the_answers_is_no_growth():
    """Delays that scatter without a trend leave the load achieved in almost all of 200 runs, and never far from it."""
    shares = []
    for seed in range(200):
        rng = random.Random(seed)
        rows = queue(10, 10, 0.05)
        for row in rows:
            row["done_ms"] += rng.expovariate(1 / 200)
        shares.append(loaded(rows)["achieved_share"])
    assert sum(share == 1 for share in shares) > 180
    assert min(shares) > 0.95


def test_failed_and_dropped_arrivals_are_not_achieved():
    """A failure takes its share; an arrival that was never sent is in the counts of the client only."""
    rows = queue(10, 10, 0.05)
    for row in rows[::4]:
        row["outcome"] = "server_error"
    assert loaded(rows)["achieved_share"] == pytest.approx(0.75)
    kept = [row for row in queue(10, 10, 0.05) if row["arrival"] % 5]
    assert loaded(kept, {"offered": 100, "dropped": 20})["achieved_share"] == pytest.approx(0.8)
    assert loaded(kept)["offered"] == 99  # without counts the last arrival, which was dropped, is not known
    assert loaded(kept)["dropped"] == 19
    assert loaded(kept)["offered_per_s"] == pytest.approx(10)


def test_too_little_says_nothing():
    """No record, or a single one, has no rate; damaged rows are left out."""
    nothing = loaded([])
    assert (nothing["offered"], nothing["offered_per_s"], nothing["achieved_share"]) == (0, None, None)
    one = loaded(queue(1, 1, 0.1))
    assert (one["offered"], one["offered_per_s"], one["achieved_share"]) == (1, None, 1.0)
    damaged = [{"outcome": "ok", "arrival": "3", "start_ms": None, "scheduled_ms": float("nan")}, {"arrival": True}]
    assert loaded(damaged)["offered"] == 0

"""The store of truth: exact, bounded, findable."""

from __future__ import annotations

from loadkit.sim.truth import Record, Truth


def finished(truth: Truth, request_id: str | None = None, stamps=(1000,), status=200) -> Record:
    record = truth.received("/p", request_id, 500, 10)
    for stamp in stamps:
        record.wrote(stamp, stamp - 100, 1, 0)
    truth.finished(record, status, "complete" if status == 200 else "error")
    return record


def test_event_times_come_back_exactly():
    """Packing into gaps loses no nanosecond, with small gaps and with gaps beyond four bytes."""
    for stamps in ([5_000_000_001, 5_000_000_002, 9_000_000_000], [7, 7, 7 + 2**33, 8 + 2**33], [3]):
        record = finished(Truth(10), stamps=stamps)
        assert record.as_dict(True)["event_ns"] == stamps
        assert record.event_ns == []
    assert "event_ns" not in record.as_dict(False)


def test_one_write_of_several_events_has_one_stamp():
    """A write of three events, two of them overdue, is one write, three equal stamps and two coalesced."""
    truth = Truth(10)
    record = truth.received("/p", None, 500, 10)
    record.wrote(2_000_000, 500_000, 3, 2)
    record.wrote(4_000_000, 3_900_000, 1, 0)
    truth.finished(record, 200, "complete")
    told = record.as_dict(True)
    assert told["event_ns"] == [2_000_000, 2_000_000, 2_000_000, 4_000_000]
    assert (told["writes"], told["coalesced"], told["first_write_ns"], told["last_write_ns"]) == (
        2, 2, 2_000_000, 4_000_000,
    )  # fmt: skip
    assert (told["late_first_ms"], told["late_max_ms"]) == (1.5, 1.5)
    assert truth.stats()["events"] == 4


def test_only_the_newest_are_kept():
    """Beyond `keep` the oldest leave, also from the index; the counters still know them."""
    truth = Truth(3)
    records = [finished(truth, f"r{number % 2}") for number in range(10)]
    assert [record.id for record in truth.since(0)] == [record.id for record in records[-3:]]
    assert truth.find(records[0].id) == []
    assert truth.find("r0") == [records[8]]
    assert truth.find("r1") == [records[7], records[9]]
    stats = truth.stats()
    assert (stats["received"], stats["kept"], stats["forgotten"], stats["by_status"]) == (10, 3, 7, {"200": 10})


def test_long_answers_are_bounded_by_their_events():
    """Room is counted in events too: answers of 500 events push out others before `keep` is reached."""
    truth = Truth(3)
    for _ in range(3):
        finished(truth, stamps=range(1, 501))
    assert truth.stats()["kept"] == 1


def test_since_follows_the_order_of_finishing():
    """A request that was received first but finished last is not lost between two looks."""
    truth = Truth(10)
    slow = truth.received("/p", None, 1, 1)
    quick = finished(truth)
    look = truth.next_done
    assert [record.id for record in truth.since(0)] == [quick.id]
    truth.finished(slow, 200, "complete")
    assert [record.id for record in truth.since(look)] == [slow.id]


def test_reset_forgets_what_was_under_way_too():
    """A request received before a reset belongs to no later count, and ids are not used again."""
    truth = Truth(10)
    before = truth.received("/p", "a", 1, 1)
    truth.reset()
    truth.finished(before, 200, "complete")
    after = finished(truth, "a")
    assert truth.find("a") == [after]
    assert after.id != before.id
    assert (truth.stats()["received"], truth.stats()["by_end"]) == (1, {"complete": 1})


def test_distinct_prefixes_are_counted_and_bounded():
    """Equal first blocks count once; the set stops growing and says so."""
    truth = Truth(2)
    for head in [b"a", b"b", b"a"]:
        truth.prefix(truth.received("/p", None, 1, 1), head)
    assert (truth.stats()["distinct_prefixes"], truth.stats()["distinct_prefixes_full"]) == (2, False)
    for number in range(100):
        truth.prefix(truth.received("/p", None, 1, 1), b"%d" % number)
    assert (truth.stats()["distinct_prefixes"], truth.stats()["distinct_prefixes_full"]) == (8, True)


def test_lateness_quantiles_are_bounds_of_their_bucket():
    """A quantile is at or at most 19 % above the value, never above the maximum; without writes it is null."""
    truth = Truth(2)
    assert truth.stats()["late_ms"]["p99"] is None
    for late_ns in [50_000] * 98 + [3_000_000] * 2:
        truth.late(late_ns)
    late = truth.stats()["late_ms"]
    assert 0.05 <= late["p50"] <= 0.05 * 1.19
    assert late["p99"] == late["max"] == 3.0

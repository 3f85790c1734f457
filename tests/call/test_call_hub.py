"""The order of things on one hub: reads are stamped first and taken later, none is lost and none overtakes another."""

from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loadkit.call.hub import MOST_READS, MOST_WORKS, TAKEN_AT_ONCE, Shared


class Watcher:
    """A watcher that runs when it is told to."""

    def __init__(self):
        self.callback = None

    def start(self, callback):
        self.callback = callback

    def stop(self):
        self.callback = None


class Loop:
    """A loop whose pending events the test decides on."""

    def __init__(self):
        self.pendingcnt = 0
        self.watchers = []

    def prepare(self):
        return self.idle()

    def idle(self):
        self.watchers.append(Watcher())
        return self.watchers[-1]

    def run_idle(self):
        """One round of the loop in which there is nothing to read."""
        for watcher in self.watchers:
            if watcher.callback is not None:
                watcher.callback()


@pytest.fixture
def loop():
    return Loop()


def hub_of(loop):
    return Shared(SimpleNamespace(loop=loop))


def test_a_read_that_is_alone_is_taken_at_once(loop):
    """Nothing else is pending, so nothing would be stamped earlier by waiting."""
    taken = []
    hub_of(loop).read(taken.append, (5, b"x", False))
    assert taken == [(5, b"x", False)]
    assert all(watcher.callback is None for watcher in loop.watchers)


def test_reads_wait_while_there_is_more_to_stamp(loop):
    """Of a burst nothing is taken until its last read is stamped, then some at a time, in order, and the watcher
    stops."""
    shared, taken = hub_of(loop), []
    count = 2 * TAKEN_AT_ONCE + 1
    for number in range(count):
        assert taken == []
        loop.pendingcnt = count - number - 1
        shared.read(lambda read: taken.append(read[0]), (number, b"", False))
    sizes = [len(taken)]
    for _ in range(3):
        loop.run_idle()
        sizes.append(len(taken))
    assert sizes == [TAKEN_AT_ONCE, 2 * TAKEN_AT_ONCE, count, count]
    assert taken == list(range(count))
    assert all(watcher.callback is None for watcher in loop.watchers)


@given(st.lists(st.integers(0, 3), max_size=60))
@example([1] * (3 * MOST_READS))
def test_none_is_lost_and_no_more_than_so_many_wait(pending):
    """Whatever the loop is busy with, reads are taken in their order, and what waits is bounded."""
    loop = Loop()
    shared, taken = hub_of(loop), []
    for number, others in enumerate(pending):
        loop.pendingcnt = others
        shared.read(lambda read: taken.append(read[0]), (number, b"", False))
        assert number + 1 - len(taken) <= MOST_READS
        if others == 0 and number % 7 == 0:
            loop.run_idle()
    shared.take_reads()
    assert taken == list(range(len(pending)))


def test_a_small_burst_needs_no_quiet_loop(loop):
    """All of it is taken with its last read, and nothing is left to wake up for."""
    shared, taken = hub_of(loop), []
    for number in range(TAKEN_AT_ONCE):
        loop.pendingcnt = TAKEN_AT_ONCE - number - 1
        shared.read(lambda read: taken.append(read[0]), (number, b"", False))
    assert taken == list(range(TAKEN_AT_ONCE))
    assert all(watcher.callback is None for watcher in loop.watchers)


def test_work_that_was_put_off_is_done_when_the_loop_is_quiet(loop):
    """One piece per quiet round, in order, after the reads that wait; catching up does the rest at once."""
    shared, done = hub_of(loop), []
    for number in range(4):
        shared.later(lambda number=number: done.append(number))
    loop.pendingcnt = 1
    shared.read(lambda _: done.append("read"), (1, b"", False))
    assert done == []
    loop.run_idle()
    assert done == ["read", 0]
    loop.run_idle()
    assert done == ["read", 0, 1]
    shared.catch_up()
    assert done == ["read", 0, 1, 2, 3]
    assert all(watcher.callback is None for watcher in loop.watchers)


def test_work_that_is_put_off_is_bounded(loop):
    """Where the loop is never quiet the oldest work is done for every one that comes."""
    shared, done = hub_of(loop), []
    for number in range(MOST_WORKS + 3):
        shared.later(lambda number=number: done.append(number))
    assert done == [0, 1, 2]

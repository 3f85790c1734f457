"""What all connections of one gevent hub share: the receive buffer, and the order in which things are done.

Reads are stamped first. What they mean is worked out when all that the loop has found readable is stamped, exchange by
exchange, and ended exchanges go on one at a time: servers that batch emit the tokens of all streams at one instant, and
256 events worked out one by one would stamp the last of them milliseconds late.
"""

from collections import deque
from collections.abc import Callable
from weakref import WeakKeyDictionary

from gevent.hub import Hub, Waiter, get_hub

from loadkit.call.connection import Read

SCRATCH_BYTES = 64 * 1024
MOST_READS = 512  # kept back; beyond, the oldest is taken for every one that comes
MOST_WORKS = 1024  # put off; beyond, the oldest is done for every one that comes
TAKEN_AT_ONCE = 1  # then the loop looks for reads again: each may take with it those its exchange held

Take = Callable[[Read], None]
"""What an exchange does with a read. Must not raise."""


class Shared:
    """One per hub. `scratch` may be used by any callback, because callbacks run one after the other."""

    def __init__(self, hub: Hub) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._queue: deque[Waiter] = deque()
        self._before_poll = hub.loop.prepare()
        self._no_blocking = hub.loop.idle()  # while one is active, the loop polls without waiting
        self._loop = hub.loop
        self._reads: deque[tuple[Take, Read]] = deque()
        self._quiet = hub.loop.idle()  # runs when no read is pending
        self._works: deque[Callable[[], object]] = deque()
        self._leisure = hub.loop.idle()

    def read(self, take: Take, read: Read) -> None:
        """A read was stamped: take it and those before it when no more are known to be there. In order.

        Without waiting for a look at the sockets in between: that costs more than taking a read.
        """
        reads = self._reads
        if not self._loop.pendingcnt:
            if not reads:
                take(read)
                return
            reads.append((take, read))
            self._take_some()
            return
        if not reads:
            self._quiet.start(self._take_some)
        reads.append((take, read))
        if len(reads) > MOST_READS:
            self.take_reads(1)

    def take_reads(self, most: int = MOST_READS + 1) -> None:
        """Take the oldest reads that were kept back, all if not told otherwise."""
        reads = self._reads
        for _ in range(min(most, len(reads))):
            take, read = reads.popleft()
            take(read)

    def _take_some(self) -> None:
        self.take_reads(TAKEN_AT_ONCE)
        if not self._reads:
            self._quiet.stop()

    def later(self, work: Callable[[], object]) -> None:
        """Do some short work when the loop has nothing else to do, in order. It must not raise."""
        self._works.append(work)
        if len(self._works) == 1:
            self._leisure.start(self._work_once)
        elif len(self._works) > MOST_WORKS:
            self._works.popleft()()

    def catch_up(self) -> None:
        """Do all work that was put off."""
        while self._works:
            self._works.popleft()()
        self._leisure.stop()

    def _work_once(self) -> None:
        if self._reads or self._queue:
            return
        if self._works:
            self._works.popleft()()
        if not self._works:
            self._leisure.stop()

    def wake(self, waiter: Waiter) -> None:
        """Let a parked greenlet go on, soon: one per round of the loop, so that reads are stamped between them.

        A greenlet whose exchange has ended fills a record and sends the next request, about half a millisecond.
        Streams of one length end together; woken at once, 256 of them would delay the stamps of all others by 100 ms.
        """
        self._queue.append(waiter)
        if len(self._queue) == 1:
            self._before_poll.start(self._next)
            self._no_blocking.start(_nothing)

    def _next(self) -> None:
        waiter = self._queue.popleft()
        if not self._queue:
            self._before_poll.stop()
            self._no_blocking.stop()
        waiter.switch(None)


def _nothing() -> None:
    """The idle watcher needs a callback."""


_SHARED: WeakKeyDictionary[Hub, Shared] = WeakKeyDictionary()


def shared(hub: Hub) -> Shared:
    """The things of this hub, made when first asked for."""
    found = _SHARED.get(hub)
    if found is None:
        found = _SHARED[hub] = Shared(hub)
    return found


def rest() -> None:
    """Let the loop read what has come; this greenlet goes on when its turn comes. Between two requests of a user.

    The end of one request and the building of the next would else hold up the stamps of all others twice as long.
    """
    waiter = Waiter(get_hub())
    shared(waiter.hub).wake(waiter)
    waiter.get()

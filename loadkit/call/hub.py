"""What all connections of one gevent hub share: the receive buffer, and the order in which ended exchanges go on."""

from collections import deque
from weakref import WeakKeyDictionary

from gevent.hub import Hub, Waiter, get_hub

SCRATCH_BYTES = 64 * 1024


class Shared:
    """One per hub. `scratch` may be used by any callback, because callbacks run one after the other."""

    def __init__(self, hub: Hub) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._queue: deque[Waiter] = deque()
        self._before_poll = hub.loop.prepare()
        self._no_blocking = hub.loop.idle()  # while one is active, the loop polls without waiting

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

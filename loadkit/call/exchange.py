"""One request and its response on an open connection: what is sent, what is read, and when a read is taken.

Reads are stamped as they return. What they mean may wait: a read that begins and ends like the token events before it
is held and taken with the next ones, because one that is worked out alone, right after a look at the sockets, costs
several times as much: the processor has the code no longer at hand. Any other read is taken at once, after those that
are held, and so are they when a deadline has come.
"""

import gevent
from gevent.hub import Waiter

from loadkit.call import faults
from loadkit.call.connection import Connection, Read
from loadkit.call.hub import rest, shared
from loadkit.call.outgoing import slices
from loadkit.call.transport import DRAIN_BYTES, DRAIN_NS, ClockNs, End, Sink, WireRequest, overdue_end
from loadkit.call.wire import ResponseReader
from loadkit.record.names import Outcome

READABLE, WRITABLE = 1, 2
MOST_HELD = 16  # reads of one exchange
HELD_BYTES = 4096  # of one of them
SIZE_LINE = 20  # bytes in which the size of an HTTP chunk stands, before what it holds


class Exchange:
    """Lives from just before t0 to the end."""

    def __init__(self, connection: Connection, request: WireRequest, head: bytes, sink: Sink, clock: ClockNs) -> None:
        self._connection = connection
        self._parts = (head, *request.body)
        self._sink = sink
        self._clock = clock
        self._reader = ResponseReader(request.method)
        self._hub = gevent.get_hub()
        self._shared = shared(self._hub)
        self._readable = self._hub.loop.io(connection.fileno, READABLE)
        self._timer = self._hub.loop.timer(0)
        self._due: int | None = None  # what the timer is set to
        self._waiter: Waiter | None = None
        self._sent = False
        self._enough_at: int | None = None
        self._drained = 0
        self._over = False  # nothing more is awaited
        self._kept = 0  # reads that wait in the hub's queue
        self._held: list[Read] = []  # reads that came before those
        self._begins, self._ends = b"", b""  # what is the same in reads that may be held; empty while none may
        self._left = False  # the greenlet has gone: what was kept back is nobody's
        self._end: End | None = None
        self._crash: BaseException | None = None  # a bug in the sink, raised in the greenlet

    @property
    def answered(self) -> bool:
        """At least one byte of a response has come."""
        return self._reader.received

    @property
    def reusable(self) -> bool:
        """The connection may carry another request."""
        reader = self._reader
        return (
            self._crash is None
            and self._over
            and not self._kept  # bytes or an end came after the answer
            and self._sent
            and reader.finished
            and reader.reusable
            and not reader.excess
        )

    def run(self) -> End:
        """Send, then sleep until the end. Whatever is thrown into the greenlet passes through, watchers stopped."""
        try:
            self._readable.start(self._on_readable)
            self._send()
            while not self._over:
                self._park()
        finally:
            if not self._over:
                self._catch_up()  # what came before we were stopped counts
            self._left = True
            for watcher in (self._readable, self._timer):
                watcher.stop()
                watcher.close()
        if self._crash is not None:
            raise self._crash
        assert self._end is not None
        return self._end

    # -- in the greenlet ------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Hand the request over slice by slice; stop early when the server answers or breaks first."""
        self._check(self._clock())
        pieces = slices(self._parts)
        try:
            packed = self._connection.pack(next(pieces))
            self._sink.sending(self._clock())
            whole = self._push(packed)
            for piece in pieces:
                rest()  # sleep(0) would not poll: its callbacks run on for 5 ms before the loop reads again
                whole = whole and self._push(self._connection.pack(piece))
        except OSError:
            return  # a server may refuse and close before it has read all: its answer may still be readable
        if whole:
            self._sent = True
            now = self._clock()
            self._sink.sent(now)
            self._take_held()
            self._check(now)

    def _push(self, packed: bytes | memoryview) -> bool:
        """Send these bytes; False when the exchange was over before they were all taken."""
        rest = memoryview(packed)
        while rest and not self._over:
            try:
                rest = rest[self._connection.send(rest) :]
            except BlockingIOError:
                self._await_writable()
        return not rest

    def _await_writable(self) -> None:
        writable = self._hub.loop.io(self._connection.fileno, WRITABLE)
        try:
            writable.start(self._on_writable)
            self._park()
        finally:
            writable.stop()
            writable.close()

    def _park(self) -> None:
        self._waiter = Waiter(self._hub)
        try:
            self._waiter.get()
        finally:
            self._waiter = None

    # -- in the hub's callbacks: nothing may be raised here, the greenlet would never wake --------------------------

    def _wake(self) -> None:
        """The exchange is over: let the greenlet go on when its turn comes."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._shared.wake(waiter)

    def _on_writable(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.switch(None)

    def _on_readable(self) -> None:
        try:
            read = self._connection.receive(self._shared.scratch, self._clock)
        except BlockingIOError:
            return
        except OSError as exc:
            now = self._clock()
            self._catch_up()  # what came before
            if not self._over:
                self._finish(faults.broken(faults.describe(exc), now, head_seen=self._reader.status is not None))
            return
        _, data, closed = read
        if closed:
            self._readable.stop()  # it would stay readable until this is taken
        elif (
            self._begins
            and data.endswith(self._ends)
            and data.startswith(self._begins, data.find(b"\n", 0, SIZE_LINE) + 1)
            and len(self._held) < MOST_HELD
            and len(data) <= HELD_BYTES
            and not self._kept
        ):
            self._held.append(read)
            return
        self._kept += 1
        self._shared.read(self._on_read, read)

    def _on_read(self, read: Read) -> None:
        if self._left or self._over:
            return
        self._kept -= 1
        self._held.append(read)
        self._take_held()

    def _take_held(self) -> None:
        """Take the reads that are held, in order, and learn how those look that may be held next."""
        try:
            for ns, data, closed in self._held:
                if self._over:
                    self._kept += 1  # bytes behind the end: the connection is not used again
                    break
                self._take(ns, data, closed)
            self._begins, ends = (b"", b"") if self._enough_at is not None else self._sink.alike
            self._ends = ends + self._reader.after_body
        except BaseException as exc:  # noqa: BLE001 - handed to the greenlet
            self._crash = exc
            self._stop()
        self._held.clear()

    def _catch_up(self) -> None:
        """Take all that was read."""
        self._shared.take_reads()
        self._take_held()

    def _on_timer(self) -> None:
        try:
            self._catch_up()  # what came in time counts
            if self._over:
                return
            self._due = None
            self._check(self._clock())
        except BaseException as exc:  # noqa: BLE001 - handed to the greenlet
            self._crash = exc
            self._stop()

    def _take(self, ns: int, data: bytes, closed: bool) -> None:
        reader, sink = self._reader, self._sink
        head_was_told = reader.status is not None
        settled = sink.settled
        body = reader.feed(data)
        if not head_was_told and reader.status is not None:
            sink.head(ns, reader.status, reader.headers)
        if self._enough_at is not None:
            self._drained += len(data)
        elif body and sink.read(ns, body):
            self._enough_at, self._end = ns, End("stopped", None, "", ns)
            settled = False  # from now on the deadline is another one, and near
        if reader.error is not None:
            self._finish(faults.bad_http(reader.error, ns))
        elif reader.finished or (closed and reader.open_ended):
            self._finish(End("eof", None, "", ns))
        elif closed:
            self._finish(faults.cut(ns, head_seen=reader.status is not None))
        elif self._drained > DRAIN_BYTES:
            self._stop()
        elif not (settled and sink.settled):
            self._check(ns)

    def _check(self, now: int) -> None:
        """End the exchange when its deadline has passed, else see that the timer is not set later than it."""
        limit: tuple[int, Outcome] | None
        if self._enough_at is not None:
            limit = (self._enough_at + DRAIN_NS, Outcome.OK)
        else:
            limit = self._sink.deadline(now)
        if limit is None:
            return
        due, outcome = limit
        if due <= now:
            self._finish(overdue_end(outcome, now))
        elif self._due is None or due < self._due:
            self._due = due
            self._timer.close()
            self._timer = self._hub.loop.timer((due - now) / 1e9)
            self._timer.start(self._on_timer, update=True)

    def _finish(self, end: End) -> None:
        """The exchange is over; a sink that had enough before has already named the end."""
        if self._enough_at is None:
            self._end = end
        self._stop()

    def _stop(self) -> None:
        self._over = True
        self._readable.stop()
        self._timer.stop()
        self._wake()

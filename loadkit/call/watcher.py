"""The transport of loadkit's own: a persistent watcher in gevent's hub reads, stamps, and only then parses.

A greenlet that reads costs two switches and one failed read per event; a callback costs neither, so hundreds of
streams are stamped within a fraction of a millisecond. The greenlet sends, then sleeps until the exchange has ended.
Works in a patched Locust worker and in an unpatched main program, which then simply runs the hub while it waits.
"""

import ssl
import time

import gevent

from loadkit.call import faults
from loadkit.call.connection import Connection, open_connection
from loadkit.call.exchange import Exchange
from loadkit.call.hub import shared
from loadkit.call.outgoing import Origin, head_bytes, split_url
from loadkit.call.tls import shared_context
from loadkit.call.transport import ClockNs, End, Overdue, Sink, WireRequest, overdue_end


class WatcherTransport:
    """HTTP/1.1 over one persistent TCP or TLS connection, for one user. Proxies are not its business."""

    name = "loadkit"
    proxied = False

    def __init__(self, tls: ssl.SSLContext | None = None, clock: ClockNs = time.perf_counter_ns) -> None:
        """`tls` is used for https URLs; by default the process's shared verifying context."""
        self._tls = tls
        self._clock = clock
        self._connection: Connection | None = None

    def exchange(self, request: WireRequest, sink: Sink) -> End:
        """See the contract. A reused connection that breaks before any answer is replaced once, and t0 starts anew."""
        origin, target = split_url(request.url)
        head = head_bytes(request, origin, target)
        while True:
            reused = self._reusable(origin)
            if not reused:
                failed = self._open(origin, sink)
                if failed is not None:
                    return failed
            assert self._connection is not None
            talk = Exchange(self._connection, request, head, sink, self._clock)
            try:
                end = talk.run()
            finally:
                if not talk.reusable:
                    self.close()
            if not (reused and end.how == "reset" and not talk.answered):
                return end

    def close(self) -> None:
        """Close the connection, if any."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _reusable(self, origin: Origin) -> bool:
        if self._connection is not None and (self._connection.origin != origin or not self._connection.quiet()):
            self.close()
        return self._connection is not None

    def _open(self, origin: Origin, sink: Sink) -> End | None:
        context = (self._tls or shared_context()) if origin.scheme == "https" else None
        started = self._clock()
        sink.connecting(started)
        try:
            self._connection = open_connection(origin, context, sink, self._clock, shared(gevent.get_hub()).scratch)
        except Overdue as late:
            return overdue_end(late.outcome, self._clock())
        except (OSError, UnicodeError) as exc:
            return faults.connecting(exc, self._clock())
        sink.connected(started, self._clock())
        return None

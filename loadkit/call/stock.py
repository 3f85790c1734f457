"""The transport over stock httpx: for proxies and whatever is unusual, with or without gevent's patching.

httpx.Client sends through httpcore's pool. Marks come from httpcore's trace extension; a network backend (httpcore's
public hook) stamps each read and asks the sink how long each wait may last, because httpx timeouts are per operation
and a trickle of keep-alives would extend them for ever. Costs about three times the CPU per event of `watcher`.
"""

import logging
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

from loadkit.call import faults
from loadkit.call.outgoing import check_header, slices, split_url
from loadkit.call.pool import Through, proxy_of
from loadkit.call.tls import shared_context
from loadkit.call.transport import (
    DRAIN_BYTES,
    DRAIN_NS,
    ClockNs,
    End,
    Overdue,
    Sink,
    WireRequest,
    overdue_end,
    remaining_s,
)
from loadkit.call.wire import ResponseReader
from loadkit.record.names import Outcome

# httpcore's names of the phases that open a connection.
_OPENING = ("connection.connect_tcp.", "connection.start_tls.", "proxy.start_tls.", "socks5.setup_socks5_connection.")
WRITE_BYTES = 64 * 1024


class StockTransport:
    """httpx and httpcore, HTTP/1.1 only, one connection, no retries of their own, environment ignored."""

    name = "httpx"

    def __init__(
        self,
        tls: ssl.SSLContext | None = None,
        clock: ClockNs = time.perf_counter_ns,
        *,
        proxy: str | None = None,
        proxy_from: str = "",
        secure: bool = True,
    ) -> None:
        """`proxy` is an http:// or https:// URL all requests go through; its user name and password are used.
        `proxy_from` is the variable it was found in, which faults of the proxy then name. `secure` False: no TLS is
        spoken on the way, so no context is made."""
        # One INFO line per request would cost time, and makes a Locust worker drop its log forwarding for good.
        for logger in ("httpx", "httpcore"):
            logging.getLogger(logger).setLevel(logging.WARNING)
        self._clock = clock
        self.proxied = proxy is not None
        self._proxy_from = proxy_from
        self._backend = _Backend()
        context = (tls or shared_context()) if secure else None
        self._pool = httpcore.ConnectionPool(
            ssl_context=context,
            proxy=proxy_of(proxy, context) if proxy else None,
            max_connections=None,
            max_keepalive_connections=1,
            keepalive_expiry=None,
            retries=0,
            network_backend=self._backend,
        )
        self._client = httpx.Client(transport=Through(self._pool), trust_env=False, timeout=None)

    def exchange(self, request: WireRequest, sink: Sink) -> End:
        """See the contract. A reused connection that breaks before any answer is replaced once, and t0 starts anew."""
        split_url(request.url)
        for name, value in request.headers:
            check_header(name, value)
        while True:
            turn = _Turn(request.method, sink, self._clock)
            end = self._once(request, turn)
            if turn.opened or turn.answered or end.how != "reset":
                return end

    def close(self) -> None:
        """Close the connection, if any; the client opens another when it is used again."""
        self._pool.close()

    def _once(self, request: WireRequest, turn: "_Turn") -> End:
        self._backend.turn = turn
        named = (*request.headers, ("Content-Length", str(request.body_bytes)))
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in named]
        try:
            with self._client.stream(
                request.method,
                request.url,
                headers=headers,
                content=map(bytes, slices(request.body, WRITE_BYTES)),
                extensions={"trace": turn.trace},
            ) as response:
                for piece in response.iter_raw():
                    turn.collect(piece)
                turn.flush()
            end = End("eof", None, "", turn.read_ns)
        except Overdue as late:
            end = overdue_end(late.outcome, self._clock())
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as exc:
            end = self._fault(exc, turn)
        finally:
            self._client.cookies.clear()
            if turn.reader is not None and turn.reader.excess:
                self._pool.close()  # httpcore would take what is left over for the next answer
        if turn.enough_at is not None:
            return End("stopped", None, "", turn.enough_at)
        return end

    def _fault(self, exc: Exception, turn: "_Turn") -> End:
        turn.flush()
        now = self._clock()
        if turn.reader is None:
            end = faults.connecting(exc, now, proxied=self.proxied and not turn.tunnelled)
            return faults.of_proxy(end, self._proxy_from)
        if turn.closed:
            return faults.cut(turn.read_ns, head_seen=turn.head_seen)
        if isinstance(exc, httpcore.RemoteProtocolError):
            return faults.bad_http(turn.reader.error or str(exc), turn.read_ns)
        return faults.broken(faults.describe(faults.root_cause(exc)), now, head_seen=turn.head_seen)


class _Turn:
    """One attempt at an exchange: what httpcore does, put into the sink's terms."""

    def __init__(self, method: str, sink: Sink, clock: ClockNs) -> None:
        self.sink = sink
        self.clock = clock
        # From t0 on our own reader follows the bytes: it sees what h11 does not tell, and has the tighter limits.
        self.reader: ResponseReader | None = None
        self.closed = False  # the server has sent its FIN
        self.head_seen = False
        self.tunnelled = False
        self.read_ns = 0  # stamp of the last read
        self.enough_at: int | None = None
        self._opening: tuple[int, int] | None = None
        self._method = method
        self._connecting = False  # inside a CONNECT to a proxy
        self._pieces: list[bytes] = []
        self._drained = 0

    @property
    def opened(self) -> bool:
        """A new connection was begun."""
        return self._opening is not None

    @property
    def answered(self) -> bool:
        """At least one byte of a response has come."""
        return self.reader is not None and self.reader.received

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """httpcore's trace extension: called at the start and the end of every phase."""
        now = self.clock()
        if event.startswith(_OPENING):
            if self._opening is None:
                self.sink.connecting(now)
            self._opening = (self._opening[0] if self._opening else now, now)
            self.tunnelled = self.tunnelled or event.startswith("proxy.start_tls.")
        elif event == "http11.send_request_headers.started":
            self._connecting = info["request"].method == b"CONNECT"
            if not self._connecting:
                self._begin()
        elif self._connecting:
            return
        elif event == "http11.send_request_body.complete":
            self.sink.sent(now)
        elif event == "http11.receive_response_headers.complete":
            self._head(info["return_value"])

    def _begin(self) -> None:
        if self._opening is not None:
            self.sink.connected(*self._opening)
        self.reader = ResponseReader(self._method)
        self.sink.sending(self.clock())

    def _head(self, found: tuple[bytes, int, bytes, list[tuple[bytes, bytes]]]) -> None:
        self.head_seen = True
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in found[3]]
        self.sink.head(self.read_ns, found[1], headers)

    def collect(self, piece: bytes) -> None:
        """A piece of the body; one network read may hold several, they are told as one."""
        if self.enough_at is None:
            self._pieces.append(piece)

    def flush(self) -> None:
        """Tell the sink what the last read held."""
        if self._pieces:
            data, self._pieces = b"".join(self._pieces), []
            if self.sink.read(self.read_ns, data):
                self.enough_at = self.read_ns

    def remaining(self) -> float | None:
        """How long the next wait may last, in seconds; raises Overdue."""
        now = self.clock()
        if self.enough_at is None:
            return remaining_s(self.sink, now)
        left = self.enough_at + DRAIN_NS - now
        if left <= 0 or self._drained > DRAIN_BYTES:
            raise Overdue(Outcome.OK)
        return left / 1e9

    def took(self, data: bytes) -> None:
        """A network read has returned."""
        self.read_ns = self.clock()
        self.closed = not data
        if self.reader is not None:
            self.reader.feed(data)
            if self.reader.error is not None and self.reader.status is None:
                raise httpcore.RemoteProtocolError(self.reader.error)
        if self.enough_at is not None:
            self._drained += len(data)


class _Backend(httpcore.NetworkBackend):
    """Opens connections address by address, each wait bounded by the deadline of the turn in progress."""

    turn: _Turn

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception | None = None
        try:
            addresses = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            raise httpcore.ConnectError(str(exc)) from exc
        for found in addresses:
            try:
                stream = httpcore.SyncBackend().connect_tcp(
                    str(found[4][0]), port, self.turn.remaining(), None, socket_options
                )
            except httpcore.ConnectTimeout:
                self.turn.remaining()
                raise
            except httpcore.ConnectError as exc:
                failure = exc
                continue
            return _Stream(stream, self)
        raise failure or httpcore.ConnectError("the name has no address")


class _Stream(httpcore.NetworkStream):
    """A connection whose reads are stamped as they return."""

    def __init__(self, stream: httpcore.NetworkStream, backend: _Backend) -> None:
        self._stream = stream
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        turn = self._backend.turn
        turn.flush()
        while True:
            try:
                data = self._stream.read(max_bytes, turn.remaining())
            except httpcore.ReadTimeout:
                continue  # the deadline decides, on the next round
            turn.took(data)
            return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        turn = self._backend.turn
        try:
            self._stream.write(buffer, turn.remaining())
        except httpcore.WriteTimeout:
            turn.remaining()
            raise

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        turn = self._backend.turn
        try:
            stream = self._stream.start_tls(ssl_context, server_hostname, turn.remaining())
        except httpcore.ConnectTimeout:
            turn.remaining()
            raise
        return _Stream(stream, self._backend)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

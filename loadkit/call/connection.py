"""One TCP or TLS connection driven by gevent's hub: opened within a deadline, then never blocking.

Sockets are the plain C ones of `_socket`: `socket.socket` is another class once gevent has patched the process, and
its waits would hide the moment a read returned. Here the caller owns every wait.
"""

import _socket
import errno
import functools
import ssl
from collections.abc import Callable
from typing import Any

import gevent
from gevent import socket as hub_socket

from loadkit.call.outgoing import Origin
from loadkit.call.transport import ClockNs, Overdue, Sink, remaining_s

_TLS_READ = 64 * 1024

Read = tuple[int, bytes, bool]
"""A read: the stamp taken as it returned (ns), its application bytes, whether the stream has ended."""


class Connection:
    """An open connection. `receive` and `send` never wait: they raise BlockingIOError when the kernel is not ready."""

    def __init__(self, sock: _socket.socket, origin: Origin) -> None:
        self.origin = origin
        self.fileno = sock.fileno()
        self._sock = sock

    def receive(self, scratch: memoryview, clock: ClockNs) -> Read:
        """Take what the kernel has, 64 KB at most."""
        size = self._sock.recv_into(scratch)
        ns = clock()
        return ns, bytes(scratch[:size]), size == 0

    def pack(self, data: bytes | memoryview) -> bytes | memoryview:
        """The bytes to hand to `send` for this application data."""
        return data

    def send(self, packed: bytes | memoryview) -> int:
        """Hand bytes to the kernel; how many it took."""
        return self._sock.send(packed)

    def quiet(self) -> bool:
        """True when the idle connection is open and the server has sent nothing on it."""
        try:
            self._sock.recv(1, _socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Close the socket; unread bytes turn into a reset, which is what tells a server to stop generating."""
        self._sock.close()


class TlsConnection(Connection):
    """TLS through memory buffers, so that the stamp is taken before anything is decrypted."""

    def __init__(self, sock: _socket.socket, origin: Origin, context: ssl.SSLContext) -> None:
        super().__init__(sock, origin)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=origin.host)

    def handshake(self, scratch: memoryview, wait: Callable[[bool], None]) -> None:
        """Shake hands; `wait(writing)` parks until the socket is ready. Raises ssl.SSLError, OSError."""
        while True:
            failure: ssl.SSLError | None = None
            try:
                self._tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError as exc:  # the alert that says why is still to be sent
                done, failure = True, exc
            self._flush(wait)
            if failure is not None:
                raise failure
            if done:
                return
            self._fill(scratch, wait)

    def receive(self, scratch: memoryview, clock: ClockNs) -> Read:
        size = self._sock.recv_into(scratch)
        ns = clock()
        if size:
            self._incoming.write(scratch[:size])
        else:
            self._incoming.write_eof()
        pieces: list[bytes] = []
        while True:
            try:
                piece = self._tls.read(_TLS_READ)
            except ssl.SSLWantReadError:
                return ns, b"".join(pieces), False
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                # Many servers close without close_notify; the HTTP framing tells whether the body was whole.
                return ns, b"".join(pieces), True
            if not piece:
                return ns, b"".join(pieces), True
            pieces.append(piece)

    def pack(self, data: bytes | memoryview) -> bytes | memoryview:
        self._tls.write(data)
        return self._outgoing.read()

    def quiet(self) -> bool:
        # Session tickets arrive after the handshake, so readable is not yet a reason to give the connection up.
        try:
            _, data, closed = self.receive(memoryview(bytearray(_TLS_READ)), lambda: 0)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return not data and not closed

    def _flush(self, wait: Callable[[bool], None]) -> None:
        packed = memoryview(self._outgoing.read())
        while packed:
            try:
                packed = packed[self._sock.send(packed) :]
            except BlockingIOError:
                wait(True)

    def _fill(self, scratch: memoryview, wait: Callable[[bool], None]) -> None:
        while True:
            try:
                size = self._sock.recv_into(scratch)
            except BlockingIOError:
                wait(False)
                continue
            if not size:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "connection closed during the TLS handshake")
            self._incoming.write(scratch[:size])
            return


def open_connection(
    origin: Origin, context: ssl.SSLContext | None, sink: Sink, clock: ClockNs, scratch: memoryview
) -> Connection:
    """Look the name up, connect to the first address that answers, shake hands.

    `context` is used for https. Raises what sockets, names and TLS raise, and Overdue when the sink's deadline passes.
    """
    failure: OSError | None = None
    for family, address in _addresses(origin, sink, clock):
        try:
            sock = _connect(family, address, sink, clock)
        except OSError as exc:
            failure = exc
            continue
        if context is None:
            return Connection(sock, origin)
        try:
            connection = TlsConnection(sock, origin, context)
            connection.handshake(scratch, functools.partial(wait_ready, sock.fileno(), sink, clock))
        except BaseException:
            sock.close()
            raise
        return connection
    raise failure or OSError("the name has no address")


def wait_ready(fileno: int, sink: Sink, clock: ClockNs, writing: bool) -> None:
    """Park this greenlet until the socket is ready; raises Overdue when the sink's deadline passes first."""
    wait = hub_socket.wait_write if writing else hub_socket.wait_read
    while True:
        try:
            wait(fileno, timeout=remaining_s(sink, clock()))
        except TimeoutError:
            continue  # the timer may be early by the loop's lag: the clock decides, on the next round
        return


def _addresses(origin: Origin, sink: Sink, clock: ClockNs) -> list[tuple[int, Any]]:
    """(family, address) pairs; a numeric host costs nothing, a name is looked up in gevent's resolver threads."""
    where = (origin.host, origin.port, 0, _socket.SOCK_STREAM, 0)
    try:
        found = _socket.getaddrinfo(*where, _socket.AI_NUMERICHOST)
    except _socket.gaierror:
        found = []
    if not found:
        now = clock()
        limit, due = remaining_s(sink, now), sink.deadline(now)
        with gevent.Timeout(limit, Overdue(due[1]) if due else None):
            found = hub_socket.getaddrinfo(*where)
    return [(family, address) for family, _, _, _, address in found]


def _connect(family: int, address: Any, sink: Sink, clock: ClockNs) -> _socket.socket:
    sock = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        code = sock.connect_ex(address)
        if code == errno.EINPROGRESS:
            wait_ready(sock.fileno(), sink, clock, True)
            code = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
        if code:
            raise OSError(code, errno.errorcode.get(code, "connect failed"))
    except BaseException:
        sock.close()
        raise
    return sock

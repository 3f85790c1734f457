"""An HTTP transport whose every exchange is bounded as a whole, in time and in bytes, whatever the server does.

Timeouts of httpx are per operation, so a server that drips lines keeps a call open for ever. Here each wait on the
connection asks how much is left of the exchange; nothing runs in another thread, and gevent may have patched sockets.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpcore
import httpx

from loadkit.call.pool import Through, proxy_of

EXCHANGE_S = 30.0  # one exchange, from connecting to the last byte
MAX_ANSWER = 16 * 1024 * 1024  # bytes


class AnswerUnfinished(httpx.TransportError):
    """An answer that was given up because it took too long or grew too large; the message is a clause."""


class BoundedTransport(httpx.BaseTransport):
    """One exchange at a time, at most EXCHANGE_S seconds and MAX_ANSWER bytes each. Raises AnswerUnfinished beyond."""

    def __init__(
        self, tls: ssl.SSLContext | None, proxy: str | None, connect_s: float, now: Callable[[], float]
    ) -> None:
        """`connect_s` bounds connecting alone, which is tried twice more."""
        self._network = _Network(connect_s, now)
        self._through = Through(
            httpcore.ConnectionPool(
                ssl_context=tls,
                proxy=proxy_of(proxy, tls) if proxy else None,
                retries=2,
                network_backend=self._network,
            )
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._network.begin()
        response = self._through.handle_request(request)
        if response.headers.get("content-encoding", "identity").strip().lower() != "identity":
            response.close()
            raise httpx.DecodingError("the answer is compressed, which was not asked for", request=request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Limited(response.stream)
        return response

    def close(self) -> None:
        self._through.close()


class _Limited(httpx.SyncByteStream):
    """A body that is given up beyond MAX_ANSWER bytes."""

    def __init__(self, body: httpx.SyncByteStream) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for piece in self._body:
            size += len(piece)
            if size > MAX_ANSWER:
                raise AnswerUnfinished(f"its answer did not finish within {MAX_ANSWER / 2**20:.3g} MiB")
            yield piece

    def close(self) -> None:
        self._body.close()


class _Network(httpcore.NetworkBackend):
    """Opens connections whose waits end with the exchange in progress."""

    def __init__(self, connect_s: float, now: Callable[[], float]) -> None:
        self._connect_s = connect_s
        self._now = now
        self._until = 0.0

    def begin(self) -> None:
        """An exchange begins now."""
        self._until = self._now() + EXCHANGE_S

    def left_s(self) -> float:
        """Seconds the exchange may still take; AnswerUnfinished when it has none."""
        left = self._until - self._now()
        if left <= 0:
            raise AnswerUnfinished(f"its answer did not finish within {EXCHANGE_S:.0f} s")
        return left

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        limit = min(self._connect_s, self.left_s())
        return _Stream(httpcore.SyncBackend().connect_tcp(host, port, limit, local_address, socket_options), self)

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, self.left_s()))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, network: _Network) -> None:
        self._stream = stream
        self._network = network

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        limit = self._network.left_s()
        try:
            return self._stream.read(max_bytes, limit)
        except httpcore.ReadTimeout:
            self._network.left_s()
            raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._network.left_s())

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._network.left_s()), self._network)

    def close(self) -> None:
        self._stream.close()

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

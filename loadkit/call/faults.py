"""Exceptions of sockets, TLS, names and httpcore, turned into outcomes at the edge. Nothing above sees an OSError."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace

import httpcore

from loadkit.call.transport import End
from loadkit.record.names import Outcome

# What a name lookup, connect or handshake can raise, and its outcome; the first match wins.
CONNECTING: tuple[tuple[type[BaseException], Outcome], ...] = (
    (socket.gaierror, Outcome.DNS_ERROR),
    (UnicodeError, Outcome.DNS_ERROR),  # a host name that IDNA cannot encode
    (ssl.SSLError, Outcome.TLS_ERROR),
    (ssl.CertificateError, Outcome.TLS_ERROR),
    (httpcore.ProxyError, Outcome.PROXY_ERROR),
    (httpcore.PoolTimeout, Outcome.POOL_TIMEOUT),
    (httpcore.ConnectTimeout, Outcome.CONNECT_TIMEOUT),
    (TimeoutError, Outcome.CONNECT_TIMEOUT),  # also ETIMEDOUT of the kernel
    (OSError, Outcome.CONNECT_ERROR),
    (httpcore.NetworkError, Outcome.CONNECT_ERROR),
)


def root_cause(exc: BaseException) -> BaseException:
    """The exception a wrapper such as httpcore's was raised from."""
    chain = list(_chain(exc))
    return chain[-1]


def connecting(exc: BaseException, at_ns: int, *, proxied: bool = False) -> End:
    """The end of an exchange that got no connection. `proxied`: the peer that failed was a proxy."""
    chain = list(_chain(exc))
    for kind, outcome in CONNECTING:
        if any(isinstance(link, kind) for link in chain):
            if proxied and outcome in (Outcome.CONNECT_ERROR, Outcome.DNS_ERROR):
                outcome = Outcome.PROXY_ERROR
            return End("fault", outcome, describe(chain[-1]), at_ns)
    return End("fault", Outcome.CONNECT_ERROR, describe(chain[-1]), at_ns)


def of_proxy(end: End, variable: str) -> End:
    """The same end; where the fault is the proxy's, its detail names the variable the proxy came from."""
    if end.outcome is not Outcome.PROXY_ERROR or not variable:
        return end
    return replace(end, detail=f"{end.detail} (the proxy is set by {variable})")


def broken(detail: str, at_ns: int, *, head_seen: bool) -> End:
    """The connection broke. Before a response head that is the outcome; after it the protocol decides."""
    return End("reset", None if head_seen else Outcome.RESET, detail, at_ns)


def cut(at_ns: int, *, head_seen: bool) -> End:
    """The server closed cleanly where its framing promised more, or before it had answered."""
    if head_seen:
        return End("truncated", None, "connection closed before the body was complete", at_ns)
    return End("reset", Outcome.RESET, "connection closed before a response", at_ns)


def bad_http(detail: str, at_ns: int) -> End:
    """The bytes received are not the HTTP/1.1 we accept."""
    return End("fault", Outcome.PROTOCOL_ERROR, detail, at_ns)


def describe(exc: BaseException) -> str:
    """Class and message of an exception, for the error message of a record."""
    text = str(exc)
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _chain(exc: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = exc
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__  # httpcore's pool raises again `from None`

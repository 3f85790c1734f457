"""One TLS context for the whole process: building one costs 20-50 ms and would stall every stream."""

import functools
import ssl

import httpx


@functools.cache
def shared_context() -> ssl.SSLContext:
    """The verifying client context of httpx (certifi, or SSL_CERT_FILE / SSL_CERT_DIR), HTTP/1.1 only."""
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context

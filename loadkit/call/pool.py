"""httpcore's pool under httpx: httpx's own transport builds one without a network backend to choose."""

import ssl
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import httpcore
import httpx


class Through(httpx.BaseTransport):
    """httpcore's pool as a transport of httpx. Faults come as httpcore raises them."""

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        response = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response), extensions=response.extensions
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        return self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


def proxy_of(url: str, context: ssl.SSLContext | None) -> httpcore.Proxy:
    """The proxy of an http:// or https:// URL, with the user name and password in it."""
    parts = urlsplit(url)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    where = httpcore.URL(scheme=parts.scheme, host=parts.hostname or "", port=parts.port, target="/")
    return httpcore.Proxy(where, auth=auth, ssl_context=context if parts.scheme == "https" else None)

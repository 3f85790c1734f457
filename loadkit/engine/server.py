"""The HTTP side: an OpenAI-compatible server on the standard library, one thread per connection.

HTTP/1.1 with keep-alive; streams are chunked server-sent events, one write per token, without Nagle's delay.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation
from loadkit.engine.request import Asked, parse_json
from loadkit.engine.response import DONE, Responses, dump, event
from loadkit.engine.service import Service

MAX_BODY = 32 * 2**20  # bytes; a million tokens of text are about 5 MB
MAX_CONNECTIONS = 512
IDLE_S = 60  # a connection that neither sends nor takes bytes for so long is closed
DRAIN = 2**20  # bytes of a refused body that are read, so that the client sees the answer and not a reset
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
GET_PATHS = ("/health", "/metrics", "/v1/models")
POST_PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize")


class EngineServer(ThreadingHTTPServer):
    """Listens and gives each connection a thread, up to MAX_CONNECTIONS."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.service = service
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            request.setblocking(False)
            with contextlib.suppress(OSError):  # it left by itself
                request.send(BUSY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that vanishes is no error of the server."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: EngineServer
    protocol_version = "HTTP/1.1"
    server_version = "loadkit-engine"
    sys_version = ""
    timeout = IDLE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._route(GET_PATHS, POST_PATHS)

    def do_POST(self) -> None:
        self._route(POST_PATHS, GET_PATHS)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: the log is for what went wrong."""

    def _route(self, served: tuple[str, ...], others: tuple[str, ...]) -> None:
        try:
            # The body is read even where it means nothing: what stays in the pipe would be taken for a request.
            body = self._body()
            path = _path(self.path)
            if path in others:
                raise ApiError(405, "method_not_allowed", f"{path} does not take {self.command}")
            if path not in served:
                raise ApiError(404, "not_found", f"no such path: {path[:200]}")
            self._answer(path, body)
        except ApiError as error:
            self._refuse(error)

    def _answer(self, path: str, body: bytes) -> None:
        service = self.server.service
        if path == "/health":
            self._json(200, {"status": "ok"})
        elif path == "/metrics":
            self._send(200, "text/plain; version=0.0.4; charset=utf-8", service.metrics_text().encode())
        elif path == "/v1/models":
            self._json(200, service.models())
        elif path == "/tokenize":
            self._json(200, service.tokenize(parse_json(body)))
        else:
            self._generate(parse_json(body), chat=path == "/v1/chat/completions")

    def _generate(self, raw: dict[str, Any], *, chat: bool) -> None:
        service = self.server.service
        asked = service.ask(raw, chat=chat)
        connection = self.connection
        left = threading.Event()  # set when writing fails; reading cannot tell in time
        generation = service.start(asked, lambda: not left.is_set() and connected(connection))
        responses = Responses(service.loaded.name, chat=chat)
        try:
            if asked.stream:
                self._stream(asked, generation, responses)
            else:
                self._whole(generation, responses)
        except OSError:
            left.set()
            self.close_connection = True

    def _whole(self, generation: Generation, responses: Responses) -> None:
        texts: list[str] = []
        for item in self.server.service.texts(generation):
            if not isinstance(item, Finished):
                texts.append(item)
            elif item.reason == "error":
                self._refuse(ApiError(500, "engine_error", item.error))
            else:
                self._json(200, responses.whole("".join(texts), item.reason, generation))

    def _stream(self, asked: Asked, generation: Generation, responses: Responses) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        chunked = self.request_version != "HTTP/1.0"
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.close_connection = True
        self.end_headers()

        def write(data: bytes, *, last: bool = False) -> None:
            end = b"0\r\n\r\n" if last else b""
            self.wfile.write(b"%x\r\n%b\r\n%b" % (len(data), data, end) if chunked else data)

        if asked.chat:
            write(responses.role())
        for item in self.server.service.texts(generation):
            if not isinstance(item, Finished):
                write(responses.text(item))
            elif item.reason == "error":
                write(event(ApiError(500, "engine_error", item.error).body()) + DONE, last=True)
            else:
                write(responses.end(item.reason, generation, include_usage=asked.include_usage))
                write(DONE, last=True)

    def _body(self) -> bytes:
        """The request body; ApiError when its length is unknown or above MAX_BODY."""
        length = self.headers.get("Content-Length")
        if self.headers.get("Transfer-Encoding") or (length is None and self.command == "POST"):
            self.close_connection = True
            raise ApiError(411, "length_required", "the request needs a Content-Length and no Transfer-Encoding")
        if length is None:
            return b""
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise ApiError(400, "invalid_length", "Content-Length must be a number")
        if len(length) > 15 or int(length) > MAX_BODY:
            self.close_connection = True
            raise ApiError(413, "payload_too_large", f"the body is above {MAX_BODY} bytes")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            self.close_connection = True
            raise ApiError(400, "incomplete_body", "the body is shorter than its Content-Length")
        return body

    def _refuse(self, error: ApiError) -> None:
        headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
        self._json(error.status, error.body(), headers)
        if error.status == 413:
            self._drain()

    def _drain(self) -> None:
        """Read some of a body nobody wants: closing a socket with unread bytes would reset it under the answer."""
        self.connection.shutdown(socket.SHUT_WR)
        self.connection.settimeout(1)
        left = DRAIN
        while left > 0 and (data := self.rfile.read1(65536)):
            left -= len(data)

    def _json(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self._send(status, "application/json", dump(body), headers)

    def _send(self, status: int, content_type: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


def _path(target: str) -> str:
    try:
        return urlsplit(target).path.rstrip("/")
    except ValueError:
        raise ApiError(400, "invalid_request", "the request target is no URL") from None


def connected(connection: socket.socket) -> bool:
    """False when the peer has closed its side. Never waits, takes nothing from the connection."""
    try:
        poller = select.poll()
        poller.register(connection, select.POLLIN)
        return not poller.poll(0) or connection.recv(1, socket.MSG_PEEK) != b""
    except (OSError, ValueError):
        return False

"""The OpenAI-compatible server: paths, and answers that are written as their tokens come.

One thread runs an event loop and all connections; the scheduler's thread hands it each token. Large bodies are read and
tokenised in threads of their own, so that they delay no stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation
from loadkit.engine.http import Connection, Hall, Head
from loadkit.engine.request import parse_json
from loadkit.engine.response import DONE, Responses, dump, event
from loadkit.engine.service import Prepared, Service
from loadkit.engine.tokenizer import Detokenizer

SMALL_BODY = 16 * 1024  # bytes that are parsed and tokenised at once, in a few milliseconds
SWEEP_S = 1.0
GET_PATHS = ("/health", "/metrics", "/v1/models")
POST_PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize")
JSON = "application/json"
STOPPING = ApiError(503, "overloaded", "the engine is stopping", retry_after_s=1)


class EngineServer:
    """Every connection and every answer under way. All methods belong to the event loop's thread."""

    def __init__(self, service: Service, *, connections: int) -> None:
        self.service = service
        self.hall = Hall(connections)
        self._readers = ThreadPoolExecutor(2, "reader")
        self._answers: set[Answer] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def connection(self) -> Connection:
        """The protocol factory for `loop.create_server`."""
        return Connection(self.hall, self.service.max_body, self._handle)

    async def sweep(self) -> None:
        """Close silent connections, for ever."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.hall.sweep()

    async def stop(self, grace_s: float) -> None:
        """Refuse new requests, give answers under way `grace_s` seconds, and end those that are left with an error."""
        self._stopping = True
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_s
        while self._answers and loop.time() < end:
            await asyncio.sleep(0.01)
        for answer in list(self._answers):
            answer.fail(STOPPING)
        for connection in list(self.hall.open):
            connection.transport.close()
        await asyncio.sleep(0.05)  # what was written goes out

    def _handle(self, connection: Connection, head: Head, body: bytes) -> None:
        if len(body) <= SMALL_BODY:
            self._answer(connection, head, self._read(head, body))
            return
        task = asyncio.get_running_loop().create_task(self._handle_large(connection, head, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle_large(self, connection: Connection, head: Head, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._answer(connection, head, await loop.run_in_executor(self._readers, self._read, head, body))

    def _read(self, head: Head, body: bytes) -> Prepared | dict[str, Any] | ApiError:
        """What is asked: a checked request with its prompt in tokens, the answer of /tokenize, or why not."""
        try:
            if head.path in (GET_PATHS if head.method == "POST" else POST_PATHS):
                raise ApiError(405, "method_not_allowed", f"{head.path} does not take {head.method[:20]}")
            if head.path not in (*GET_PATHS, *POST_PATHS):
                raise ApiError(404, "not_found", f"no such path: {head.path[:200]}")
            if head.method not in ("GET", "POST"):
                raise ApiError(405, "method_not_allowed", "only GET and POST are spoken here")
            if head.path in GET_PATHS:
                return {}
            raw = parse_json(body)
            if head.path == "/tokenize":
                return self.service.tokenize(raw)
            return self.service.prepare(raw, chat=head.path == "/v1/chat/completions")
        except ApiError as error:
            return error
        except Exception as error:  # noqa: BLE001 (one request's surprise must not end the others' streams)
            return ApiError(500, "internal_error", f"{type(error).__name__} while the request was read")

    def _answer(self, connection: Connection, head: Head, read: Prepared | dict[str, Any] | ApiError) -> None:
        service = self.service
        if isinstance(read, ApiError):
            connection.refuse(read)
        elif isinstance(read, Prepared):
            self._generate(connection, head, read)
        elif head.path == "/health":
            connection.respond(200, JSON, dump({"status": "ok"}))
        elif head.path == "/metrics":
            connection.respond(200, "text/plain; version=0.0.4; charset=utf-8", service.metrics_text().encode())
        else:
            connection.respond(200, JSON, dump(service.models() if head.path == "/v1/models" else read))

    def _generate(self, connection: Connection, head: Head, prepared: Prepared) -> None:
        if self._stopping:
            connection.keep_alive = False
            connection.refuse(STOPPING)
            return
        answer = Answer(self.service, connection, prepared, chunked=head.chunked, done=self._answers.discard)
        if not connection.lost:
            self._answers.add(answer)
            answer.start()


class Answer:
    """One answer on its connection, from the first byte of its head to the last token."""

    def __init__(
        self,
        service: Service,
        connection: Connection,
        prepared: Prepared,
        *,
        chunked: bool,
        done: Callable[[Answer], None],
    ) -> None:
        self._service = service
        self._connection = connection
        self._prepared = prepared
        self._asked = prepared.asked
        self._chunked = chunked
        self._done = done
        self._responses = Responses(service.loaded.name, chat=prepared.asked.chat)
        self._detokenizer = Detokenizer(service.loaded.tokenizer)
        self._texts: list[str] = []
        self._loop = asyncio.get_running_loop()
        self._generation: Generation | None = None

    def start(self) -> None:
        """Queue the generation; a stream's head goes out at once, before its turn comes."""
        connection = self._connection
        try:
            self._generation = self._service.start(self._prepared, lambda: not connection.lost, self._hand_over)
        except ApiError as error:
            self._done(self)
            connection.refuse(error)
            return
        connection.on_lost = lambda: self._done(self)
        if self._asked.stream:
            extra = "Cache-Control: no-cache\r\n" + ("Transfer-Encoding: chunked\r\n" if self._chunked else "")
            first = self._framed(self._responses.role()) if self._asked.chat else b""
            connection.begin(200, "text/event-stream; charset=utf-8", extra, first)

    def _hand_over(self, item: int | Finished) -> None:
        """Called by the scheduler's thread with each token and the end."""
        with contextlib.suppress(RuntimeError):  # the loop has ended before the engine did
            self._loop.call_soon_threadsafe(self.receive, item)

    def receive(self, item: int | Finished) -> None:
        """Write what a token adds to the text, or the end."""
        if self._generation is None or self._connection.lost:
            return
        if not isinstance(item, Finished):
            if text := self._detokenizer.feed(item):
                self._text(text)
        elif item.reason == "error":
            self.fail(ApiError(500, "engine_error", item.error))
        else:
            if text := self._detokenizer.flush():
                self._text(text)
            self._end(item.reason, self._generation)

    def _text(self, text: str) -> None:
        if self._asked.stream:
            self._connection.write(self._framed(self._responses.text(text)))
        else:
            self._texts.append(text)

    def _end(self, reason: str, generation: Generation) -> None:
        """The answer is complete."""
        self._close()
        connection, responses = self._connection, self._responses
        if not self._asked.stream:
            connection.respond(200, JSON, dump(responses.whole("".join(self._texts), reason, generation)))
            return
        end = responses.end(reason, generation, include_usage=self._asked.include_usage)
        self._last(self._framed(end) + self._framed(DONE))

    def fail(self, error: ApiError) -> None:
        """End with an error: as the answer, or inside a stream, whose status has been sent."""
        self._close()
        if not self._asked.stream:
            self._connection.refuse(error)
        else:
            self._last(self._framed(event(error.body()) + DONE))

    def _close(self) -> None:
        self._generation = None  # what still comes from the engine is not taken
        self._done(self)

    def _last(self, data: bytes) -> None:
        self._connection.write(data + (b"0\r\n\r\n" if self._chunked else b""))
        self._connection.end()

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

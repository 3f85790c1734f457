"""The simulated server: routes, admission to slots in FIFO order, injected errors, and the truth on request."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from loadkit.sim.ask import Ask, read_ask, tokenize
from loadkit.sim.http import Connection, Refused, Request
from loadkit.sim.law import Dice, Law, output_length, schedule
from loadkit.sim.stream import Answer
from loadkit.sim.truth import Record, Truth
from loadkit.sim.wire import VOICES, dumps

GENERATION = {
    "/v1/chat/completions": "openai-chat",
    "/v1/completions": "openai-completions",
    "/v1/messages": "anthropic",
    "/api/chat": "ollama",
}
JSON = "application/json"
TRUTH_PIECE = 16
MAX_REQUEST_ID = 200
# Small enough that scanning what one read brought delays no stream by much.
READ_BUFFER = 64 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for the whole server; `slots` and `time_scale` cannot differ per request. `slots` 0 = no limit,
    `queue` None = no limit, `key` None = no authorization asked for."""

    model: str = "sim"
    law: Law = field(default_factory=Law)
    slots: int = 0
    queue: int | None = None
    seed: int = 0
    time_scale: float = 1.0
    bytes_per_token: int = 1
    truth_keep: int = 100_000
    key: str | None = None


class Sim:
    """One server. `connection()` is the protocol factory for `loop.create_server`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._truth = Truth(settings.truth_keep)
        self._dice = Dice(settings.seed)
        self._scratch = memoryview(bytearray(READ_BUFFER))
        # A dict keeps order and lets a client that has gone leave the middle of the queue at no cost.
        self._waiting: dict[Answer, Callable[[], None]] = {}
        self._running = 0
        self._peaks = {"in_flight": 0, "running": 0, "queued": 0}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection(self) -> Connection:
        return Connection(self._scratch, self._handle)

    @property
    def idle(self) -> bool:
        """No answer is under way."""
        return not self._running and not self._waiting

    def _handle(self, connection: Connection, request: Request) -> None:
        protocol = GENERATION.get(request.path)
        if protocol is not None and request.method == "POST":
            self._generate(connection, request, protocol)
            return
        try:
            self._side(connection, request)
        except Refused as refused:
            body = VOICES["openai-chat"].error(refused.status, refused.code, refused.message)
            connection.respond(refused.status, body, JSON)

    # -- generation -----------------------------------------------------------------------------------------------

    def _generate(self, connection: Connection, request: Request, protocol: str) -> None:
        request_id = request.headers.get("x-request-id", "")[:MAX_REQUEST_ID] or None
        record = self._truth.received(request.path, request_id, request.received_ns, request.body_bytes)
        error_draw, jitter = self._dice.roll()
        law = self._settings.law
        try:
            self._authorize(request)
            ask = self._ask(request, protocol)
            law = law.with_changes(ask.sim | _header_law(request))
            self._note(record, ask, law)
            if error_draw < law.error_rate:
                raise Refused(law.error_status, "injected by the simulator", _CODES.get(law.error_status, "injected"))
            self._check(ask, law)
            self._admit(Answer(connection, ask, law, record, self._truth), jitter)
        except ValueError as error:
            self._refuse(connection, record, protocol, law, Refused(400, str(error)))
        except Refused as refused:
            self._refuse(connection, record, protocol, law, refused)

    def _ask(self, request: Request, protocol: str) -> Ask:
        ask = read_ask(protocol, _body(request), self._settings.bytes_per_token)
        if ask.model is not None and ask.model != self._settings.model:
            raise Refused(404, f"The model `{ask.model[:80]}` does not exist.", "model_not_found")
        return ask

    def _note(self, record: Record, ask: Ask, law: Law) -> None:
        record.stream = ask.stream
        record.prompt_tokens = ask.prompt_tokens
        record.cached_tokens = min(law.cached_tokens, ask.prompt_tokens)
        self._truth.prefix(record, ask.head)

    def _check(self, ask: Ask, law: Law) -> None:
        limit = ask.max_tokens or law.output_tokens
        if law.window is not None and ask.prompt_tokens + limit > law.window:
            message = (
                f"This model's maximum context length is {law.window} tokens. However, you requested "
                f"{ask.prompt_tokens + limit} tokens ({ask.prompt_tokens} in the messages, {limit} in the completion). "
                "Please reduce the length of the messages or completion."
            )
            raise Refused(400, message, "context_length_exceeded")

    def _admit(self, answer: Answer, jitter: float) -> None:
        """A free slot, or a place in the queue, or Refused."""
        slots, queue = self._settings.slots, self._settings.queue
        begin = partial(self._begin, answer, jitter)
        if not slots or self._running < slots:
            answer.record.granted_ns = answer.record.received_ns
            begin()
        elif queue is None or len(self._waiting) < queue:
            self._waiting[answer] = begin
            answer.connection.on_lost = partial(self._left_queue, answer)
        else:
            raise Refused(429, "the queue of the simulator is full", "rate_limit_exceeded")
        self._peak("queued", len(self._waiting))
        self._peak("in_flight", self._running + len(self._waiting))

    def _begin(self, answer: Answer, jitter: float) -> None:
        self._running += 1
        self._peak("running", self._running)
        settings, ask = self._settings, answer.ask
        start = answer.record.granted_ns or answer.record.received_ns
        output = output_length(answer.law, ask.max_tokens, ask.ignore_eos, ask.min_tokens)
        plan = schedule(answer.law, ask.prompt_tokens, output, start, jitter, settings.time_scale)
        answer.connection.on_lost = answer.client_gone
        answer.start(plan, settings.model, _id_headers(answer.record), self._released)

    def _released(self) -> None:
        """A slot is free: the request that waited longest gets it, and its service starts now."""
        self._running -= 1
        if self._waiting:
            answer = next(iter(self._waiting))
            begin = self._waiting.pop(answer)
            answer.record.granted_ns = time.perf_counter_ns()
            begin()

    def _left_queue(self, answer: Answer) -> None:
        del self._waiting[answer]
        self._truth.finished(answer.record, None, "client_gone")

    def _refuse(self, connection: Connection, record: Record, protocol: str, law: Law, refused: Refused) -> None:
        headers = _id_headers(record)
        if refused.status in (429, 503) and law.retry_after:
            headers += f"Retry-After: {law.retry_after}\r\n"
        body = VOICES[protocol].error(refused.status, refused.code, refused.message)
        record.head_ns = time.perf_counter_ns()
        record.sent_bytes = connection.respond(refused.status, body, JSON, headers)
        self._truth.finished(record, refused.status, "error")

    def _peak(self, name: str, value: int) -> None:
        if value > self._peaks[name]:
            self._peaks[name] = value

    # -- everything else ------------------------------------------------------------------------------------------

    def _side(self, connection: Connection, request: Request) -> None:
        method, path = request.method, request.path
        routes: dict[str, tuple[str, Callable[[Connection, Request], None]]] = {
            "/health": ("GET", self._health),
            "/v1/models": ("GET", self._models),
            "/tokenize": ("POST", self._tokenize),
            "/sim/truth": ("GET", self._tell),
            "/sim/stats": ("GET", self._stats),
            "/sim/reset": ("POST", self._reset),
        }
        wanted, action = routes.get(path, ("POST" if path in GENERATION else "", None))
        if not wanted:
            raise Refused(404, "no such path", "not_found")
        if action is None or method != wanted:
            raise Refused(405, f"use {wanted} here", "method_not_allowed")
        action(connection, request)

    def _authorize(self, request: Request) -> None:
        key = self._settings.key
        if key is None:
            return
        headers = request.headers
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), key.encode()):
            raise Refused(401, "Incorrect API key provided.", "invalid_api_key")

    def _health(self, connection: Connection, request: Request) -> None:
        connection.respond(200, b'{"status":"ok"}', JSON)

    def _models(self, connection: Connection, request: Request) -> None:
        self._authorize(request)
        window = self._settings.law.window
        model = {"id": self._settings.model, "object": "model", "created": 0, "owned_by": "loadkit-sim"}
        connection.respond(200, dumps({"object": "list", "data": [model | {"max_model_len": window}]}), JSON)

    def _tokenize(self, connection: Connection, request: Request) -> None:
        self._authorize(request)
        try:
            answer = tokenize(_body(request), self._settings.bytes_per_token)
        except ValueError as error:
            raise Refused(400, str(error)) from None
        connection.respond(200, dumps(answer | {"max_model_len": self._settings.law.window}), JSON)

    def _tell(self, connection: Connection, request: Request) -> None:
        """Truth as one JSON object; `?id=` one request, `?since=` from a `done` number on, `?events=0` no times."""
        query, truth = request.query, self._truth
        since = query.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) < 19):
            raise Refused(400, "since must be a whole number")
        found = truth.find(query["id"]) if "id" in query else list(truth.since(int(since)))
        opening = {"clock": "monotonic_ns", "now_ns": time.perf_counter_ns(), "unix_ns": time.time_ns(),
                   "next": truth.next_done}  # fmt: skip
        events = query.get("events") != "0"
        pieces = [lambda: dumps(opening)[:-1] + b',"requests":[']
        pieces += [
            partial(_truth_piece, found[at : at + TRUTH_PIECE], events, at == 0)
            for at in range(0, len(found), TRUTH_PIECE)
        ]
        pieces.append(lambda: b"]}")
        task = asyncio.get_running_loop().create_task(connection.send_pieces(pieces, JSON))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stats(self, connection: Connection, request: Request) -> None:
        now = {"running": self._running, "queued": len(self._waiting), "in_flight": self._running + len(self._waiting)}
        peaks = {f"{name}_max": value for name, value in self._peaks.items()}
        connection.respond(200, dumps(self._truth.stats() | now | peaks), JSON)

    def _reset(self, connection: Connection, request: Request) -> None:
        self._truth.reset()
        self._dice.reset()
        queued = len(self._waiting)
        self._peaks = {"in_flight": self._running + queued, "running": self._running, "queued": queued}
        connection.respond(200, b"{}", JSON)


_CODES = {429: "rate_limit_exceeded", 503: "overloaded", 500: "internal_error", 401: "invalid_api_key"}


def _body(request: Request) -> Any:
    try:
        return request.scan.parse()
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {str(error)[:120]}") from None


def _header_law(request: Request) -> dict[str, Any]:
    text = request.headers.get("x-sim")
    if not text:
        return {}
    try:
        changes = json.loads(text)
    except (ValueError, RecursionError):
        changes = None
    if not isinstance(changes, dict):
        raise ValueError("X-Sim must be a JSON object")
    return changes


def _id_headers(record: Record) -> str:
    echo = f"X-Request-Id: {record.request_id}\r\n" if record.request_id is not None else ""
    return f"X-Sim-Id: {record.id}\r\n{echo}"


def _truth_piece(records: list[Record], events: bool, first: bool) -> bytes:
    return (b"" if first else b",") + b",".join(dumps(record.as_dict(events)) for record in records)

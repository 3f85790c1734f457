"""One answer on its schedule: from the slot that was granted to the last byte, or to the fault that was asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from loadkit.sim.ask import Ask
from loadkit.sim.http import Connection, response_head
from loadkit.sim.law import Law, Schedule
from loadkit.sim.truth import Record, Truth
from loadkit.sim.wire import LAST_CHUNK, VOICES, Facts, chunk

# Overdue writes that may leave as one, so that a fast law with a long answer makes no giant write.
MAX_TOGETHER = 4096
INBAND_MESSAGE = "the engine failed in the middle of this answer"


class Answer:
    """Writes the events of one request. `release` is called once, when the last byte is out or the client has gone."""

    def __init__(self, connection: Connection, ask: Ask, law: Law, record: Record, truth: Truth) -> None:
        self.connection = connection
        self.ask = ask
        self.law = law
        self.record = record
        self._truth = truth
        self._voice = VOICES[ask.protocol]
        self._timer: asyncio.TimerHandle | None = None
        self._write = 0

    def start(self, plan: Schedule, model: str, extra: str, release: Callable[[], None]) -> None:
        """Begin service: the head goes out now, everything else as `plan` says."""
        self._plan = plan
        self._extra = extra
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._facts = self._state(plan, model)
        self.record.first_due_ns = plan.first_ns
        if not self.ask.stream:
            self._at(plan.due(max(0, plan.writes - 1)), self._whole)
            return
        self._prepare()
        self._at(plan.due(0), self._tick)

    def _state(self, plan: Schedule, model: str) -> Facts:
        ask = self.ask
        started = self.record.granted_ns or plan.first_ns
        return Facts(self.record.id, self.law.response_model or model, ask.prompt_tokens, self.law.cached_tokens,
                     plan.tokens, plan.finish, ask.include_usage, plan.first_ns - started,
                     plan.due(plan.writes) - plan.first_ns)  # fmt: skip

    def _prepare(self) -> None:
        """Build every byte of the stream before the first one is due, and send what goes at once."""
        voice, facts, plan = self._voice, self._facts, self._plan
        size = min(plan.tokens, plan.tokens_per_event)
        last_size = plan.tokens - size * (-(-plan.tokens // size) - 1)
        self._event = chunk(voice.event(facts, size))
        self._last_event = self._event if last_size == size else chunk(voice.event(facts, last_size))
        self._closing = chunk(voice.closing(facts)) + LAST_CHUNK
        self._full = plan.tokens_of(plan.events) == plan.tokens
        opening = chunk(voice.opening(facts)) if self.law.role != "none" else b""
        head = response_head(200, voice.content_type, "Transfer-Encoding: chunked\r\n" + self._extra)
        self._first = opening if self.law.role == "with-first" else b""
        self.record.head_ns = time.perf_counter_ns()
        self._send(head + (opening if self.law.role == "at-once" else b""))

    def _at(self, due_ns: int, do: Callable[[], None]) -> None:
        self._timer = self._loop.call_at(due_ns / 1e9, do)

    def _send(self, data: bytes) -> None:
        self.record.sent_bytes += len(data)
        if not self.connection.write(data):
            self.record.blocked_writes += 1

    def _tick(self) -> None:
        plan, write = self._plan, self._write
        if write >= plan.writes:
            self._fault()
            return
        now = time.perf_counter_ns()
        due, after = plan.due(write), write + 1
        while after < plan.writes and plan.due(after) <= now and after - write < MAX_TOGETHER:
            after += 1
        self._write = after
        first_event, end_event = write * plan.per_write, min(after * plan.per_write, plan.events)
        overdue = end_event - min((write + 1) * plan.per_write, plan.events)
        data = self._bytes(end_event - first_event, end_event == plan.events)
        # The stamp is the last thing before the write, so that no client can be earlier than the truth.
        now = time.perf_counter_ns()
        self._send(data)
        self.record.wrote(now, due, end_event - first_event, overdue)
        self.record.output_tokens = plan.tokens_of(end_event)
        self._truth.late(now - due)
        if after < plan.writes or plan.ending not in ("complete", "stall"):
            self._at(plan.due(after), self._tick)
        elif plan.ending == "complete":
            self._end("complete")

    def _bytes(self, events: int, last: bool) -> bytes:
        if not last:
            data = self._event * events
        else:
            data = self._event * (events - 1) + (self._last_event if self._full else self._event)
            if self._plan.ending == "complete":
                data += self._closing
        if self._first:
            data, self._first = self._first + data, b""
        return data

    def _fault(self) -> None:
        """The moment at which the next event would have come and something else happens."""
        ending = self._plan.ending
        if ending == "stall":
            return
        if ending == "inband_error":
            self._send(chunk(self._voice.inband_error(INBAND_MESSAGE)) + LAST_CHUNK)
            self._end(ending)
        else:
            self._break()

    def _break(self) -> None:
        connection, ending = self.connection, self._plan.ending
        self._end(ending, more=False)
        if ending == "reset":
            connection.reset()
        else:
            connection.transport.close()

    def _whole(self) -> None:
        """The answer of a request that did not ask for a stream; faults show as half a body or none."""
        plan, voice = self._plan, self._voice
        if plan.ending == "stall":
            return
        body = voice.whole(self._facts)
        kind = "application/json"
        broken = plan.ending in ("cut", "reset")
        status = 500 if plan.ending == "inband_error" else 200
        if status == 500:
            body = voice.error(500, "internal_error", INBAND_MESSAGE)
        head = response_head(status, kind, f"Content-Length: {len(body)}\r\n{self._extra}")
        due, now = plan.due(max(0, plan.writes - 1)), time.perf_counter_ns()
        self.record.head_ns = now
        self._send(head + (body[: len(body) // 2] if broken else body))
        self.record.wrote(now, due, 0, 0)
        self._truth.late(now - due)
        if broken:
            self._break()
            return
        self.record.output_tokens = plan.tokens if status == 200 else 0
        self._end(plan.ending, status=status)

    def _end(self, ending: str, status: int = 200, more: bool = True) -> None:
        self._truth.finished(self.record, status, ending)
        self._release()
        if more:
            self.connection.ended()
        else:
            self.connection.on_lost = None

    def client_gone(self) -> None:
        """The connection is lost in mid-answer. A stall that was asked for ends here by design."""
        if self._timer is not None:
            self._timer.cancel()
        status = 200 if self.record.head_ns is not None else None
        stalled = self._plan.ending == "stall" and self._write >= self._plan.writes
        self._truth.finished(self.record, status, "stall" if stalled else "client_gone")
        self._release()

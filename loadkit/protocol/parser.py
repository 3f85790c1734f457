"""Bytes of one answer to marks. Sans-IO: the caller feeds reads with their times; nothing here raises on any bytes."""

import json
from dataclasses import replace
from typing import Any

from loadkit.protocol import errors
from loadkit.protocol.answer import Answer, Chunk, Usage
from loadkit.protocol.ndjson import NdjsonDecoder
from loadkit.protocol.sse import SseDecoder
from loadkit.protocol.template import Reader, Template, framed, learn
from loadkit.record.names import Outcome

MAX_BODY_BYTES = 16 * 1024 * 1024  # of an answer that is one JSON document
MAX_ERROR_BYTES = 64 * 1024  # of an error body
RAW_HEAD_BYTES = 2048
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"
_DOCUMENT_STARTS = b'{[<"'
_NORMAL_FINISH = frozenset({"stop", "length", "tool_calls", "function_call", "content_filter", "eos_token"})
_BROKEN_FINISH = frozenset({"abort", "error"})

_MAX_LESSONS = 4  # templates looked for in one answer: a server whose chunks all differ must not pay for it
_STREAM_TYPES = ("text/event-stream", "application/x-ndjson")

_NOTHING = Usage()


class Parser:
    """One answer. `done` = a terminal marker or an error was seen and the caller may stop reading.

    Chunks that differ from an earlier one in their text only are counted without the JSON parser (`template`).
    """

    def __init__(self, read: Reader, *, framing: str, content_type: str | None, status: int | None) -> None:
        self.answer = Answer()
        self.done = False
        self._read = read
        self._status = status
        self._type = (content_type or "").partition(";")[0].strip().lower()
        self._framing = framing
        self._decoder: SseDecoder | NdjsonDecoder | None = None
        self._raw: list[bytes] = []
        self._raw_size = 0
        self._raw_limit = MAX_BODY_BYTES if status == 200 else MAX_ERROR_BYTES
        self._sniffed = False
        self._template: Template | None = None
        self._frame: Template | None = None  # of whole reads
        self._idle = False  # the next read may be looked at as a whole
        self._lessons = 0
        self._ended = False

    @property
    def first_token_at(self) -> int | None:
        """Time of the first token event of any channel; None before it and for an answer that was not streamed."""
        times = self.answer.event_times
        return times[0] if times and not self.answer.not_streamed else None

    @property
    def alike(self) -> tuple[bytes, bytes]:
        """How the next read begins and ends if it is one more token event like those before; empty while not known."""
        return (self._frame.prefix, self._frame.suffix) if self._idle and self._frame is not None else (b"", b"")

    @property
    def raw(self) -> bytes:
        """The body, as far as it was kept: error bodies, whole documents, and streams without any event."""
        return b"".join(self._raw)

    def feed(self, at_ns: int, data: bytes) -> bool:
        """One read of the body that returned at `at_ns`. What comes after `done` is counted and not looked at.

        Returns True when the read was one more token event like those before and nothing else.
        """
        if self._idle and self._frame is not None:
            chars = self._frame.chars(None, data)
            if chars is not None:
                answer = self.answer
                answer.reads += 1
                answer.bytes_received += len(data)
                answer.last_read_at = at_ns
                if len(answer.raw_head) < RAW_HEAD_BYTES:
                    self._keep_head(data)
                self._plain_token(at_ns, self._frame.channel, chars)
                return True
        if data and not self._ended:
            self._feed(at_ns, data)
        return False

    def _feed(self, at_ns: int, data: bytes) -> None:
        answer = self.answer
        if answer.reads == 0:
            answer.first_byte_at = at_ns
        answer.reads += 1
        answer.bytes_received += len(data)
        answer.last_read_at = at_ns
        if len(answer.raw_head) < RAW_HEAD_BYTES:
            self._keep_head(data)
        if self.done:
            return
        if answer.known_events == 0:
            self._keep(data)
        if not self._sniffed:
            data = self._sniff(data)
        if self._decoder is not None and data:
            self._decode(at_ns, self._decoder, data)

    def end(self, at_ns: int, how: str) -> None:
        """The stream is over, as `how` says. Later calls do nothing."""
        if self._ended:
            return
        self._ended, self._idle = True, False
        answer = self.answer
        last = answer.last_read_at if answer.last_read_at is not None else at_ns
        if self._decoder is not None and not self.done:
            for name, payload in self._decoder.flush():
                self._event(last, name, payload, cut=True)
            if self._decoder.done and not self.done:
                self._finish(last)
        if answer.known_events == 0 and answer.failure is None and self._status == 200:
            if isinstance(self._decoder, SseDecoder):
                answer.stray = answer.stray or self._decoder.stray
            elif self._decoder is None:
                answer.stray = bool(self.raw.strip())
            if not self.done:
                self._whole_document(last)
        if answer.done_at is None:
            answer.done_at = at_ns

    def _keep_head(self, data: bytes) -> None:
        answer = self.answer
        answer.raw_head += data[: RAW_HEAD_BYTES - len(answer.raw_head)]

    def _keep(self, data: bytes) -> None:
        room = self._raw_limit - self._raw_size
        if room > 0:
            self._raw.append(data[:room])
            self._raw_size += min(room, len(data))

    def _sniff(self, data: bytes) -> bytes:
        """Choose the framing by status and content type, else by the first byte that is no blank."""
        if self._status != 200:
            self._sniffed = True
            return b""
        if self._type == "text/event-stream":
            self._decoder = SseDecoder()
        elif self._framing == "ndjson" or "ndjson" in self._type or "jsonl" in self._type:
            self._decoder = NdjsonDecoder()
        else:
            if not data.strip(_SPACE):
                return b""
            data = self.raw
            start = data.removeprefix(_BOM).lstrip(_SPACE)
            if not start or _BOM.startswith(start):
                return b""
            if start[0] not in _DOCUMENT_STARTS:
                self._decoder = SseDecoder()
        self._sniffed = True
        return data

    def _decode(self, at_ns: int, decoder: SseDecoder | NdjsonDecoder, data: bytes) -> None:
        was_idle = self._idle
        events = decoder.feed(data)
        self._events(at_ns, decoder, events)
        self._idle = not self.done and decoder.idle
        if was_idle and self._idle and len(events) == 1 and self._template is not None:
            name, payload = events[0]
            if self._template.chars(name, payload) is not None:
                self._frame = framed(self._template, data, payload)

    def _events(
        self, at_ns: int, decoder: SseDecoder | NdjsonDecoder, events: list[tuple[bytes | None, bytes]]
    ) -> None:
        for name, payload in events:
            self._event(at_ns, name, payload)
            if self.done:
                return
        if decoder.done:
            self._finish(at_ns)
        elif decoder.overflow:
            self.answer.overflow = True
            self._stop(at_ns)

    def _event(self, at_ns: int, name: bytes | None, payload: bytes, cut: bool = False) -> None:
        template = self._template
        if template is not None:
            chars = template.chars(name, payload)
            if chars is not None:
                self._plain_token(at_ns, template.channel, chars)
                return
        if name == b"ping" or not payload.strip():
            return
        try:
            doc = json.loads(payload)
        except (ValueError, RecursionError):
            if name == b"error":
                self._fail(at_ns, payload[:MAX_ERROR_BYTES].decode("utf-8", "replace"))
            elif not cut:
                self.answer.data_events += 1
                self.answer.malformed += 1
            elif payload.lstrip().startswith(b"{"):
                self.answer.cut = True
            else:
                self.answer.stray = True
            return
        self.answer.data_events += 1
        if errors.in_band_error(name, doc):
            self._fail(at_ns, doc)
            return
        chunk = self._read(name, doc)
        self._apply(at_ns, chunk)
        if self._lessons < _MAX_LESSONS and (chunk.content or chunk.reasoning):
            self._lessons += 1
            self._template = learn(self._read, name, payload, chunk) or template

    def _plain_token(self, at_ns: int, channel: str, chars: int) -> None:
        """What `_apply` does for a chunk that only adds text to one channel."""
        answer = self.answer
        answer.data_events += 1
        answer.known_events += 1
        answer.event_times.append(at_ns)
        answer.event_read.append(answer.reads - 1)
        if channel == "reasoning":
            answer.reasoning_chars += chars
            return
        answer.content_chars += chars
        if answer.first_content_at is None:
            answer.first_content_at = at_ns

    def _apply(self, at_ns: int, chunk: Chunk) -> None:
        answer = self.answer
        answer.known_events += chunk.known
        answer.response_id = answer.response_id or _name(chunk.response_id)
        answer.model = answer.model or _name(chunk.model)
        answer.fingerprint = answer.fingerprint or _name(chunk.fingerprint)
        if chunk.content or chunk.reasoning or chunk.tool:
            self._token(at_ns, chunk)
        self._numbers(at_ns, chunk)
        if chunk.finish_reason is not None:
            if answer.finish_reason is None:
                answer.finish_at = at_ns
            answer.finish_reason = _name(chunk.finish_reason)
            if chunk.finish_reason in _BROKEN_FINISH or (
                chunk.finish_detail is not None and chunk.finish_reason not in _NORMAL_FINISH
            ):
                self._broken(at_ns, chunk)
        if chunk.done:
            self._finish(at_ns)

    def _token(self, at_ns: int, chunk: Chunk) -> None:
        answer = self.answer
        if chunk.whole and not answer.event_times and self._type not in _STREAM_TYPES:
            answer.not_streamed = True
        answer.event_times.append(at_ns)
        answer.event_read.append(answer.reads - 1)
        answer.content_chars += len(chunk.content)
        answer.reasoning_chars += len(chunk.reasoning)
        answer.tool_chars += len(chunk.tool)
        if chunk.content and answer.first_content_at is None:
            answer.first_content_at = at_ns
        if chunk.usage is not None and chunk.usage.completion is not None:
            answer.event_usage.append(chunk.usage.completion)

    def _numbers(self, at_ns: int, chunk: Chunk) -> None:
        """The last stated value of each number counts; nothing is added up."""
        answer, usage, times = self.answer, chunk.usage, chunk.times
        if usage is not None and usage != _NOTHING:
            answer.usage_at = at_ns
            answer.prompt_tokens = usage.prompt if usage.prompt is not None else answer.prompt_tokens
            answer.completion_tokens = usage.completion if usage.completion is not None else answer.completion_tokens
            answer.cached_tokens = usage.cached if usage.cached is not None else answer.cached_tokens
            answer.reasoning_tokens = usage.reasoning if usage.reasoning is not None else answer.reasoning_tokens
        if times is not None:
            answer.server_queue_ms = times.queue if times.queue is not None else answer.server_queue_ms
            answer.server_prefill_ms = times.prefill if times.prefill is not None else answer.server_prefill_ms
            answer.server_decode_ms = times.decode if times.decode is not None else answer.server_decode_ms
            answer.server_tokenize_ms = times.tokenize if times.tokenize is not None else answer.server_tokenize_ms

    def _whole_document(self, at_ns: int) -> None:
        """A body without events: one JSON document, an error or an answer that was not streamed, or no answer."""
        doc = errors.document(self.raw)
        if errors.in_band_error(None, doc):
            self._fail(at_ns, doc)
        elif isinstance(doc, dict):
            chunk = self._read(None, doc)
            if chunk.known:
                self.answer.not_streamed = True
                self.answer.data_events = self.answer.malformed = 0
                self._apply(at_ns, replace(chunk, whole=True))

    def _fail(self, at_ns: int, doc: Any) -> None:
        failure = errors.classify_document(200, None, doc, in_band=True)
        if self.answer.event_times:
            failure = replace(failure, outcome=Outcome.STREAM_ERROR, retryable=False)
        self._failed(at_ns, failure)

    def _broken(self, at_ns: int, chunk: Chunk) -> None:
        """A finish reason that says the generation was aborted."""
        said = errors.classify_document(
            200, None, chunk.finish_detail or f"finish_reason {chunk.finish_reason}", in_band=True
        )
        self._failed(at_ns, replace(said, outcome=Outcome.STREAM_ERROR, retryable=False))

    def _failed(self, at_ns: int, failure: errors.Failure) -> None:
        self.answer.failure = failure
        self._stop(at_ns)

    def _finish(self, at_ns: int) -> None:
        self.answer.saw_done = True
        self._stop(at_ns)

    def _stop(self, at_ns: int) -> None:
        self.done = True
        if self.answer.done_at is None:
            self.answer.done_at = at_ns


def _name(value: str | None) -> str | None:
    return errors.clip(value, 200) if value else None

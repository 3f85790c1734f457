"""Bytes of answers: OpenAI chat and completions, Anthropic messages, Ollama NDJSON. No clock, no socket.

A `Voice` speaks one protocol: it gives the bytes before the first token, of one event, after the last token, of a
whole answer that is not streamed, and of an error. Every output token is the four characters of `TOKEN`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

TOKEN = "tok "
_ISO = "1970-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Facts:
    """What an answer says about itself. `ttft_ns`, `decode_ns` are the planned durations (Ollama states them)."""

    id: str
    model: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish: str
    include_usage: bool
    ttft_ns: int
    decode_ns: int


class Voice(Protocol):
    @property
    def content_type(self) -> str: ...
    def opening(self, facts: Facts) -> bytes: ...
    def event(self, facts: Facts, tokens: int) -> bytes: ...
    def closing(self, facts: Facts) -> bytes: ...
    def inband_error(self, message: str) -> bytes: ...
    def whole(self, facts: Facts) -> bytes: ...
    def error(self, status: int, code: str, message: str) -> bytes: ...


def chunk(data: bytes) -> bytes:
    """`data` as one chunk of a chunked HTTP body; empty data gives nothing (an empty chunk would end the body)."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"


def dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _sse(value: Any, event: str = "") -> bytes:
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + dumps(value) + b"\n\n"


def _openai_usage(facts: Facts) -> dict[str, Any]:
    return {
        "prompt_tokens": facts.prompt_tokens,
        "completion_tokens": facts.output_tokens,
        "total_tokens": facts.prompt_tokens + facts.output_tokens,
        "prompt_tokens_details": {"cached_tokens": min(facts.cached_tokens, facts.prompt_tokens)},
    }


@dataclass(frozen=True, slots=True)
class _OpenAI:
    """Chat and completions: the same envelope around differently shaped choices."""

    piece_name: str
    whole_name: str
    piece: Callable[[str | None, str | None], dict[str, Any]]
    answer: Callable[[str, str], dict[str, Any]]
    has_role: bool
    content_type: str = "text/event-stream; charset=utf-8"

    def _piece(self, facts: Facts, text: str | None, finish: str | None) -> bytes:
        return _sse(_openai(facts, self.piece_name, [self.piece(text, finish)]))

    def opening(self, facts: Facts) -> bytes:
        if not self.has_role:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return _sse(_openai(facts, self.piece_name, [choice]))

    def event(self, facts: Facts, tokens: int) -> bytes:
        return self._piece(facts, TOKEN * tokens, None)

    def closing(self, facts: Facts) -> bytes:
        usage = _sse(_openai(facts, self.piece_name, []) | {"usage": _openai_usage(facts)})
        return self._piece(facts, None, facts.finish) + (usage if facts.include_usage else b"") + b"data: [DONE]\n\n"

    def inband_error(self, message: str) -> bytes:
        return b"data: " + self.error(500, "internal_error", message) + b"\n\ndata: [DONE]\n\n"

    def whole(self, facts: Facts) -> bytes:
        choice = self.answer(TOKEN * facts.output_tokens, facts.finish)
        return dumps(_openai(facts, self.whole_name, [choice]) | {"usage": _openai_usage(facts)})

    def error(self, status: int, code: str, message: str) -> bytes:
        kinds = {401: "authentication_error", 404: "NotFoundError", 429: "rate_limit_error"}
        kind = kinds.get(status, "server_error" if status >= 500 else "invalid_request_error")
        return dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})


def _openai(facts: Facts, name: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": facts.id, "object": name, "created": 0, "model": facts.model, "choices": choices}


def _chat_piece(text: str | None, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": {} if text is None else {"content": text}, "finish_reason": finish}


def _chat_answer(text: str, finish: str) -> dict[str, Any]:
    return {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}


def _text_piece(text: str | None, finish: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text or "", "logprobs": None, "finish_reason": finish}


class _Anthropic:
    content_type = "text/event-stream; charset=utf-8"
    _stops: ClassVar = {"length": "max_tokens", "stop": "end_turn"}

    def _message(self, facts: Facts, output_tokens: int) -> dict[str, Any]:
        usage = {
            # Anthropic counts cached tokens apart from input_tokens.
            "input_tokens": max(0, facts.prompt_tokens - facts.cached_tokens),
            "cache_read_input_tokens": min(facts.cached_tokens, facts.prompt_tokens),
            "output_tokens": output_tokens,
        }
        return {"id": facts.id, "type": "message", "role": "assistant", "model": facts.model, "content": [],
                "stop_reason": None, "stop_sequence": None, "usage": usage}  # fmt: skip

    def opening(self, facts: Facts) -> bytes:
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        start = {"type": "message_start", "message": self._message(facts, 0)}
        return _sse(start, "message_start") + _sse(block, "content_block_start") + _sse({"type": "ping"}, "ping")

    def event(self, facts: Facts, tokens: int) -> bytes:
        delta = {"type": "text_delta", "text": TOKEN * tokens}
        return _sse({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")

    def closing(self, facts: Facts) -> bytes:
        delta = {"stop_reason": self._stops[facts.finish], "stop_sequence": None}
        end = {"type": "message_delta", "delta": delta, "usage": {"output_tokens": facts.output_tokens}}
        stop = _sse({"type": "content_block_stop", "index": 0}, "content_block_stop")
        return stop + _sse(end, "message_delta") + _sse({"type": "message_stop"}, "message_stop")

    def inband_error(self, message: str) -> bytes:
        return _sse(json.loads(self.error(529, "", message)), "error")

    def whole(self, facts: Facts) -> bytes:
        content = [{"type": "text", "text": TOKEN * facts.output_tokens}]
        message = self._message(facts, facts.output_tokens)
        return dumps(message | {"content": content, "stop_reason": self._stops[facts.finish]})

    def error(self, status: int, code: str, message: str) -> bytes:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error",
                 503: "overloaded_error", 529: "overloaded_error"}  # fmt: skip
        kind = kinds.get(status, "api_error" if status >= 500 else "invalid_request_error")
        return dumps({"type": "error", "error": {"type": kind, "message": message}})


class _Ollama:
    content_type = "application/x-ndjson"

    def _line(self, facts: Facts, text: str, done: bool) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        return {"model": facts.model, "created_at": _ISO, "message": message, "done": done}

    def _end(self, facts: Facts, text: str) -> bytes:
        counts = {
            "done_reason": facts.finish,
            "total_duration": facts.ttft_ns + facts.decode_ns,
            "load_duration": 0,
            "prompt_eval_count": facts.prompt_tokens,
            "prompt_eval_duration": facts.ttft_ns,
            "eval_count": facts.output_tokens,
            "eval_duration": facts.decode_ns,
        }
        return dumps(self._line(facts, text, True) | counts)

    def opening(self, facts: Facts) -> bytes:
        return b""

    def event(self, facts: Facts, tokens: int) -> bytes:
        return dumps(self._line(facts, TOKEN * tokens, False)) + b"\n"

    def closing(self, facts: Facts) -> bytes:
        return self._end(facts, "") + b"\n"

    def inband_error(self, message: str) -> bytes:
        return self.error(500, "", message) + b"\n"

    def whole(self, facts: Facts) -> bytes:
        return self._end(facts, TOKEN * facts.output_tokens)

    def error(self, status: int, code: str, message: str) -> bytes:
        return dumps({"error": message})


VOICES: dict[str, Voice] = {
    "openai-chat": _OpenAI("chat.completion.chunk", "chat.completion", _chat_piece, _chat_answer, has_role=True),
    "openai-completions": _OpenAI("text_completion", "text_completion", _text_piece, _text_piece, has_role=False),
    "anthropic": _Anthropic(),
    "ollama": _Ollama(),
}

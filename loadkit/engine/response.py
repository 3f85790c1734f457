"""Response bodies in OpenAI's shapes, for one answer: whole, or as the chunks of a stream."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from loadkit.engine.generation import Generation

DONE = b"data: [DONE]\n\n"


class Responses:
    """Bodies that share one id, creation time and model name."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._chat = chat
        self._id = ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex[:24]
        self._model = model
        self._created = int(time.time())

    def whole(self, text: str, reason: str, generation: Generation) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        answer = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        kind = "chat.completion" if self._chat else "text_completion"
        choice = {"index": 0, **answer, "logprobs": None, "finish_reason": reason}
        body = self._body(kind, [choice])
        return body | {"usage": usage(generation), "timings": generation.timings()}

    def role(self) -> bytes:
        """The first chunk of a chat stream: who speaks, and no text."""
        return event(self._chunk({"delta": {"role": "assistant", "content": ""}}, None))

    def text(self, text: str) -> bytes:
        """A chunk with text."""
        return event(self._chunk({"delta": {"content": text}} if self._chat else {"text": text}, None))

    def end(self, reason: str, generation: Generation, *, include_usage: bool) -> bytes:
        """The finish chunk and, if asked for, the usage chunk; `timings` are in the last one."""
        finish = self._chunk({"delta": {}} if self._chat else {"text": ""}, reason)
        timings = {"timings": generation.timings()}
        if not include_usage:
            return event(finish | timings)
        last = self._body(self._chunk_kind, []) | {"usage": usage(generation)} | timings
        return event(finish) + event(last)

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self._chat else "text_completion"

    def _chunk(self, part: dict[str, Any], reason: str | None) -> dict[str, Any]:
        return self._body(self._chunk_kind, [{"index": 0, **part, "logprobs": None, "finish_reason": reason}])

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model, "choices": choices}


def usage(generation: Generation) -> dict[str, Any]:
    """Token counts; `cached_tokens` came from the prefix cache. A stop token is not counted."""
    prompt, completion = len(generation.prompt), generation.output_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": generation.cached_tokens},
    }


def event(body: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + dump(body) + b"\n\n"


def dump(body: dict[str, Any]) -> bytes:
    """JSON in UTF-8; a lone surrogate that came in with a request goes out as a question mark."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

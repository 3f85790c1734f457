"""Ollama: newline-delimited JSON of /api/chat; answers of /api/generate are read too. Durations are in nanoseconds."""

from typing import Any

from loadkit.protocol.answer import Chunk, ServerTimes, Usage, count, mapping, milliseconds, text
from loadkit.protocol.contract import PROMPT, Ask, Protocol

_MS_PER_NS = 1e-6
# rkllama writes this into an answer of HTTP 200 when its worker hangs, and no durations.
_ABORTED = "Aborted inference by Timeout"
_MADE_UP = 0.1  # of the total: what rkllama states as prompt time when it has none
_ROUNDED_NS = 1000.0  # it subtracts seconds since 1970


def fields(ask: Ask) -> dict[str, Any]:
    """The body of /api/chat with one user message. The API has no way to ignore the end token: that is not sent."""
    options: dict[str, Any] = {"num_predict": ask.max_tokens}
    if ask.temperature is not None:
        options["temperature"] = ask.temperature
    messages = [{"role": "user", "content": PROMPT}]
    return {"model": ask.model, "stream": ask.stream, "options": options, "messages": messages}


def read(name: bytes | None, doc: Any) -> Chunk:
    """One line. The last has done:true, the reason, counts and durations, and no text unless nothing was streamed."""
    doc = mapping(doc)
    message = mapping(doc.get("message"))
    content = text(message.get("content")) + text(doc.get("response"))
    done = doc.get("done") is True
    if content.startswith(_ABORTED) or (done and doc.get("eval_duration", 0) is None):
        said = content or "the server ended the answer without a duration: its worker stopped"
        return Chunk(finish_reason="abort", finish_detail={"message": said}, done=done)
    return Chunk(
        content=content,
        reasoning=text(message.get("thinking")) or text(doc.get("thinking")),
        tool=_tools(message.get("tool_calls")),
        finish_reason=text(doc.get("done_reason")) or None,
        usage=_usage(doc),
        times=_times(doc),
        model=text(doc.get("model")) or None,
        known=any(key in doc for key in ("message", "response", "done")),
        whole=done,
        done=done,
    )


def _tools(calls: Any) -> str:
    """Names of the functions called; their arguments come as an object, so only that they exist is counted."""
    calls = calls if isinstance(calls, list) else []
    return "".join(text(mapping(mapping(call).get("function")).get("name")) for call in calls)


def _usage(doc: dict[str, Any]) -> Usage | None:
    prompt, completion = count(doc.get("prompt_eval_count")), count(doc.get("eval_count"))
    return None if prompt is None and completion is None else Usage(prompt=prompt, completion=completion)


def _times(doc: dict[str, Any]) -> ServerTimes | None:
    if _made_up(doc):
        return None
    prefill = milliseconds(doc.get("prompt_eval_duration"), _MS_PER_NS)
    decode = milliseconds(doc.get("eval_duration"), _MS_PER_NS)
    return None if prefill is None and decode is None else ServerTimes(prefill=prefill, decode=decode)


def _made_up(doc: dict[str, Any]) -> bool:
    """Durations that are a fixed split of the total and no clock's."""
    total, prefill = (milliseconds(doc.get(key)) for key in ("total_duration", "prompt_eval_duration"))
    return bool(total) and prefill is not None and abs(prefill - _MADE_UP * (total or 0)) <= _ROUNDED_NS


CHAT = Protocol(name="ollama", path="/api/chat", auth="bearer", framing="ndjson", fields=fields, read=read)

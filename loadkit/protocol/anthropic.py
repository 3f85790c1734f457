"""Anthropic messages: typed events; usage is stated in two of them, and the prompt in three parts."""

from typing import Any

from loadkit.protocol.answer import Chunk, Usage, count, mapping, text
from loadkit.protocol.contract import PROMPT, Ask, Protocol

_EVENTS = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
    }
)


def fields(ask: Ask) -> dict[str, Any]:
    """The body of /messages with one user message. The API has no way to ignore the end token: that is not sent."""
    body: dict[str, Any] = {"model": ask.model, "max_tokens": ask.max_tokens}
    if ask.temperature is not None:
        body["temperature"] = ask.temperature
    return body | {"stream": ask.stream, "messages": [{"role": "user", "content": PROMPT}]}


def read(name: bytes | None, doc: Any) -> Chunk:
    """One event, or a whole message of an answer that was not streamed."""
    doc = mapping(doc)
    kind = doc.get("type")
    if kind == "message":
        return _message(doc, whole=True)
    if kind == "message_start":
        return _message(mapping(doc.get("message")), whole=False)
    if kind in ("content_block_start", "content_block_delta"):
        block = mapping(doc.get("content_block" if kind == "content_block_start" else "delta"))
        content, reasoning, tool = _channels(block)
        return Chunk(content=content, reasoning=reasoning, tool=tool)
    if kind == "message_delta":
        reason = text(mapping(doc.get("delta")).get("stop_reason")) or None
        return Chunk(finish_reason=reason, usage=_usage(doc.get("usage")))
    return Chunk(known=isinstance(kind, str) and kind in _EVENTS, done=kind == "message_stop")


def _message(message: dict[str, Any], *, whole: bool) -> Chunk:
    blocks = message.get("content")
    channels = [_channels(mapping(block)) for block in blocks] if isinstance(blocks, list) else []
    return Chunk(
        content="".join(content for content, _, _ in channels),
        reasoning="".join(reasoning for _, reasoning, _ in channels),
        tool="".join(tool for _, _, tool in channels),
        finish_reason=text(message.get("stop_reason")) or None,
        usage=_usage(message.get("usage")),
        response_id=text(message.get("id")) or None,
        model=text(message.get("model")) or None,
        whole=whole,
    )


def _channels(block: dict[str, Any]) -> tuple[str, str, str]:
    """Content, reasoning and tool text of a block or delta; a tool block's name is generated too."""
    return (
        text(block.get("text")),
        text(block.get("thinking")),
        text(block.get("name")) + text(block.get("partial_json")),
    )


def _usage(stated: Any) -> Usage | None:
    """`input_tokens` leaves out what was read from or written to the cache; the prompt is all three."""
    if not isinstance(stated, dict):
        return None
    fresh = count(stated.get("input_tokens"))
    read_back = count(stated.get("cache_read_input_tokens"))
    written = count(stated.get("cache_creation_input_tokens"))
    return Usage(
        prompt=None if fresh is None else fresh + (read_back or 0) + (written or 0),
        completion=count(stated.get("output_tokens")),
        cached=read_back,
    )


MESSAGES = Protocol(name="anthropic", path="/v1/messages", auth="x-api-key", fields=fields, read=read)

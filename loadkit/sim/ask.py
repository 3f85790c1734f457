"""What a generation request asks for, read from its parsed body: one small reader per protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadkit.sim.count import BOS_TOKENS, HEAD_BYTES, TEMPLATE_TOKENS, Text, text_of, tokens_for

MAX_OUTPUT = 1_000_000


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for tokens. `head` is the first bytes of the prompt text (its first block)."""

    protocol: str
    model: str | None
    stream: bool
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    include_usage: bool
    prompt_tokens: int
    head: bytes
    sim: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Options:
    stream: bool
    max_tokens: int | None
    include_usage: bool = False


def read_ask(protocol: str, body: Any, bytes_per_token: int) -> Ask:
    """The request in `body` (from BodyScan.parse); ValueError, one line, for anything a server would refuse."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    options = _READERS[protocol](body)
    tokens, head = count_prompt(protocol, body, bytes_per_token)
    return Ask(
        protocol=protocol,
        model=_text(body, "model"),
        stream=options.stream,
        max_tokens=options.max_tokens,
        min_tokens=_count(body, "min_tokens", 0) or 0,
        ignore_eos=_flag(body, "ignore_eos", False),
        include_usage=options.include_usage,
        prompt_tokens=tokens,
        head=head,
        sim=_object(body, "sim"),
    )


def count_prompt(protocol: str, body: dict[str, Any], bytes_per_token: int) -> tuple[int, bytes]:
    """(prompt tokens, first bytes of the prompt). Messages cost the template overhead once; a plain prompt costs the
    BOS; a list of token ids costs exactly its length."""
    if protocol == "openai-completions":
        return _count_plain(body.get("prompt"), bytes_per_token)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    texts = _texts(body.get("system"), "system") if protocol == "anthropic" else []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ValueError("each message must be an object with a role")
        texts += _texts(message.get("content"), "content")
    return TEMPLATE_TOKENS + tokens_for(sum(text.size for text in texts), bytes_per_token), _head(texts)


def tokenize(body: Any, bytes_per_token: int) -> dict[str, Any]:
    """The answer to /tokenize: `count`, and `tokens` for a text that is short enough to be at hand. BOS is counted for
    `prompt` unless add_special_tokens is false, for `content` only if add_special; `messages` count the template."""
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    if "messages" in body:
        tokens, _ = count_prompt("openai-chat", body, bytes_per_token)
        return {"count": tokens}
    name, special = ("prompt", "add_special_tokens") if "prompt" in body else ("content", "add_special")
    tokens, _ = count_prompt("openai-completions", {"prompt": body.get(name)}, bytes_per_token)
    bos = BOS_TOKENS if body.get(special, name == "prompt") else 0
    answer: dict[str, Any] = {"count": tokens - BOS_TOKENS + bos}
    text = body[name]
    if isinstance(text, str):
        data = text.encode("utf-8", "replace")
        step = bytes_per_token
        # Ids are the bytes themselves, plus one; 0 is the BOS.
        pieces = [data[at : at + step] for at in range(0, tokens_for(len(data), step) * step, step)]
        answer["tokens"] = [0] * bos + [int.from_bytes(piece, "big") + 1 for piece in pieces]
    return answer


def _count_plain(prompt: Any, bytes_per_token: int) -> tuple[int, bytes]:
    if isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt):
        return len(prompt), " ".join(map(str, prompt[:16])).encode()[:HEAD_BYTES]
    if not isinstance(prompt, (str, Text)):
        raise ValueError("prompt must be a string or a list of token ids")
    text = _as_text(prompt)
    return BOS_TOKENS + tokens_for(text.size, bytes_per_token), text.head


def _texts(content: Any, name: str) -> list[Text]:
    if content is None:
        return []
    if isinstance(content, (str, Text)):
        return [_as_text(content)]
    if not isinstance(content, list):
        raise ValueError(f"{name} must be a string or a list of parts")
    parts = [part.get("text") if isinstance(part, dict) else None for part in content]
    if not all(isinstance(part, (str, Text)) for part in parts):
        raise ValueError(f"each part of {name} must be an object with a text")
    return [_as_text(part) for part in parts]


def _as_text(value: Any) -> Text:
    return value if isinstance(value, Text) else text_of(value)


def _head(texts: list[Text]) -> bytes:
    head = b""
    for text in texts:
        head += text.head
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]


def _read_chat(body: dict[str, Any]) -> _Options:
    limit = _count(body, "max_completion_tokens", 1)
    return _Options(_flag(body, "stream", False), limit or _count(body, "max_tokens", 1), _wants_usage(body))


def _read_completions(body: dict[str, Any]) -> _Options:
    return _Options(_flag(body, "stream", False), _count(body, "max_tokens", 1), _wants_usage(body))


def _read_anthropic(body: dict[str, Any]) -> _Options:
    limit = _count(body, "max_tokens", 1)
    if limit is None:
        raise ValueError("max_tokens: Field required")
    return _Options(_flag(body, "stream", False), limit)


def _read_ollama(body: dict[str, Any]) -> _Options:
    return _Options(_flag(body, "stream", True), _count(_object(body, "options"), "num_predict", 1))


_READERS: dict[str, Callable[[dict[str, Any]], _Options]] = {
    "openai-chat": _read_chat,
    "openai-completions": _read_completions,
    "anthropic": _read_anthropic,
    "ollama": _read_ollama,
}


def _wants_usage(body: dict[str, Any]) -> bool:
    return _flag(_object(body, "stream_options"), "include_usage", False)


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} must be an object")
    return value or {}


def _flag(body: dict[str, Any], name: str, default: bool) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return default if value is None else value


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be a string of reasonable length")
    return value


def _count(body: dict[str, Any], name: str, low: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or not low <= value <= MAX_OUTPUT:
        raise ValueError(f"{name} must be a whole number from {low} to {MAX_OUTPUT}")
    return value

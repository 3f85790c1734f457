"""Request bodies: from untrusted JSON to checked values. Everything wrong is an ApiError 400 that names the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.engine.errors import ApiError

# Fields that would change the answer; this engine lacks them, so a value other than the neutral one is refused.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "echo": (None, False),
    "logprobs": (None, False, 0),
    "top_logprobs": (None, 0),
    "top_p": (None, 1),
    "stop": (None, [], ""),
    "suffix": (None, ""),
    "tools": (None, []),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A checked request. Exactly one of `messages` and `prompt` is set."""

    messages: list[dict[str, str]] | None
    prompt: str | list[int] | None
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    temperature: float
    seed: int
    stream: bool
    include_usage: bool
    cache_prompt: bool

    @property
    def chat(self) -> bool:
        return self.messages is not None


def parse_json(body: bytes) -> dict[str, Any]:
    """A JSON object from a request body."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_json", "the body is not valid JSON") from None
    if not isinstance(value, dict):
        raise ApiError(400, "invalid_json", "the body must be a JSON object")
    return value


def parse(raw: Mapping[str, Any], *, chat: bool, model: str, vocab: int) -> Asked:
    """The checked request; `model` is the only name served, `vocab` bounds token ids."""
    name = raw.get("model")
    if name is not None and name != model:
        if not isinstance(name, str):
            raise _wrong("model", "must be a string")
        text = f"the model {name[:100]!r} does not exist here; this server has {model!r}"
        raise ApiError(404, "model_not_found", text, param="model")
    for field, neutral in NEUTRAL.items():
        if raw.get(field) not in neutral:
            raise _wrong(field, "is not supported by this engine")
    options = raw.get("stream_options") or {}
    if not isinstance(options, dict):
        raise _wrong("stream_options", "must be an object")
    limit = "max_completion_tokens" if raw.get("max_completion_tokens") is not None else "max_tokens"
    return Asked(
        messages=parse_messages(raw.get("messages")) if chat else None,
        prompt=None if chat else _prompt(raw.get("prompt"), vocab),
        max_tokens=None if raw.get(limit) is None else _integer(raw, limit, 0, low=1),
        min_tokens=_integer(raw, "min_tokens", 0, low=0),
        ignore_eos=_flag(raw, "ignore_eos"),
        temperature=_temperature(raw),
        seed=_integer(raw, "seed", 0, low=-(2**63)) % 2**64,
        stream=_flag(raw, "stream"),
        include_usage=_flag(options, "include_usage"),
        cache_prompt=_flag(raw, "cache_prompt"),
    )


def parse_messages(value: Any) -> list[dict[str, str]]:
    """Chat messages with plain text content; text parts are joined."""
    if not isinstance(value, list) or not value:
        raise _wrong("messages", "must be a non-empty array")
    messages = []
    for index, message in enumerate(value):
        where = f"messages[{index}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _wrong(where, "must be an object with a role and content")
        messages.append({"role": message["role"], "content": _content(message.get("content"), where + ".content")})
    return messages


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise _wrong(where, "must be a string or an array of text parts")
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in value]
    if not all(isinstance(text, str) for text in texts):
        raise _wrong(where, "has a part that is not text")
    return "".join(text for text in texts if text)


def _prompt(value: Any, vocab: int) -> str | list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]  # a batch of one
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise _wrong("prompt", "must be one string or one array of token ids")
    if value and not 0 <= min(value) <= max(value) < vocab:
        raise _wrong("prompt", f"has a token id outside 0 to {vocab - 1}")
    return value


def _integer(raw: Mapping[str, Any], field: str, default: int, *, low: int) -> int:
    value = raw.get(field)
    if value is None:
        return default
    if type(value) is not int or value < low:
        raise _wrong(field, f"must be an integer of at least {low}")
    return value


def _flag(raw: Mapping[str, Any], field: str) -> bool:
    value = raw.get(field)
    if value is not None and not isinstance(value, bool):
        raise _wrong(field, "must be true or false")
    return bool(value)


def _temperature(raw: Mapping[str, Any]) -> float:
    value = raw.get("temperature")
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not 0 <= value <= 2:
        raise _wrong("temperature", "must be a number from 0 to 2")
    return float(value)


def _wrong(field: str, why: str) -> ApiError:
    return ApiError(400, "invalid_value", f"{field} {why}", param=field)

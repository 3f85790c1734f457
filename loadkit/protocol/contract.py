"""The contract of a protocol, and what all of them share: headers and the splice around the user message.

A new protocol is one file with two functions, `fields` (request body) and `read` (one event to a Chunk), one line in
`protocols.PROTOCOLS`, and the contract test over that dict. `anthropic.py` is a complete example.
Neither function may raise, whatever JSON it is given.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from loadkit.protocol.answer import Chunk
from loadkit.protocol.parser import Parser

PROMPT = "\x00prompt\x00"
"""Stands where the user message goes; `body` cuts the JSON there."""

_PROMPT_JSON = json.dumps(PROMPT)[1:-1]
_ANTHROPIC_VERSION = "2023-06-01"
_ACCEPT = {"sse": "text/event-stream", "ndjson": "application/x-ndjson"}


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks for. `temperature` None leaves the field out; `min_tokens` None too."""

    model: str
    max_tokens: int = 128
    temperature: float | None = 0
    stream: bool = True
    ignore_eos: bool = False
    min_tokens: int | None = None
    max_tokens_field: str = "max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """One way to talk to a server. `path` follows the base URL; `auth` is its usual mode; `framing` that of streams."""

    name: str
    path: str
    auth: str
    fields: Callable[[Ask], dict[str, Any]]
    read: Callable[[bytes | None, Any], Chunk]
    framing: Literal["sse", "ndjson"] = "sse"

    def headers(self, key: str | None, auth: str | None = None) -> dict[str, str]:
        """Request headers, the key among them; `auth` is bearer, x-api-key or none, None = the protocol's usual.

        Compression is declined because it holds back small events.
        """
        headers = {
            "Content-Type": "application/json",
            "Accept": _ACCEPT[self.framing],
            "Accept-Encoding": "identity",
        }
        if self.auth == "x-api-key":
            headers["anthropic-version"] = _ANTHROPIC_VERSION
        mode = auth or self.auth
        if mode not in ("bearer", "x-api-key", "none"):
            raise ValueError(f"auth is bearer, x-api-key or none, not {mode!r}")
        if key and mode == "bearer":
            headers["Authorization"] = f"Bearer {key}"
        elif key and mode == "x-api-key":
            headers["x-api-key"] = key
        return headers

    def body(
        self,
        model: str,
        max_tokens: int = 128,
        temperature: float | None = 0,
        extra: dict[str, Any] | None = None,
        stream: bool = True,
        ignore_eos: bool = False,
        min_tokens: int | None = None,
        max_tokens_field: str = "max_tokens",
    ) -> tuple[bytes, bytes]:
        """Head and tail of the JSON body: head + the escaped user message (without quotes) + tail.

        `extra` is merged over it, objects one level deep; a None in it leaves that field out. UTF-8 is not escaped.
        """
        ask = Ask(model, max_tokens, temperature, stream, ignore_eos, min_tokens, max_tokens_field)
        merged = _merge(self.fields(ask), extra or {})
        head, found, tail = json.dumps(merged, ensure_ascii=False, separators=(",", ":")).partition(_PROMPT_JSON)
        if not found:
            raise ValueError("the extra body must not replace the field that holds the prompt")
        return head.encode(), tail.encode()

    def parser(self, content_type: str | None, status: int | None) -> Parser:
        """A reader for one answer."""
        return Parser(self.read, framing=self.framing, content_type=content_type, status=status)


def _merge(body: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    merged = dict(body)
    for key, value in extra.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merged[key] | value
        else:
            merged[key] = value
    return merged

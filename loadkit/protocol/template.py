"""The short way past the JSON parser: chunks of one answer that differ in their text only.

A plain chunk is parsed once and the bytes around its text are kept. They are proven by parsing the same bytes with
another text: if only that text differs, any other plain text there does the same. The same holds for a whole read that
is one such event: plain text has no line end, so the framing around it means what it meant before.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from loadkit.protocol.answer import Chunk

Reader = Callable[[bytes | None, Any], Chunk]

# Inside a JSON string without escapes: no quote, no backslash, no control character.
_PLAIN = re.compile(rb'[^"\\\x00-\x1f]+')
_MARK = "loadkit"
_MAX_PLACES = 4


@dataclass(frozen=True, slots=True)
class Template:
    """The bytes around the text of a chunk that does nothing but add text to `channel`."""

    name: bytes | None
    prefix: bytes
    suffix: bytes
    channel: Literal["content", "reasoning"]

    def chars(self, name: bytes | None, payload: bytes) -> int | None:
        """Length of the text when the event is this template with another plain text, else None."""
        if name != self.name or not (payload.startswith(self.prefix) and payload.endswith(self.suffix)):
            return None
        text = payload[len(self.prefix) : len(payload) - len(self.suffix)]
        if not _PLAIN.fullmatch(text):
            return None
        if text.isascii():
            return len(text)
        try:
            return len(text.decode())
        except UnicodeDecodeError:
            return None


def learn(read: Reader, name: bytes | None, payload: bytes, chunk: Chunk) -> Template | None:
    """The template of an event that was read as `chunk`; None when it does more than add text to one channel."""
    words = chunk.content or chunk.reasoning
    if not words or words == _MARK or (chunk.content and chunk.reasoning) or chunk.tool:
        return None
    if chunk.usage or chunk.times or chunk.finish_reason or chunk.done or chunk.whole or not chunk.known:
        return None
    quoted = b'"' + words.encode("utf-8", "replace") + b'"'
    if chunk.content:
        expected = replace(chunk, content=_MARK)
    else:
        expected = replace(chunk, reasoning=_MARK)
    at = payload.rfind(quoted)
    for _ in range(_MAX_PLACES):
        if at < 0:
            break
        prefix, suffix = payload[: at + 1], payload[at + len(quoted) - 1 :]
        if _reads_as(read, name, prefix + _MARK.encode() + suffix, expected):
            return Template(name, prefix, suffix, "content" if chunk.content else "reasoning")
        at = payload.rfind(quoted, 0, at)
    return None


def framed(template: Template, read: bytes, payload: bytes) -> Template | None:
    """The template of whole reads that are one event, from a read that is this one and an event of `template`.

    Only for reads before and after which the decoder holds nothing.
    """
    if read.count(payload) != 1:
        return None
    at = read.find(payload)
    prefix, suffix = read[:at] + template.prefix, template.suffix + read[at + len(payload) :]
    return Template(None, prefix, suffix, template.channel)


def _reads_as(read: Reader, name: bytes | None, payload: bytes, expected: Chunk) -> bool:
    try:
        return read(name, json.loads(payload)) == expected
    except (ValueError, RecursionError):
        return False

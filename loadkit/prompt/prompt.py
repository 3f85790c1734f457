"""One prompt as ready bytes, the key it is made from, and the two encodings it needs: JSON escape and hash."""

import hashlib
import json
from dataclasses import dataclass

Piece = bytes | memoryview
"""Part of a request body. Long bodies are read-only views of one shared buffer, so that users add no memory."""


@dataclass(frozen=True, slots=True)
class PromptKey:
    """What makes a prompt unique in a run. The same key gives the same bytes in any process on any machine.

    `attempt` counts the earlier tries of the same visit: a repeated visit must not meet its own cached prompts.
    """

    seed: int
    cell_id: str
    round: int
    slot: int
    phase: str
    attempt: int = 0

    @property
    def number(self) -> int:
        """128 bits drawn from the key: BLAKE2b over its JSON form, no random state anywhere."""
        named = json.dumps([self.seed, self.cell_id, self.round, self.slot, str(self.phase), self.attempt])
        return int.from_bytes(hashlib.blake2b(named.encode(), digest_size=16).digest(), "big")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user message ready to be sent.

    content: UTF-8, JSON-escaped, without the surrounding quotes; joined they are the message.
    tokens: planned prompt tokens, template and BOS included; None when nothing could count them.
    exact: true when `tokens` was counted and not estimated. tokens_source: tokenizer, server or estimate.
    chars: characters of the unescaped message. sha256: see `prompt_sha256`.
    """

    content: tuple[Piece, ...]
    tokens: int | None
    exact: bool
    tokens_source: str
    chars: int
    sha256: str


def escape(text: str) -> bytes:
    """`text` as the inside of a JSON string: UTF-8, only quotes, backslashes and control characters escaped.

    The escape of a character depends on that character alone, so escaped pieces may be joined.
    """
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def text_sha256(text: str) -> str:
    """SHA-256 (hex) of the UTF-8 bytes of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()


def prompt_sha256(head: str, rest_sha256: str) -> str:
    """The hash of a prompt: SHA-256 over the UTF-8 of its unique head, then the hex SHA-256 of all other text.

    Not the hash of the whole message: the head stands in front, so that would read 4 MB again for each request on
    the measuring loop. Equal prompts have equal hashes and, within one tier, different heads different ones.
    """
    return hashlib.sha256(head.encode() + rest_sha256.encode()).hexdigest()

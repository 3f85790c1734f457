"""Text to token ids and token ids to bytes: one contract, two tokenizers.

Decoding goes through bytes because a character may span several tokens: `Detokenizer` holds back what is incomplete.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from loadkit.engine.errors import EngineError
from loadkit.engine.untrusted import read_text, shown


class Tokenizer(Protocol):
    """What the engine needs of a tokenizer."""

    kind: str  # "byte" or "bpe"
    specials: dict[str, int]  # special tokens by their text
    bos: int | None  # put before every prompt; None where the model wants none

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens written in it are recognised; no BOS is added."""

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for special tokens."""


class ByteTokenizer:
    """One token per UTF-8 byte, ids 0 to 255, and four special tokens."""

    VOCAB = 260
    kind = "byte"

    def __init__(self) -> None:
        self.specials = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258, "<|pad|>": 259}
        self.bos: int | None = None
        self._split = re.compile("(" + "|".join(map(re.escape, self.specials)) + ")")

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for part in self._split.split(text):
            special = self.specials.get(part)
            if special is None:
                ids.extend(part.encode("utf-8", "replace"))
            else:
                ids.append(special)
        return ids

    def piece(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""


class BpeTokenizer:
    """A tokenizer of the `tokenizers` library: byte-level BPE, or BPE with byte fallback (llama 2)."""

    kind = "bpe"

    def __init__(self, inner: tokenizers.Tokenizer, *, bos: int | None) -> None:
        self._inner = inner
        self.bos = bos
        added = inner.get_added_tokens_decoder()
        self.specials = {token.content: index for index, token in added.items() if token.special}
        self._special_ids = set(self.specials.values())
        self._added = {index: token.content.encode() for index, token in added.items() if not token.special}
        self._byte_level = _decodes_byte_level(inner)
        self.highest = max(inner.get_vocab(with_added_tokens=True).values(), default=-1)  # largest id

    def encode(self, text: str) -> list[int]:
        # A lone surrogate can come out of JSON; the Rust side takes only well-formed text.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        return list(self._inner.encode(clean, add_special_tokens=False).ids)

    def piece(self, token: int) -> bytes:
        if token in self._special_ids:
            return b""
        if token in self._added:
            return self._added[token]
        text = self._inner.id_to_token(token)
        if text is None:  # an id in the padding of the embedding
            return b""
        return _byte_level_bytes(text) if self._byte_level else _fallback_bytes(text)


class Detokenizer:
    """Token ids in, text out: a character comes out with the token that completes it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.piece(token))

    def flush(self) -> str:
        """What is left when no more tokens come: an incomplete character becomes U+FFFD."""
        return self._decoder.decode(b"", True)


def from_folder(folder: Path, settings: dict[str, Any]) -> BpeTokenizer:
    """The tokenizer.json of a Hugging Face folder; `settings` is its tokenizer_config.json."""
    path = folder / "tokenizer.json"
    if not path.exists():
        raise EngineError(f"{folder}: no tokenizer.json")
    text = read_text(path)
    try:
        inner = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001 (the library raises the plain Exception class)
        raise EngineError(f"{path}: not a tokenizer the `tokenizers` library reads: {shown(error)}") from None
    bos = inner.token_to_id(special_text(settings.get("bos_token")) or "")
    adds = settings.get("add_bos_token")
    if not isinstance(adds, bool):  # then the post-processor tells
        adds = bos is not None and inner.encode("").ids[:1] == [bos]
    return BpeTokenizer(inner, bos=bos if adds else None)


def special_text(value: Any) -> str | None:
    """The text of a special token in tokenizer_config.json: a string or {"content": ...}."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _decodes_byte_level(inner: tokenizers.Tokenizer) -> bool:
    decoder = json.loads(inner.to_str()).get("decoder") or {}
    kinds = {decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", []))}
    if not kinds & {"ByteLevel", "ByteFallback"}:
        raise EngineError(f"tokenizer decoder {decoder.get('type')} is not supported, only ByteLevel and ByteFallback")
    return "ByteLevel" in kinds


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 byte values."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + index): byte for index, byte in enumerate(others)})
    return alphabet


_BYTE_OF = _byte_alphabet()
_FALLBACK = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


def _byte_level_bytes(text: str) -> bytes:
    return bytes(_BYTE_OF[char] for char in text) if all(char in _BYTE_OF for char in text) else text.encode()


def _fallback_bytes(text: str) -> bytes:
    match = _FALLBACK.match(text)
    return bytes([int(match[1], 16)]) if match else text.replace("\u2581", " ").encode()


def stop_tokens(tokenizer: Tokenizer, eos: Sequence[int]) -> frozenset[int]:
    """Tokens that end an answer: the model's EOS and the chat formats' end-of-turn tokens it knows."""
    turns = [tokenizer.specials[text] for text in ("<|im_end|>", "<|eot_id|>") if text in tokenizer.specials]
    return frozenset([*eos, *turns])

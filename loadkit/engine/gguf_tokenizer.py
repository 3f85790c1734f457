"""A byte-level BPE tokenizer built from GGUF metadata with the `tokenizers` library.

The metadata names the pre-tokenizer (how text is cut into words before merging) by a short type, whose rules live in
the code of converters; the ones known here are in PRE_TOKENIZERS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from loadkit.engine.errors import EngineError
from loadkit.engine.tokenizer import BpeTokenizer
from loadkit.engine.untrusted import integer, shown

CONTROL, USER_DEFINED = 3, 4  # GGUF token types

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    words = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


PRE_TOKENIZERS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "qwen2": lambda: _split(_WORDS % r"\p{N}"),
    "llama-bpe": lambda: _split(_WORDS % r"\p{N}{1,3}"),
}


def build(metadata: Mapping[str, Any]) -> BpeTokenizer:
    """The tokenizer that `tokenizer.ggml.*` describes; EngineError for a kind not known here."""
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise EngineError(f"GGUF: tokenizer model {shown(model)} is not supported, only gpt2 (byte-level BPE)")
    pre = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if not isinstance(pre, str) or pre not in PRE_TOKENIZERS:
        raise EngineError(f"GGUF: pre-tokenizer {shown(pre)} is not supported, only {', '.join(PRE_TOKENIZERS)}")
    tokens = _texts(metadata, "tokenizer.ggml.tokens")
    if not tokens:
        raise EngineError("GGUF: tokenizer.ggml.tokens is missing")
    vocab = {token: index for index, token in enumerate(tokens)}
    inner = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges(_texts(metadata, "tokenizer.ggml.merges"), vocab),
            # Llama 3 takes a word that is a token as it stands, whatever the merges say.
            ignore_merges=pre == "llama-bpe",
        )
    )
    if pre == "qwen2":
        inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = PRE_TOKENIZERS[pre]()
    inner.decoder = decoders.ByteLevel()
    kinds = metadata.get("tokenizer.ggml.token_type")
    if kinds is not None and (not isinstance(kinds, np.ndarray | list) or len(kinds) != len(tokens)):
        raise EngineError("GGUF: tokenizer.ggml.token_type is not one number for each token")
    for wanted in (CONTROL, USER_DEFINED):
        added = [
            AddedToken(text, special=wanted == CONTROL, normalized=False)
            for text, kind in zip(tokens, () if kinds is None else kinds, strict=kinds is not None)
            if kind == wanted and text
        ]
        inner.add_tokens(added)
    adds_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"))
    return BpeTokenizer(inner, bos=token_id(metadata, "bos_token_id") if adds_bos else None)


def token_id(metadata: Mapping[str, Any], name: str) -> int | None:
    """The token id in tokenizer.ggml.NAME, None where there is none; EngineError when no token has it."""
    value = metadata.get(f"tokenizer.ggml.{name}")
    if value is None:
        return None
    index = integer("GGUF", f"tokenizer.ggml.{name}", value)
    if not 0 <= index < len(_texts(metadata, "tokenizer.ggml.tokens")):
        raise EngineError(f"GGUF: tokenizer.ggml.{name} is {index}, which is no token")
    return index


def _texts(metadata: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings, empty where there is none; EngineError for anything else."""
    value = metadata.get(key)
    if value is not None and not isinstance(value, list):
        raise EngineError(f"GGUF: {key} is no list of texts")
    return value or []


def _merges(lines: list[str], vocab: Mapping[str, int]) -> list[tuple[str, str]]:
    """Merge pairs; the ones whose parts or result are no tokens can never apply and the library refuses them."""
    merges = []
    for line in lines:
        left, _, right = line.partition(" ")
        if left in vocab and right in vocab and left + right in vocab:
            merges.append((left, right))
    return merges

"""Tokenizers, detokenising, chat templates."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from loadkit.engine import gguf_tokenizer
from loadkit.engine.chat import ChatTemplate
from loadkit.engine.errors import ApiError, EngineError
from loadkit.engine.tokenizer import ByteTokenizer, Detokenizer, from_folder


@pytest.fixture(scope="module")
def metadata() -> dict[str, object]:
    """A byte vocabulary in GPT-2's alphabet with a few merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, "he", "hel", "12", "123", "<|im_end|>", "<think>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 2) + [3, 4],
        "tokenizer.ggml.merges": ["h e", "he l", "1 2", "12 3", "he zz"],
    }


@given(st.text())
def test_byte_tokens_are_bytes(text):
    """One token per UTF-8 byte, and the text comes back."""
    tokenizer = ByteTokenizer()
    if any(special in text for special in tokenizer.specials):
        return
    tokens = tokenizer.encode(text)
    assert bytes(tokens) == text.encode()
    assert b"".join(map(tokenizer.piece, tokens)) == text.encode()


def test_byte_specials():
    """Special tokens are one token each and have no bytes."""
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("a<|im_end|>b") == [97, 258, 98]
    assert tokenizer.piece(258) == b""


@given(st.text())
def test_characters_come_whole(text):
    """However a text is cut into byte tokens, no piece that comes out has half a character, and nothing is lost."""
    detokenizer = Detokenizer(ByteTokenizer())
    pieces = [detokenizer.feed(byte) for byte in text.encode()]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece or "\ufffd" in text for piece in pieces)
    assert detokenizer.flush() == ""


def test_an_incomplete_character_is_held_back_to_the_end():
    """Bytes of an unfinished character give no text until the end, then one replacement character."""
    detokenizer = Detokenizer(ByteTokenizer())
    assert [detokenizer.feed(byte) for byte in "é".encode()[:1]] == [""]
    assert detokenizer.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("pre", "digits"),
    [("qwen2", ["1", "2", "3"]), ("smollm", ["1", "2", "3"]), ("llama-bpe", ["123"]), ("gpt-2", ["123"])],
)
def test_pre_tokenizers_cut_numbers_their_own_way(metadata, pre, digits):
    """Merges never cross the words a pre-tokenizer makes: digits stand alone, or up to three together."""
    built = gguf_tokenizer.build(metadata | {"tokenizer.ggml.pre": pre})
    tokens = metadata["tokenizer.ggml.tokens"]
    assert [tokens[token] for token in built.encode("hel123")] == ["hel", *digits]


@given(st.text())
def test_bpe_round_trip(metadata, text):
    """Any text without special tokens comes back from its pieces (qwen2 normalises to NFC, gpt-2 does not)."""
    built = gguf_tokenizer.build(metadata | {"tokenizer.ggml.pre": "gpt-2"})
    assert b"".join(map(built.piece, built.encode(text))).decode() == text


def test_gguf_special_and_user_defined_tokens(metadata):
    """A control token is one token without text; a user-defined one is one token with its text."""
    built = gguf_tokenizer.build(metadata)
    tokens = built.encode("<think>he<|im_end|>")
    assert [built.piece(token) for token in tokens] == [b"<think>", b"he", b""]
    assert built.specials == {"<|im_end|>": len(metadata["tokenizer.ggml.tokens"]) - 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.model": "llama"}, "tokenizer model llama is not supported"),
        ({"tokenizer.ggml.pre": "tekken"}, "pre-tokenizer tekken is not supported"),
        ({"tokenizer.ggml.tokens": []}, "tokens is missing"),
    ],
)
def test_unknown_gguf_tokenizers(metadata, change, message):
    """A tokenizer that cannot be built is refused by name."""
    with pytest.raises(EngineError, match=message):
        gguf_tokenizer.build(metadata | change)


def save_tokenizer(folder, *, bos: bool) -> None:
    vocab = {token: index for index, token in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken("<s>", special=True)])
    if bos:
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    inner.save(str(folder / "tokenizer.json"))


@pytest.mark.parametrize(
    ("post_processor", "settings", "bos"),
    [
        (True, {"bos_token": "<s>"}, 256),
        (False, {"bos_token": "<s>"}, None),
        (False, {"bos_token": {"content": "<s>"}, "add_bos_token": True}, 256),
        (True, {"bos_token": "<s>", "add_bos_token": False}, None),
        (False, {}, None),
    ],
)
def test_bos_of_a_folder(tmp_path, post_processor, settings, bos):
    """Whether prompts get a BOS: add_bos_token says it, else the post-processor shows it. `encode` never adds it."""
    save_tokenizer(tmp_path, bos=post_processor)
    built = from_folder(tmp_path, settings)
    assert built.bos == bos
    assert 256 not in built.encode("hi")


def test_a_broken_tokenizer_file(tmp_path):
    """A file that is no tokenizer, or none at all, is one clear line."""
    with pytest.raises(EngineError, match=r"no tokenizer\.json"):
        from_folder(tmp_path, {})
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))
    with pytest.raises(EngineError, match="not a tokenizer"):
        from_folder(tmp_path, {})


def test_byte_fallback_tokens(tmp_path):
    """Llama 2's pieces: a lower block is a space, <0xE9> is a byte."""
    vocab = {"<unk>": 0, "\u2581hi": 1, "<0xC3>": 2, "<0xA9>": 3}
    inner = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    inner.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    inner.save(str(tmp_path / "tokenizer.json"))
    built = from_folder(tmp_path, {})
    assert b"".join(map(built.piece, [1, 2, 3])).decode() == " hié"


def test_templates_run_in_a_sandbox():
    """A template cannot reach Python's internals; what it refuses is the client's error."""
    reaching = ChatTemplate("{{ messages.__class__.__base__.__subclasses__() }}")
    with pytest.raises(ApiError, match="refuses these messages") as caught:
        reaching.render([{"role": "user", "content": "x"}])
    assert caught.value.status == 400
    refusing = ChatTemplate("{{ raise_exception('roles must alternate') }}")
    with pytest.raises(ApiError, match="roles must alternate"):
        refusing.render([])
    with pytest.raises(EngineError, match="not valid Jinja"):
        ChatTemplate("{% for %}")

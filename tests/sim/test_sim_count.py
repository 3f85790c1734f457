"""The counting rule, on bodies cut anywhere."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.sim.ask import count_prompt, read_ask, tokenize
from loadkit.sim.count import BodyScan, Text, decoded_size

TRICKY = st.text(alphabet=st.sampled_from('a"\\/\n\t\u0001é中😀\u2028u0'), max_size=40)


def scan(raw: bytes, keep: int, cuts=()) -> object:
    body = BodyScan(keep)
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    for start, end in itertools.pairwise(edges):
        body.feed(raw[start:end])
    return body.parse()


@given(TRICKY, st.booleans(), st.lists(st.integers(0, 1000), max_size=6))
def test_short_texts_come_back_whole(text, ascii_only, cuts):
    """A document of short texts is what json.loads gives, however it is escaped and cut."""
    document = {text + "k": text, "n": [1, None, "é"]}
    assert scan(json.dumps(document, ensure_ascii=ascii_only).encode(), 1024, cuts) == document


@given(TRICKY, st.booleans(), st.lists(st.integers(0, 4000), max_size=6))
def test_long_texts_are_measured_not_kept(text, ascii_only, cuts):
    """A text over the limit comes back as its exact UTF-8 size and its first 64 bytes, for every escaping and cut."""
    long = "x" + text * 40 + "y" * 1100
    found = scan(json.dumps([long, "short"], ensure_ascii=ascii_only).encode(), 1024, cuts)
    assert isinstance(found[0], Text)
    assert (found[0].size, found[0].head) == (len(long.encode()), long.encode()[:64])
    assert found[1] == "short"


@pytest.mark.parametrize(
    ("raw", "size"),
    [
        (rb"plain", 5),
        (rb"\n\t\"\/", 4),
        (rb"\\n", 2),
        (rb"\\\n", 2),
        (rb"\\u4e2d", 6),
        (rb"\u0041", 1),
        (rb"\u00e9", 2),
        (rb"\u4e2d", 3),
        (rb"\ud83d\ude00", 4),
        (rb"\ud83d", 2),
        ("中😀".encode(), 7),
    ],
)
def test_decoded_size_of_each_escape(raw, size):
    """One byte per simple escape, UTF-8 length per \\u escape, four bytes per surrogate pair."""
    assert decoded_size(raw) == size


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"a": "b',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'["' + b"x" * 2000 + b'", NaN]',
        b'{"' + b"x" * 2000 + b'": 1}',
        b'{"a": "\xff"}',
        b"[" * 200_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_not_json_is_a_value_error(raw):
    """Broken documents are refused, also where a long text stands at a wrong place."""
    with pytest.raises(ValueError, match=r"."):
        scan(raw, 1024)


def count(protocol, body, per_token=1):
    return count_prompt(protocol, scan(json.dumps(body).encode(), 1024), per_token)


def test_prompt_tokens_of_each_shape():
    """Messages cost bytes and the template of 8 once, plain prompts bytes and the BOS, token ids their number."""
    user = {"role": "user", "content": "né"}
    parts = {"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]}
    assert count("openai-chat", {"messages": [user]}) == (11, "né".encode())
    assert count("openai-chat", {"messages": [user, parts]}) == (14, "néabc".encode())
    assert count("openai-chat", {"messages": [{"role": "assistant", "content": None}]}) == (8, b"")
    assert count("anthropic", {"system": "s" * 5000, "messages": [user]}) == (5011, b"s" * 64)
    assert count("ollama", {"messages": [user]}) == (11, "né".encode())
    assert count("openai-completions", {"prompt": "né"}) == (4, "né".encode())
    assert count("openai-completions", {"prompt": [5, 6, 7]}) == (3, b"5 6 7")


def test_bytes_per_token_rounds_up_once_over_all_messages():
    """With 4 bytes per token, 3 + 6 bytes are 3 tokens, not 1 + 2 rounded apart."""
    messages = [{"role": "user", "content": "abc"}, {"role": "user", "content": "abcdef"}]
    assert count("openai-chat", {"messages": messages}, 4)[0] == 8 + 3
    assert count("openai-completions", {"prompt": "x" * 1_000_001}, 4)[0] == 1 + 250_001


def test_tokenize_counts_like_the_prompt_does():
    """/tokenize and the usage of a request agree, and the tokens listed are as many as counted."""
    assert tokenize({"prompt": "hé"}, 1) == {"count": 4, "tokens": [0, 105, 196, 170]}
    assert tokenize({"prompt": "hé", "add_special_tokens": False}, 1)["count"] == 3
    assert tokenize({"content": "hé"}, 1)["count"] == 3
    assert tokenize({"content": "hé", "add_special": True}, 1)["count"] == 4
    assert tokenize({"messages": [{"role": "user", "content": "hé"}]}, 1) == {"count": 11}
    four = tokenize({"prompt": "abcdefghi"}, 4)
    assert four["count"] == len(four["tokens"]) == 4


MESSAGES = [{"role": "user", "content": "x"}]


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        ("openai-chat", []),
        ("openai-chat", {}),
        ("openai-chat", {"messages": []}),
        ("openai-chat", {"messages": ["x"]}),
        ("openai-chat", {"messages": [{"content": "x"}]}),
        ("openai-chat", {"messages": [{"role": "user", "content": 5}]}),
        ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        ("openai-chat", {"messages": MESSAGES, "max_tokens": 0}),
        ("openai-chat", {"messages": MESSAGES, "max_tokens": 1.5}),
        ("openai-chat", {"messages": MESSAGES, "max_tokens": True}),
        ("openai-chat", {"messages": MESSAGES, "stream": "yes"}),
        ("openai-chat", {"messages": MESSAGES, "stream_options": 1}),
        ("openai-chat", {"messages": MESSAGES, "model": 1}),
        ("openai-chat", {"messages": MESSAGES, "sim": [1]}),
        ("openai-completions", {"messages": MESSAGES}),
        ("openai-completions", {"prompt": [1, "x"]}),
        ("anthropic", {"messages": MESSAGES}),
    ],
)
def test_malformed_requests_are_one_line(protocol, body):
    """What a real server would refuse is a ValueError of one line."""
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        read_ask(protocol, body, 1)


def test_each_protocol_names_its_limit_and_stream_differently():
    """max_tokens, max_completion_tokens and num_predict are the same thing; only Ollama streams by default."""
    asked = {
        "openai-chat": {"messages": MESSAGES, "max_completion_tokens": 9},
        "openai-completions": {"prompt": "x", "max_tokens": 9},
        "anthropic": {"messages": MESSAGES, "max_tokens": 9},
        "ollama": {"messages": MESSAGES, "options": {"num_predict": 9}},
    }
    asks = {protocol: read_ask(protocol, body, 1) for protocol, body in asked.items()}
    assert {ask.max_tokens for ask in asks.values()} == {9}
    assert {protocol for protocol, ask in asks.items() if ask.stream} == {"ollama"}

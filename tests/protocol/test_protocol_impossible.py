"""Usage that cannot be true is not believed: numbers fall back to what they are without usage."""

import json

import pytest

from loadkit.protocol import replay

KNOWN = {"input_bytes": 10_000, "max_tokens": 2000, "prompt_tokens": 2500, "prompt_tokens_source": "tokenizer"}


def record(usage, **known):
    """The record of an answer of two tokens with this usage."""
    chunks = [{"choices": [{"index": 0, "delta": {"content": "a"}}]}] * 2
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    reads = [(1.0 + i, f"data: {json.dumps(chunk)}\n\n".encode()) for i, chunk in enumerate(chunks)]
    return replay("openai-chat", reads, "eof", 200, {"content-type": "text/event-stream"}, known=KNOWN | known)


@pytest.mark.parametrize(
    ("known", "prompt", "source"),
    [
        ({}, 640_000, "usage"),
        ({}, 640_001, "tokenizer"),
        ({"input_bytes": 100}, 262_144, "usage"),  # a system prompt we do not see
        ({"input_bytes": 100}, 262_145, "tokenizer"),
        ({"input_bytes": None}, 10**12, "usage"),  # nothing to hold it against
    ],
)
def test_prompt_tokens_have_a_bound(known, prompt, source):
    """64 for each byte that was sent, of at least 4096 bytes."""
    found = record({"prompt_tokens": prompt, "completion_tokens": 2}, **known)
    assert (found["prompt_tokens"], found["prompt_tokens_source"]) == (prompt if source == "usage" else 2500, source)
    assert (found["outcome"], found["output_tokens_source"]) == ("ok", "usage")


@pytest.mark.parametrize(
    ("known", "completion", "source"),
    [
        ({}, 128_000, "usage"),
        ({}, 128_001, "events"),
        ({"max_tokens": 16}, 65_536, "usage"),  # reasoning we do not see
        ({"max_tokens": 16}, 65_537, "events"),
        ({"max_tokens": None}, 10**12, "usage"),
    ],
)
def test_output_tokens_have_a_bound(known, completion, source):
    """64 for each token asked for or seen, of at least 1024."""
    found = record({"prompt_tokens": 2500, "completion_tokens": completion}, **known)
    expected = completion if source == "usage" else 2
    assert (found["output_tokens"], found["output_tokens_source"]) == (expected, source)
    assert found["prompt_tokens_source"] == "usage"


def test_other_counts_are_held_to_the_same_bounds():
    """Cached and reasoning tokens too."""
    usage = {
        "prompt_tokens": 2500,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 10**9},
        "completion_tokens_details": {"reasoning_tokens": 10**9},
    }
    found = record(usage)
    assert (found["cached_tokens"], found["reasoning_tokens"]) == (None, None)
    assert (found["prompt_tokens_source"], found["output_tokens_source"]) == ("tokenizer", "events")

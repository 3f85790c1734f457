"""Cached tokens that every prompt of a server has in common are no hit of a prefix cache."""

import json

import pytest

from loadkit.protocol import replay

SSE = {"content-type": "text/event-stream"}


def flags(cached, known):
    """The flags of an answer to a prompt of 128 tokens of which `cached` came from a cache."""
    usage = {"prompt_tokens": 128, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": cached}}
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage},
    ]
    reads = [(1.0 + i, f"data: {json.dumps(chunk)}\n\n".encode()) for i, chunk in enumerate(chunks)]
    reads.append((9.0, b"data: [DONE]\n\n"))
    return replay("openai-chat", reads, "eof", 200, SSE, known=known)["flags"]


@pytest.mark.parametrize(
    ("cached", "overhead", "hit"),
    [
        (0, None, False),
        (1, None, True),  # nothing is known of the template
        (0, 25, False),
        (25, 25, False),  # the whole template
        (41, 25, False),  # and the 16 tokens in which prompts differ
        (42, 25, True),
        (16, 0, False),
        (17, 0, True),
    ],
)
def test_only_tokens_beyond_template_and_head_are_a_hit(cached, overhead, hit):
    """llama.cpp keeps the chat template of the last request: that must not condemn a cell."""
    assert ("prefix_cache_hit" in flags(cached, {"overhead_tokens": overhead})) is hit

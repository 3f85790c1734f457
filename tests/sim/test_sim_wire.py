"""The contract every voice keeps, and what is peculiar to each."""

from __future__ import annotations

import dataclasses
import json

import pytest

from loadkit.sim.wire import TOKEN, VOICES, Facts, chunk

FACTS = Facts(
    id="sim-1", model='m"1', prompt_tokens=20, cached_tokens=5, output_tokens=6, finish="length",
    include_usage=True, ttft_ns=1000, decode_ns=2000,
)  # fmt: skip


def documents(data: bytes) -> list[dict]:
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n") if line and not line.startswith("event")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def generated(document: dict) -> str:
    choices = document.get("choices") or [{}]
    return (
        choices[0].get("delta", {}).get("content")
        or choices[0].get("text")
        or document.get("delta", {}).get("text")
        or document.get("message", {}).get("content")
        or ""
    )


@pytest.mark.parametrize("name", VOICES)
def test_only_events_carry_generated_text(name):
    """Nothing before the first event or after the last has text; an event has the tokens it was asked for."""
    voice = VOICES[name]
    quiet = documents(voice.opening(FACTS)) + documents(voice.closing(FACTS))
    assert [generated(document) for document in quiet if generated(document)] == []
    (event,) = documents(voice.event(FACTS, 3))
    assert generated(event) == TOKEN * 3


@pytest.mark.parametrize("name", VOICES)
def test_whole_answers_state_the_counts(name):
    """An answer that is not streamed is one JSON document with the text of all tokens and their number."""
    whole = VOICES[name].whole(FACTS)
    document = json.loads(whole)
    assert document["model"] == 'm"1'
    assert TOKEN * 6 in whole.decode()
    usage = document.get("usage", document)
    counts = {usage.get(key) for key in ("completion_tokens", "output_tokens", "eval_count")} - {None}
    assert counts == {6}


@pytest.mark.parametrize("name", VOICES)
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_errors_are_json_with_the_message(name, status):
    """Every protocol has an error document for every status, and its in-band form."""
    voice = VOICES[name]
    assert 'why "this"' in json.dumps(json.loads(voice.error(status, "code", 'why "this"'))).replace('\\"', '"')
    (inband, *_) = documents(voice.inband_error("broken"))
    assert "error" in inband


def test_openai_usage_comes_only_when_asked_for():
    """The usage chunk has no choices and stands between finish and [DONE]."""
    voice = VOICES["openai-chat"]
    closing = documents(voice.closing(FACTS))
    assert [bool(document["choices"]) for document in closing] == [True, False]
    assert closing[1]["usage"] == {
        "prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26, "prompt_tokens_details": {"cached_tokens": 5},
    }  # fmt: skip
    silent = voice.closing(dataclasses.replace(FACTS, include_usage=False))
    assert len(documents(silent)) == 1
    assert silent.endswith(b"data: [DONE]\n\n")


def test_anthropic_counts_cached_tokens_apart():
    """input_tokens excludes what was read from the cache; max_tokens is its word for length."""
    voice = VOICES["anthropic"]
    usage = documents(voice.opening(FACTS))[0]["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (15, 5)
    assert documents(voice.closing(FACTS))[1]["delta"]["stop_reason"] == "max_tokens"


def test_ollama_ends_with_done_and_durations():
    """Lines are JSON, the last one says done, why, and how long each phase took."""
    (last,) = documents(VOICES["ollama"].closing(FACTS))
    assert (last["done"], last["done_reason"], last["prompt_eval_duration"], last["eval_duration"]) == (
        True, "length", 1000, 2000,
    )  # fmt: skip


def test_an_empty_chunk_is_never_framed():
    """An empty piece must not become the chunk that ends a body."""
    assert chunk(b"") == b""
    assert chunk(b"x" * 17) == b"11\r\n" + b"x" * 17 + b"\r\n"

"""Dialects of servers on edge boards: rkllama, RKLLM's statistics, llama.cpp's timings, and letters for tokens."""

import json

import pytest

from loadkit.protocol import replay

SSE = {"content-type": "text/event-stream"}
NDJSON = {"content-type": "application/x-ndjson"}
OPEN = {"how": "open", "t_ms": 9999}


def event(doc):
    return b"data: " + json.dumps(doc).encode() + b"\n\n"


def delta(text, finish=None, **more):
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}], **more})


def line(**doc):
    return json.dumps({"model": "m", **doc}).encode() + b"\n"


def chat(*events, **more):
    """A streamed answer with an event each 10 ms."""
    reads = [(10 * (i + 1), piece) for i, piece in enumerate((*events, b"data: [DONE]\n\n"))]
    return replay("openai-chat", reads, OPEN, 200, SSE, **more)


def test_rkllm_statistics_stand_beside_the_clients_clock():
    """Engine prefill and decode are other fields than TTFT; a tokenizer of 40 ms is apart, and inside the client's."""
    perf = {"prefill_time_ms": 360.0, "prefill_tokens": 512, "generate_time_ms": 640.5, "generate_tokens": 2}
    found = chat(delta("Hi"), delta(" you", "stop", perf={**perf, "tokenize_ms": 40.0}))
    assert (found["server_prefill_ms"], found["server_decode_ms"], found["tokenize_ms"]) == (360.0, 640.5, 40.0)
    assert (found["prompt_tokens"], found["output_tokens"], found["output_tokens_source"]) == (512, 2, "usage")
    assert found["ttft_ms"] == 10


def test_rkllamas_openai_durations_are_seconds():
    """Its last chunk has usage with durations in seconds; zeros are none."""
    usage = {"prompt_tokens": 30, "completion_tokens": 2, "prompt_eval_duration": 0.25, "eval_duration": 1.5}
    found = chat(delta("Hi"), delta(" you", "stop"), event({"choices": [], "usage": usage}))
    assert (found["server_prefill_ms"], found["server_decode_ms"]) == (250.0, 1500.0)
    nothing = {**usage, "prompt_eval_duration": 0, "eval_duration": 0}
    found = chat(delta("Hi"), delta(" you", "stop"), event({"choices": [], "usage": nothing}))
    assert (found["server_prefill_ms"], found["server_decode_ms"]) == (None, None)


def test_llama_cpps_timings():
    """Prompt and prediction in ms, and cached tokens belong to the prompt."""
    timings = {"prompt_n": 10, "prompt_ms": 120.0, "predicted_n": 2, "predicted_ms": 80.0, "cache_n": 5}
    found = chat(delta("Hi"), delta(" you"), delta("", "stop", timings=timings))
    assert (found["server_prefill_ms"], found["server_decode_ms"]) == (120.0, 80.0)
    assert (found["prompt_tokens"], found["cached_tokens"]) == (15, 5)


def ollama(**last):
    done = {"done": True, "done_reason": "stop", "prompt_eval_count": 30, "eval_count": 2, **last}
    reads = [(100, line(message={"content": "Hi"}, done=False)), (200, line(message={"content": "!"}, done=False))]
    return replay("ollama", [*reads, (210, line(message={"content": ""}, **done))], OPEN, 200, NDJSON)


def test_durations_that_are_a_split_of_the_total_are_refused():
    """Without a first token rkllama states a tenth of the total as prompt time: that is no clock. A clock's own is."""
    total = 2_345_678_901
    made_up = ollama(total_duration=total, prompt_eval_duration=int(total * 0.1), eval_duration=int(total * 0.9))
    assert (made_up["server_prefill_ms"], made_up["server_decode_ms"]) == (None, None)
    real = ollama(total_duration=total, prompt_eval_duration=500_000_000, eval_duration=1_800_000_000)
    assert (real["server_prefill_ms"], real["server_decode_ms"]) == (500.0, 1800.0)


def test_a_hung_worker_is_an_error_in_band():
    """The text of the timeout is no token, and an end without durations is no end: both are stream errors or worse."""
    said = "Aborted inference by Timeout (60 seconds). Try again."
    reads = [(100, line(message={"content": said}, done=False)), (110, line(message={"content": ""}, done=True))]
    found = replay("ollama", reads, OPEN, 200, NDJSON)
    assert (found["outcome"], found["token_events"], found["error_message"]) == ("stream_error", 0, said)
    cut = ollama(eval_count=0, prompt_eval_count=0, eval_duration=None, prompt_eval_duration=None)
    assert (cut["outcome"], cut["token_events"]) == ("stream_error", 2)


@pytest.mark.parametrize(
    ("words", "letters"),
    [
        (["Hello there"] * 40, False),
        ([*"The quick brown fox jumps over the lazy dog"], True),
        ([*"The quick brown fox"], False),  # too few to be sure
        ([*"The quick brown fox jumps over the lazy do", "gs"], False),  # one event of two characters: not letters
    ],
)
def test_letters_are_not_counted_as_tokens(words, letters):
    """RKLLM's demo streams characters and no usage: tokens and decode rate are then unknown, TTFT and gaps stand."""
    found = chat(*(delta(word) for word in words), delta("", "stop"))
    assert ("events_are_characters" in found["flags"]) is letters
    assert found["output_tokens"] == (None if letters else len(words))
    assert (found["tpot_ms"] is None) is letters
    assert found["ttft_ms"] == 10
    assert found["output_chars"] == sum(map(len, words))


def test_letters_with_usage_are_tokens_of_the_usage():
    """A server that states its tokens is believed, however it cuts its text."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 11}})
    found = chat(*(delta(letter) for letter in "The quick brown fox jumps over the lazy dog"), delta("", "stop"), usage)
    assert (found["output_tokens"], found["output_tokens_source"]) == (11, "usage")
    assert "events_are_characters" not in found["flags"]

"""Anthropic, Ollama, llama.cpp and other dialects, whole answers, odd endings; none of these are in streams.json."""

import json
from typing import Any

import pytest

from loadkit.protocol import PROTOCOLS, parser, replay
from loadkit.protocol.sse import SseDecoder

SSE = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json; charset=utf-8"}
NDJSON = {"content-type": "application/x-ndjson"}
DONE = (90, b"data: [DONE]\n\n")


def event(doc: dict[str, Any], name: str | None = None) -> bytes:
    """One SSE event."""
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(doc).encode() + b"\n\n"


def delta(finish: Any = None, **more: Any) -> bytes:
    """One chat chunk."""
    return event({"choices": [{"index": 0, "delta": more, "finish_reason": finish}]})


def typed(kind: str, **more: Any) -> bytes:
    """One Anthropic event."""
    return event({"type": kind, **more}, kind)


def line(**doc: Any) -> bytes:
    """One Ollama line."""
    return json.dumps({"model": "m", "created_at": "2025-01-01T00:00:00Z", **doc}).encode() + b"\n"


ANTHROPIC = [
    (
        10,
        typed(
            "message_start",
            message={
                "id": "msg_1",
                "type": "message",
                "model": "claude",
                "content": [],
                "stop_reason": None,
                "usage": {
                    "input_tokens": 10,
                    "cache_read_input_tokens": 80,
                    "cache_creation_input_tokens": 10,
                    "output_tokens": 1,
                },
            },
        ),
    ),
    (20, typed("content_block_start", index=0, content_block={"type": "thinking", "thinking": ""}) + typed("ping")),
    (100, typed("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "Hm"})),
    (120, typed("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "abc"})),
    (140, typed("content_block_delta", index=1, delta={"type": "text_delta", "text": "Hi"})),
    (160, typed("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": ""})),
    (180, typed("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": "{}"})),
    (190, typed("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})),
    (191, typed("message_stop")),
]


def test_anthropic_stream():
    """Thinking, text and tool input are tokens; the prompt is fresh + cached + written; message_stop ends it."""
    record = replay("anthropic", ANTHROPIC, {"how": "open", "t_ms": 9999}, 200, SSE)
    assert record["outcome"] == "ok"
    assert (record["ttft_ms"], record["ttft_content_ms"], record["e2e_ms"], record["done_ms"]) == (100, 140, 180, 191)
    assert (record["prompt_tokens"], record["cached_tokens"], record["output_tokens"]) == (100, 80, 5)
    assert record["tpot_ms"] == 20.0
    assert (record["response_id"], record["response_model"], record["finish_reason"]) == ("msg_1", "claude", "end_turn")
    assert record["flags"] == ["tokens_per_event_gt_1", "prefix_cache_hit"]


@pytest.mark.parametrize(("tokens_before", "outcome"), [(0, "overloaded"), (1, "stream_error")])
def test_anthropic_error_event(tokens_before, outcome):
    """An error event is classified before the first token and a stream_error after it; partial marks stay."""
    reads = [ANTHROPIC[0], *ANTHROPIC[2 : 2 + tokens_before]]
    reads.append((500, typed("error", error={"type": "overloaded_error", "message": "Overloaded"})))
    record = replay("anthropic", reads, "eof", 200, SSE)
    assert record["outcome"] == outcome
    assert record["token_events"] == tokens_before
    assert record["error_type"] == "overloaded_error"


def test_anthropic_whole_message():
    """A message that was not streamed has counts and an end, but no TTFT and no pace."""
    body = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    body["usage"] = {"input_tokens": 3, "output_tokens": 2}
    record = replay("anthropic", [(70, json.dumps(body).encode())], "eof", 200, JSON)
    assert (record["outcome"], record["ttft_ms"], record["itl_ms"], record["tpot_ms"]) == ("ok", None, None, None)
    assert (record["prompt_tokens"], record["output_tokens"], record["e2e_ms"]) == (3, 2, 70)
    assert record["flags"] == ["not_streamed"]


@pytest.mark.parametrize("form", ["chat", "generate"])
def test_ollama_stream(form):
    """Lines of both routes are tokens; done:true ends it and brings counts and server times (ns)."""

    def said(words: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": words}} if form == "chat" else {"response": words}

    last = {"done_reason": "stop", "eval_count": 2, "prompt_eval_count": 26}
    last |= {"prompt_eval_duration": 130_000_000, "eval_duration": 40_000_000, "load_duration": 5}
    reads = [
        (200, line(**said("a"), done=False)),
        (240, line(**said("b"), done=False)),
        (250, line(**said(""), done=True, **last)),
    ]
    record = replay("ollama", reads, {"how": "open", "t_ms": 9000}, 200, NDJSON)
    assert record["outcome"] == "ok"
    assert (record["ttft_ms"], record["tpot_ms"], record["done_ms"]) == (200, 40, 250)
    assert (record["prompt_tokens"], record["output_tokens"]) == (26, 2)
    assert (record["server_prefill_ms"], record["server_decode_ms"]) == (130, 40)
    assert record["flags"] == []


def test_ollama_thinking_and_error_line():
    """Thinking is a token; an error line after it is a stream_error, without it the error's own class."""
    thinking = (5, line(message={"content": "", "thinking": "x"}, done=False))
    broken = (9, b'{"error": "model \'m\' not found"}\n')
    after = replay("ollama", [thinking, broken], "eof", 200, NDJSON)
    assert (after["outcome"], after["ttft_ms"], after["ttft_content_ms"]) == ("stream_error", 5, None)
    assert replay("ollama", [broken], "eof", 200, NDJSON)["outcome"] == "stream_error"
    assert replay("ollama", [broken], "eof", 404, JSON)["outcome"] == "model_not_found"


@pytest.mark.parametrize("indent", [None, 2])
def test_ollama_whole_answer(indent):
    """One object with text and done:true is an answer that was not streamed, pretty-printed or not."""
    body = json.dumps({"message": {"content": "Hi"}, "done": True, "eval_count": 4}, indent=indent).encode()
    record = replay("ollama", [(30, body)], "eof", 200, JSON)
    assert (record["outcome"], record["ttft_ms"], record["output_tokens"]) == ("ok", None, 4)
    assert "not_streamed" in record["flags"]


def test_llama_cpp_timings():
    """`timings` give the server's prefill and decode time, and the prompt tokens that came from its cache."""
    timings = {"cache_n": 35, "prompt_n": 1, "prompt_ms": 12.5, "predicted_n": 3, "predicted_ms": 40.25}
    reads = [(5, delta(role="assistant", content=None)), (20, delta(content="a")), (30, delta(content="b"))]
    reads += [(40, delta(content="c")), (41, delta("stop")), (42, event({"choices": [], "timings": timings})), DONE]
    record = replay("openai-chat", reads, "chunked_end", 200, SSE)
    assert (record["server_prefill_ms"], record["server_decode_ms"]) == (12.5, 40.25)
    assert (record["prompt_tokens"], record["cached_tokens"], record["output_tokens"]) == (36, 35, 3)
    assert record["flags"] == ["prefix_cache_hit"]
    assert record["unit_price_ms"] == 20.0


def test_a_queue_is_told_beside_timings_or_in_an_object_of_its_own():
    """The embedded engine adds its queue to `timings`, in ms; Cerebras puts seconds into `time_info`."""
    timings = {"prompt_n": 4, "queue_ms": 1.5, "prompt_ms": 12.5, "predicted_n": 1, "predicted_ms": 0.0}
    seconds = {"queue_time": 0.0015, "prompt_time": 0.0125, "completion_time": 0.25, "total_time": 0.3}
    usage = {"prompt_tokens": 4, "completion_tokens": 1}
    for last, decode in (({"timings": timings}, 0.0), ({"usage": usage, "time_info": seconds}, 250.0)):
        reads = [(20, delta(content="a")), (41, delta("stop")), (42, event({"choices": [], **last})), DONE]
        record = replay("openai-chat", reads, "chunked_end", 200, SSE)
        found = [record[f"server_{part}_ms"] for part in ("queue", "prefill", "decode")]
        assert found == pytest.approx([1.5, 12.5, decode])


def test_progress_chunks_are_no_tokens():
    """Role chunks that llama.cpp sends during prefill do not stop TTFT."""
    progress = {"choices": [{"delta": {"role": "assistant", "content": None}}], "prompt_progress": {"processed": 5}}
    reads = [(10, event(progress)), (20, event(progress)), (90, delta(content="x")), (91, delta("stop"))]
    assert replay("openai-chat", reads, "eof", 200, SSE)["ttft_ms"] == 90


def test_usage_with_every_chunk_gives_tokens_per_event():
    """Cumulative usage tells the tokens of each event; those of the first are taken out of TPOT."""
    reads = []
    for at, words, total in [(100, "a b c", 3), (130, "d", 4), (150, "e f", 6)]:
        usage = {"prompt_tokens": 9, "completion_tokens": total}
        reads.append((at, event({"choices": [{"delta": {"content": words}}], "usage": usage})))
    record = replay("openai-chat", [*reads, (160, delta("stop")), DONE], "eof", 200, SSE)
    assert record["event_tokens"] == [3, 1, 2]
    assert record["tpot_ms"] == pytest.approx(50 / 3)
    assert record["flags"] == ["tokens_per_event_gt_1"]


@pytest.mark.parametrize(("finish", "flagged"), [("stop", False), ("length", True)])
def test_an_end_token_is_not_a_second_token_in_an_event(finish, flagged):
    """Servers count the end token, which has no text; only without one is a surplus of one an event of two."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3}})
    reads = [(10, delta(content="a")), (20, delta(content="b")), (21, delta(finish)), (22, usage), DONE]
    record = replay("openai-chat", reads, "eof", 200, SSE)
    assert ("tokens_per_event_gt_1" in record["flags"]) is flagged


@pytest.mark.parametrize(
    ("payload", "chars"),
    [
        ({"refusal": "no"}, 2),
        ({"function_call": {"name": "f", "arguments": ""}}, 1),
        ({"function_call": {"arguments": "{}"}}, 2),
        ({"tool_calls": [{"index": 0, "id": "call_1"}]}, 6),
        ({"reasoning": "Hm", "reasoning_content": "Hm"}, 2),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]}, 2),
        ({"content": [{"type": "text", "text": "Hi!"}]}, 3),
        ({"content": "\n"}, 1),
    ],
)
def test_every_generated_channel_is_a_token(payload, chars):
    """Refusals, calls, reasoning under either name, part lists and bare whitespace all stop TTFT."""
    record = replay("openai-chat", [(7, delta(**payload)), (8, delta("stop")), DONE], "eof", 200, SSE)
    assert (record["ttft_ms"], record["token_events"], record["output_chars"]) == (7, 1, chars)


@pytest.mark.parametrize(
    "payload",
    [
        {"content": ""},
        {"content": None},
        {"tool_calls": []},
        {"tool_calls": [{"index": 0, "type": "function", "function": {"arguments": ""}}]},
        {"reasoning": ""},
        {"content": 5},
        {"content": {"text": "x"}},
    ],
)
def test_nothing_generated_is_no_token(payload):
    """Empty, null and ill-typed channels are not events, and such an answer is empty."""
    record = replay("openai-chat", [(7, delta(**payload)), (8, delta("stop")), DONE], "eof", 200, SSE)
    assert (record["outcome"], record["ttft_ms"], record["token_events"]) == ("empty_response", None, 0)
    assert "empty_output" in record["flags"]


TOKEN = (10, delta(content="x"))
FINISH = (20, delta("stop"))


@pytest.mark.parametrize(
    ("reads", "end", "outcome"),
    [
        ([TOKEN, FINISH], "reset", "ok"),
        ([TOKEN, FINISH], "stall", "ok"),
        ([TOKEN, DONE], "eof", "ok"),
        ([TOKEN], "eof", "stream_truncated"),
        ([TOKEN], "reset", "stream_truncated"),
        ([TOKEN], "stall", "read_timeout"),
        ([TOKEN], "total_timeout", "total_timeout"),
        ([TOKEN], "aborted", "aborted"),
        ([(1, b": keep-alive\n\n")], "stall", "ttft_timeout"),
        ([(1, b": keep-alive\n\n")], "eof", "empty_response"),
        ([DONE], "eof", "empty_response"),
        ([(5, delta(role="assistant"))], "eof", "stream_truncated"),
        (
            [(5, event({"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": 3}}))],
            "eof",
            "stream_truncated",
        ),
        ([], "reset", "reset"),
        ([], "short_chunked", "stream_truncated"),
        ([(5, b"<html>hello</html>")], "eof", "bad_response_shape"),
        ([(5, event({"type": "message_stop"}))], "eof", "bad_response_shape"),
        ([(5, b"data: hello\n\n"), DONE], "eof", "bad_response_shape"),
        ([(5, b'data: {"choices": [{"del')], "eof", "stream_truncated"),
        ([TOKEN, (20, delta({"type": "abort", "message": "m", "status_code": 503}))], "eof", "stream_error"),
        ([TOKEN, (20, delta("error"))], "eof", "stream_error"),
        ([(20, delta("abort")), DONE], "eof", "stream_error"),
        ([TOKEN, (20, delta({"type": "length", "length": 1})), DONE], "eof", "ok"),
        ([(5, b"event: error\ndata: boom\n\n")], "eof", "stream_error"),
        ([(5, b'event: error\ndata: {"code": 503, "message": "busy"}\n\n')], "eof", "overloaded"),
        ([(5, b'data: {"error": null, "choices": [{"delta": {"content": "x"}}]}\n\n'), FINISH], "eof", "ok"),
    ],
)
def test_endings(reads, end, outcome):
    """A 200 is a success only with a token and a terminal signal; how it broke has a name."""
    record = replay("openai-chat", reads, {"how": end, "t_ms": 99}, 200, SSE)
    assert record["outcome"] == outcome
    assert (record["error_message"] is None) is (outcome == "ok")


def test_an_event_above_the_limit_stops_the_reading(monkeypatch):
    """Memory is bounded: an event larger than any answer ends the request as a protocol_error."""
    monkeypatch.setattr(parser, "SseDecoder", lambda: SseDecoder(limit=100))
    reads = [TOKEN, (20, b"data: " + b"x" * 200), (30, b"x" * 200), FINISH]
    record = replay("openai-chat", reads, {"how": "open", "t_ms": 9000}, 200, SSE)
    assert (record["outcome"], record["done_ms"], record["reads"]) == ("protocol_error", 20, 2)


def test_flags_of_a_missing_end_marker_and_reason():
    """A finish reason without [DONE], and [DONE] without a reason, are successes that say so."""
    assert replay("openai-chat", [TOKEN, FINISH], "eof", 200, SSE)["flags"] == ["no_done"]
    assert replay("openai-chat", [TOKEN, DONE], "eof", 200, SSE)["flags"] == ["no_finish_reason"]


def test_an_unterminated_last_event_counts_at_the_time_of_its_bytes():
    """The last event without a blank line is taken at the end, with the time of the read that brought it."""
    reads = [TOKEN, (30, delta("stop", content="y").rstrip())]
    record = replay("openai-chat", reads, {"how": "eof", "t_ms": 500}, 200, SSE)
    assert (record["outcome"], record["itl_ms"], record["done_ms"]) == ("ok", [20], 500)


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/json", "application/octet-stream"])
def test_a_stream_under_another_content_type_is_still_read(content_type):
    """Framing is recognised by the bytes where the server names it wrongly."""
    headers = {"content-type": content_type} if content_type else None
    record = replay("openai-chat", [(1, b" \n"), TOKEN, FINISH, DONE], "eof", 200, headers)
    assert (record["outcome"], record["ttft_ms"]) == ("ok", 10)


@pytest.mark.parametrize(
    ("headers", "body", "outcome"),
    [
        (JSON, b'{"error": {"code": 429, "message": "slow"}}', "rate_limited"),
        (JSON, b'{"error": {"code": 429, "message"', "bad_response_shape"),
        (JSON, b'{"choices": [{"message": {"content": ""}, "finish_reason": "length"}]}', "empty_response"),
        (JSON, b'{"status": "ok"}', "bad_response_shape"),
        (JSON, b"", "empty_response"),
        (SSE, b'{"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}', "ok"),
        ({"content-type": "text/html"}, b"<title>Sign in</title>", "bad_response_shape"),
    ],
)
def test_whole_documents(headers, body, outcome):
    """A 200 that is no stream is an answer, an error or not of this protocol; HTML says its title."""
    record = replay("openai-chat", [(4, body)] if body else [], "eof", 200, headers)
    assert record["outcome"] == outcome
    assert record["ttft_ms"] is None
    if b"title" in body:
        assert record["error_message"].endswith("Sign in")


@pytest.mark.parametrize(
    ("stated", "max_tokens", "finish", "flags"),
    [
        (2, 2, "length", ["hit_max_tokens"]),
        (2, 2, "stop", ["hit_max_tokens"]),
        (2, 9, "length", []),
        (2, None, "length", ["hit_max_tokens"]),
        (2, 9, "stop", []),
    ],
)
def test_hit_max_tokens(stated, max_tokens, finish, flags):
    """Reaching the asked limit is told by the count; a `length` below it was the server's own limit."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": stated}})
    reads = [TOKEN, (15, delta(content="y")), (20, delta(finish)), (21, usage), DONE]
    assert replay("openai-chat", reads, "eof", 200, SSE, known={"max_tokens": max_tokens})["flags"] == flags


def test_marks_the_caller_knows_give_net_and_scheduled_ttft():
    """TTFT from the end of the upload and from the plan are told where those marks are known."""
    known = {"sent_ms": 4.0, "scheduled_ms": -30.0, "bos_tokens": 1}
    usage = event({"choices": [], "usage": {"prompt_tokens": 6, "completion_tokens": 1}})
    record = replay("openai-chat", [TOKEN, FINISH, (21, usage), DONE], "eof", 200, SSE, known=known)
    assert (record["ttft_net_ms"], record["ttft_sched_ms"]) == (6, 40)
    assert record["unit_price_ms"] == 2.0
    assert record["prefill_tokens_per_s"] == 600


def test_zero_usage_beside_text_is_no_count():
    """Servers that fill usage with zeros are counted by events."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}})
    record = replay("openai-chat", [TOKEN, FINISH, (21, usage), DONE], "eof", 200, SSE)
    assert (record["prompt_tokens"], record["output_tokens"], record["output_tokens_source"]) == (None, 1, "events")


def test_everything_in_one_read_has_no_decode_speed():
    """Token events of one instant give no TPOT, and say so."""
    record = replay("openai-chat", [(16500, delta(content="x") * 60 + delta("stop"))], "eof", 200, SSE)
    assert (record["tpot_ms"], record["decode_tokens_per_s"]) == (None, None)
    assert "bursty" in record["flags"]


@pytest.mark.parametrize("end", ["gone", {"how": "fault"}])
def test_replay_names_what_it_does_not_know(end):
    """An unknown ending or protocol is the caller's mistake and says what is allowed."""
    with pytest.raises(ValueError, match="end is one of eof"):
        replay("openai-chat", [], end)
    with pytest.raises(ValueError, match="protocol is one of openai-chat"):
        replay("soap", [])


def test_the_raw_head_is_bounded():
    """At most 2 KiB of the body stay for evidence, error bodies up to 64 KiB for their class."""
    reader = PROTOCOLS["openai-chat"].parser("text/html", 500)
    for at in range(100):
        reader.feed(at, b"x" * 4096)
    reader.end(100, "eof")
    assert len(reader.answer.raw_head) == 2048
    assert len(reader.raw) == 65536
    assert reader.answer.bytes_received == 409600

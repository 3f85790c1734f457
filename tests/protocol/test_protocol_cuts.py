"""General rules over all protocols: cuts do not matter, garbage never raises, the short way equals the long one."""

import json
from dataclasses import asdict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loadkit.protocol import PROTOCOLS, parser, replay
from loadkit.record.names import Flag, Outcome
from loadkit.record.record import FIELDS

TYPES = ["text/event-stream", "application/json", "application/x-ndjson", "text/html", None]
ENDS = ["eof", "short_chunked", "reset", "stall", "open", "stopped", "total_timeout"]
TIMED = {"event_times", "event_read", "first_content_at", "finish_at", "usage_at", "reads"}
TIMED |= {"first_byte_at", "last_read_at", "done_at"}

words = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "m", "loadkit", '"', "\\"]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
deltas = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("content", "reasoning_content", "reasoning", "refusal", "tool_calls"), words | json_values),
)
chat = st.fixed_dictionaries(
    {"choices": st.lists(st.fixed_dictionaries({"delta": deltas}, optional={"finish_reason": words | json_values}))},
    optional={
        "id": words,
        "model": words,
        "usage": st.fixed_dictionaries(
            {}, optional={"completion_tokens": st.integers(0, 9), "prompt_tokens": json_values}
        )
        | json_values,
        "timings": json_values,
        "error": json_values,
    },
)
kinds = st.sampled_from(
    ["message", "message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "error"]
)
blocks = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("text", "thinking", "partial_json", "name"), words | json_values)
)
anthropic = st.fixed_dictionaries(
    {"type": kinds},
    optional={"delta": blocks | json_values, "content_block": blocks, "message": json_values, "usage": json_values},
)
ollama = st.fixed_dictionaries(
    {"done": st.booleans()},
    optional={
        "message": st.fixed_dictionaries({"content": words}) | json_values,
        "response": words | json_values,
        "eval_count": st.integers(0, 9) | json_values,
        "eval_duration": json_values,
    },
)
events = st.one_of(chat, anthropic, ollama, json_values)
frames = st.builds(
    lambda head, doc, escaped, end: head + json.dumps(doc, ensure_ascii=escaped).encode("utf-8", "replace") + end,
    st.sampled_from([b"data: ", b"data:", b"", b"event: error\ndata: ", b"event: ping\ndata: "]),
    events,
    st.booleans(),
    st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n", b"\r\r", b""]),
)
noise = st.sampled_from(
    [b": ping\n\n", b"data: [DONE]\n\n", b"<html>", b"\n", b"\r", b"data:\n\n", b"\xef\xbb\xbf", b"[" * 9]
)
streams = st.lists(frames | noise | st.binary(max_size=8), max_size=8).map(b"".join)


def cut_into(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The stream cut at some of its bytes."""
    places = sorted(cut % (len(stream) + 1) for cut in cuts)
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


def facts(protocol: str, content_type: str | None, reads: list[bytes]) -> dict:
    """All a parser knows of some reads, but times and indexes of reads."""
    reader = PROTOCOLS[protocol].parser(content_type, 200)
    for at, data in enumerate(reads):
        reader.feed(at, data)
    reader.end(len(reads), "eof")
    told = asdict(reader.answer)
    events_seen = len(told["event_times"])
    return {key: value for key, value in told.items() if key not in TIMED} | {
        "events": events_seen,
        "done": reader.done,
    }


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(list(PROTOCOLS)), st.sampled_from(TYPES), streams, st.lists(st.integers(0, 10**6), max_size=8))
def test_the_answer_does_not_depend_on_the_cut(protocol, content_type, stream, cuts):
    """Any bytes, cut into any reads, give the same answer apart from times."""
    assert facts(protocol, content_type, cut_into(stream, cuts)) == facts(protocol, content_type, [stream])


def test_every_field_stream_may_be_cut_at_every_byte(case, reads_of):
    """The streams of the field, one byte per read, give the answer they give in one read."""
    stream = b"".join(data for _, data in reads_of(case))
    kind = case["headers"].get("content-type")
    one_by_one = [stream[i : i + 1] for i in range(len(stream))]
    assert facts("openai-chat", kind, one_by_one) == facts("openai-chat", kind, [stream])


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(list(PROTOCOLS)),
    st.sampled_from(TYPES),
    st.sampled_from([200, 200, 200, 400, 429, 503, 201, None]),
    streams,
    st.sampled_from(ENDS),
)
@example("openai-chat", "text/event-stream", 200, b"data: " + b"[" * 100_000 + b"\n\n", "eof")
@example("ollama", None, 200, b'{"eval_count": 1e999, "done": true}\n', "eof")
@example(
    "openai-chat",
    "application/json",
    400,
    b'{"error": {"message": "maximum context length is ' + b"9" * 5000 + b'"}}',
    "eof",
)
def test_garbage_never_raises_and_ends_in_a_closed_outcome(protocol, content_type, status, stream, end):
    """Whatever the server sends, the record has all keys, a known outcome, known flags, and is valid JSON."""
    headers = {"content-type": content_type} if content_type else {}
    record = replay(protocol, [(1, stream)] if status else [], {"how": end, "t_ms": 2}, status, headers)
    assert tuple(record) == FIELDS
    assert Outcome(record["outcome"]) is not Outcome.OK or (status == 200 and record["token_events"] >= 1)
    assert all(Flag(flag) for flag in record["flags"])
    assert len(record["error_message"] or "") <= 800
    json.dumps(record, allow_nan=False, ensure_ascii=False).encode()


@given(
    st.lists(
        st.tuples(st.sampled_from([b"", b" "]), st.binary(min_size=1, max_size=6) | words.map(str.encode)), max_size=9
    )
)
@example([(b"", b"m"), (b"", b"abc"), (b"", b'a","x":"b'), (b"", b"\x01"), (b"", b"\xff"), (b"", "é".encode())])
def test_the_short_way_equals_the_long_one(texts):
    """Chunks that match the learned template are counted as the JSON parser would have counted them."""
    frame = b'data: {"id":"m","model":"m",%b"choices":[{"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
    stream = [frame % (space, text.replace(b"\n", b"").replace(b"\r", b"")) for space, text in texts]
    taught = facts("openai-chat", "text/event-stream", stream)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "_MAX_LESSONS", 0)
        assert taught == facts("openai-chat", "text/event-stream", stream)


@pytest.mark.parametrize(
    ("protocol", "first", "second"),
    [
        ("openai-chat", {"choices": [{"delta": {"content": "a"}}]}, {"choices": [{"delta": {"content": "bc"}}]}),
        ("openai-chat", {"choices": [{"delta": {"reasoning": "a"}}]}, {"choices": [{"delta": {"reasoning": "bc"}}]}),
        ("openai-completions", {"choices": [{"text": "a"}]}, {"choices": [{"text": "bc"}]}),
        (
            "anthropic",
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "bc"}},
        ),
    ],
)
def test_plain_chunks_need_no_json_parser(protocol, first, second, monkeypatch):
    """After the first plain chunk the next one that differs in its text alone is read without json.loads."""
    reader = PROTOCOLS[protocol].parser("text/event-stream", 200)
    reader.feed(1, b"data: " + json.dumps(first).encode() + b"\n\n")
    monkeypatch.setattr(parser.json, "loads", lambda _: pytest.fail("json.loads was called"))
    reader.feed(2, b"data: " + json.dumps(second).encode() + b"\n\n")
    assert reader.answer.content_chars + reader.answer.reasoning_chars == 3
    assert list(reader.answer.event_times) == [1, 2]


def whole_reads(style, texts):
    """Reads of one event each in a style: (before, line end), with enough of them first to fill the raw head."""
    before, end = style
    chunk = '{"id":"c","choices":[{"delta":{"content":"%s"}}]}'
    plain = [before + (chunk % "m%d" % n).encode() + end for n in range(40)]
    return [*plain, *(before + (chunk % text).encode("utf-8", "replace") + end for text in texts)]


styles = st.sampled_from(
    [
        (b"data: ", b"\n\n"),
        (b"data:", b"\r\n\r\n"),
        (b"event: message\ndata: ", b"\n\n"),
        (b": ping\n\ndata: ", b"\n\n"),
        (b"data: ", b"\r\r"),
        (b"data: ", b"\n\nid: 7\n"),
        (b"data: ", b"\n\ndata: "),
        (b"", b"\n"),
    ]
)
odd_reads = st.one_of(
    st.sampled_from([b"\n", b"\r\n", b"data: [DONE]\n\n", b"event: error\n", b": x", b"data: {}\n\n", b"data: 1\n\n"]),
    st.binary(max_size=6),
)


@settings(deadline=None)
@given(
    styles, st.lists(words, max_size=6), st.lists(st.tuples(st.integers(41, 60), odd_reads), max_size=3), st.booleans()
)
@example((b"data: ", b"\n\n"), ["a\nb", "\\", '"', "é", "x" * 9], [], False)
@example((b"data: ", b"\n\n"), ["a", "b", "c"], [(42, b"event: ping\n")], False)
@example((b"data: ", b"\r\r"), ["a", "b"], [(41, b"\n")], False)
def test_whole_reads_are_understood_as_their_events_are(style, texts, odd, joined):
    """Reads that are one plain event are counted without the decoder, exactly as the decoder would have had it."""
    reads = whole_reads(style, texts)
    for place, data in odd:
        reads.insert(min(place, len(reads)), data)
    if joined:
        reads[-2:] = [b"".join(reads[-2:])]
    content_type = "text/event-stream" if style[0] else "application/x-ndjson"
    told = []
    for short in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not short:
                patch.setattr(parser, "framed", lambda *_: None)
            reader = PROTOCOLS["openai-chat"].parser(content_type, 200)
            for at, data in enumerate(reads):
                reader.feed(at, data)
            reader.end(len(reads), "eof")
            told.append((asdict(reader.answer), reader.done, reader.raw))
    assert told[0] == told[1]


def test_whole_reads_need_no_decoder(monkeypatch):
    """Once the first 2 KiB have passed, a read that differs from an earlier one in its text only is not decoded."""
    reads = whole_reads((b"data: ", b"\r\n\r\n"), ["one", "two"])
    reader = PROTOCOLS["openai-chat"].parser("text/event-stream", 200)
    for at, data in enumerate(reads[:-2]):
        reader.feed(at, data)
    monkeypatch.setattr(reader._decoder, "feed", lambda _: pytest.fail("the decoder was asked"))
    assert [reader.feed(50, data) for data in reads[-2:]] == [True, True]
    assert (list(reader.answer.event_times[-2:]), reader.answer.reads) == ([50, 50], 42)

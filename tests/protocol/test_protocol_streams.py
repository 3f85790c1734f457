"""Streams and error answers seen in the field, with the right record for each."""

from typing import Any

import pytest

from loadkit.protocol import PROTOCOLS, classify, replay

# How the names of streams.json read as record fields.
FIELDS = {
    "ttft_ms": "ttft_ms",
    "ttft_content_ms": "ttft_content_ms",
    "tpot_ms": "tpot_ms",
    "itl_chunk_ms": "itl_ms",
    "output_tokens": "output_tokens",
    "output_tokens_source": "output_tokens_source",
    "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cached_tokens",
    "reasoning_tokens": "reasoning_tokens",
    "finish_reason": "finish_reason",
    "n_token_events": "token_events",
    "token_events": "token_events",
    "limit_tokens": "limit_tokens",
    "requested_tokens": "requested_tokens",
    "e2e_ms": "e2e_ms",
}
# What a case says about its request.
REQUEST = {"max_tokens": "max_tokens", "intended_prompt_tokens": "target_tokens"}
# Where the source defines a value otherwise than we do, our definition stands.
OUTCOMES = {
    # An error after a token is a stream_error whatever its class; before a token it is classified.
    "P31-a Error object inside an HTTP 200 stream": "stream_error",
    # A 404 that names the model has an outcome of its own.
    "P47-f 503/529: warming up, shedding, or in-stream": "model_not_found",
}
# Its end-to-end time ends at [DONE]; ours at the last token, and the end of the stream is `done_ms`.
END_TO_END = {"P30-a Socket left open after [DONE]; odd endings": "done_ms"}


@pytest.fixture
def record(case: dict[str, Any], reads_of) -> dict[str, Any]:
    """The record of a case."""
    request = case.get("request", {})
    known = {REQUEST[key]: value for key, value in request.items() if key in REQUEST}
    end, ignore_eos = case.get("end"), request.get("ignore_eos", False)
    reads = reads_of(case)
    options = {"known": known, "ignore_eos": ignore_eos, "now": case.get("now")}
    return replay("openai-chat", reads, end, case["status"], case["headers"], **options)


@pytest.fixture
def answer(case: dict[str, Any], reads_of):
    """What the parser itself holds of a case."""
    parser = PROTOCOLS["openai-chat"].parser(case["headers"].get("content-type"), case["status"])
    at = 0
    for ms, data in reads_of(case):
        at = round(ms * 1e6)
        parser.feed(at, data)
    parser.end(at, "eof")
    return parser.answer


def test_record_of_every_case(case, record):
    """Each number of the right answer is the record's, under the name the tables above give it."""
    expect = case["expect"]
    for name, value in expect.items():
        field = END_TO_END.get(case["name"], "e2e_ms") if name == "e2e_ms" else FIELDS.get(name)
        if field is not None:
            assert record[field] == (pytest.approx(value) if isinstance(value, float) else value), name
    if "flag" in expect:
        assert expect["flag"] in record["flags"]


def test_outcome_of_every_case(case, record):
    """Success and failure, and the class of a failure, are as the case says."""
    expect = case["expect"]
    if case["name"] in OUTCOMES:
        assert record["outcome"] == OUTCOMES[case["name"]]
    elif "error_class" in expect or "any_of_error_class" in expect:
        assert record["outcome"] == (expect.get("error_class") or expect["any_of_error_class"][0])
    elif expect.get("outcome") == "error":
        assert record["outcome"] != "ok"
    elif "outcome" in expect:
        assert record["outcome"] == expect["outcome"]
    if "counts_in_latency" in expect:
        assert (record["outcome"] == "ok") is expect["counts_in_latency"]


def test_text_and_framing_of_every_case(case, answer):
    """Channels have the length of the right text; malformed events and the end marker are counted as they are."""
    expect = case["expect"]
    if "content" in expect:
        assert answer.content_chars == len(expect["content"])
    if "reasoning" in expect:
        assert answer.reasoning_chars == len(expect["reasoning"])
    assert answer.malformed == expect.get("malformed", 0)
    if "saw_done" in expect:
        assert answer.saw_done is expect["saw_done"]


def test_retry_advice_of_every_case(case, reads_of, answer):
    """Whether to retry, when, and with what change."""
    expect = case["expect"]
    if "body" in case and case["status"] != 200:
        failure = classify(case["status"], case["headers"], reads_of(case)[0][1], now=case.get("now"))
    else:
        failure = answer.failure
    for name in ("retryable", "retry_after_s", "hint"):
        if name in expect:
            assert getattr(failure, name) == expect[name], name


def test_every_expectation_is_looked_at(case):
    """No name in a right answer goes unread by the tests above."""
    others = {"outcome", "error_class", "any_of_error_class", "counts_in_latency", "flag", "content", "reasoning"}
    others |= {"malformed", "saw_done", "retryable", "retry_after_s", "hint"}
    assert set(case["expect"]) <= others | set(FIELDS)

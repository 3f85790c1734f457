"""Streams and error answers seen in the field, with the right record for each. cases.py maps their names to ours."""

from typing import Any

import pytest

from loadkit.protocol import PROTOCOLS, classify, replay


@pytest.fixture
def record(case: dict[str, Any], cases, reads_of) -> dict[str, Any]:
    """The record of a case."""
    options = {"known": cases.known_of(case), "now": case.get("now")}
    options["ignore_eos"] = case.get("request", {}).get("ignore_eos", False)
    return replay("openai-chat", reads_of(case), case.get("end"), case["status"], case["headers"], **options)


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


def test_record_of_every_case(case, cases, record):
    """Each number of the right answer is the record's, under the name the tables give it."""
    expect = case["expect"]
    for name, value in expect.items():
        field = cases.field_of(case, name)
        if field is not None:
            assert record[field] == (pytest.approx(value) if isinstance(value, float) else value), name
    if "flag" in expect:
        assert expect["flag"] in record["flags"]


def test_outcome_of_every_case(case, cases, record):
    """Success and failure, and the class of a failure, are as the case says."""
    assert cases.right_outcome(case, record["outcome"])


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


def test_every_expectation_is_looked_at(case, cases):
    """No name in a right answer goes unread by the tests above."""
    assert {name for name in case["expect"] if cases.field_of(case, name) is None} <= cases.OTHERS

"""Error answers of many servers to outcomes, and Retry-After in its forms. None of these are in streams.json."""

import json
from typing import Any

import pytest

from loadkit.protocol import classify, retry_after_s

NOON = 1_764_504_000.0  # Sun, 30 Nov 2025 12:00:00 GMT


def error(message: str, **more: Any) -> dict[str, Any]:
    """The nested form most servers use."""
    return {"error": {"message": message, **more}}


CONTEXT = [
    (400, error("too many", code="context_length_exceeded"), None, None),
    (
        400,
        error(
            "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input"
            " tokens, which exceeds this limit even without any output tokens. (parameter=input_tokens, value=4097)",
            type="BadRequestError",
            param="input_tokens",
            code=400,
        ),
        4096,
        4097,
    ),
    (
        400,
        error(
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096"
            " tokens and your request has 10 input tokens (5000 > 4096 - 10).",
            code=400,
        ),
        4096,
        5010,
    ),
    (
        400,
        {
            "object": "error",
            "message": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            "code": 400,
        },
        4096,
        5000,
    ),
    (
        400,
        error(
            "Requested token count exceeds the model's maximum context length of 40960 tokens. You requested a total of"
            " 41000 tokens: 40000 tokens from the input messages and 1000 tokens for the completion.",
        ),
        40960,
        41000,
    ),
    (
        400,
        error(
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 140001 tokens"
            " (140000 of text input, 1 in the output).",
            code=400,
            metadata={"provider_name": None},
        ),
        131072,
        140001,
    ),
    (
        400,
        error(
            "Provider returned error",
            code=400,
            metadata={"raw": '{"error":{"message":"prompt is too long: 9000 tokens > 8000 maximum"}}'},
        ),
        8000,
        9000,
    ),
    (
        422,
        {
            "error": "Input validation error: `inputs` must have less than 1024 tokens. Given: 2048",
            "error_type": "validation",
        },
        1024,
        2048,
    ),
    (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs`"
            " tokens and 512 `max_new_tokens`",
            "error_type": "validation",
        },
        8193,
        9512,
    ),
    (
        400,
        error(
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            code=400,
            status="INVALID_ARGUMENT",
        ),
        1048576,
        1200000,
    ),
    (
        400,
        error(
            "Trying to keep the first 5000 tokens when context overflows. However, the model is loaded with context"
            " length of only 4096 tokens"
        ),
        4096,
        5000,
    ),
    (400, {"error": "the input length exceeds the context length"}, None, None),
    (
        400,
        {
            "message": "Prompt contains 40,000 tokens and 0 draft tokens, too large for model with 32,768 maximum"
            " context length",
            "object": "error",
        },
        32768,
        40000,
    ),
    (400, {"detail": "Input is too long for requested model."}, None, None),
    (
        400,
        error(
            "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context length is"
            " only 131072 tokens, resulting in a maximum input length of 99072 tokens. (parameter=input_tokens)",
            type="BadRequestError",
            param="input_tokens",
            code=400,
        ),
        131072,
        131073,
    ),
    (
        400,
        error(
            'litellm.BadRequestError: OpenAIException - {"error":{"message":"You passed 98305 input tokens and'
            " requested 32768 output tokens. However, the model's context length is only 131072 tokens\"}}",
            code="400",
        ),
        131072,
        131073,
    ),
    (
        400,
        error(
            "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens and your"
            " prompt contains 4000 input tokens, for a total of 4100 tokens.",
            code=400,
        ),
        4096,
        4100,
    ),
    (
        400,
        {"error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", "code": "x"},
        131072,
        537812,
    ),
    (400, error("Prompt length (1025) exceeds maximum input length (1024)."), 1024, 1025),
    (
        400,
        {"message": "too many tokens: the total number of tokens in the prompt cannot exceed 4081 - received 4292."},
        4081,
        None,
    ),
    (400, error("Your request exceeded model token limit: 8192", type="invalid_request_error"), 8192, None),
    (
        400,
        error("x", type="exceed_context_size_error", n_prompt_tokens=3031, n_ctx=512),
        512,
        3031,
    ),
]


@pytest.mark.parametrize(("status", "body", "limit", "requested"), CONTEXT)
def test_context_overflow_in_many_spellings(status, body, limit, requested):
    """Overflow is told from other 400s, with the numbers the server names, and is never retried."""
    failure = classify(status, {}, json.dumps(body).encode())
    assert failure.outcome == "context_length_exceeded"
    assert (failure.limit_tokens, failure.requested_tokens) == (limit, requested)
    assert failure.retryable is False


OTHERS = [
    (
        400,
        error("max_tokens is too large: 200000. This model supports at most 16384 completion tokens."),
        "bad_request",
    ),
    (400, error("context must be an object", param="context"), "bad_request"),
    (400, error("Missing required parameter: 'messages'.", code="missing_required_parameter"), "bad_request"),
    (500, error("maximum context length"), "server_error"),
    (429, error("maximum context length per minute"), "rate_limited"),
    (400, error("Your credit balance is too low to access the API", type="invalid_request_error"), "quota_exhausted"),
    (402, error("Insufficient credits", code=402), "quota_exhausted"),
    (403, error("no", type="insufficient_quota"), "quota_exhausted"),
    (429, error("insufficient quota for concurrent requests", code="rate_limit_exceeded"), "rate_limited"),
    (429, error("You exceeded your current quota", code=429, status="RESOURCE_EXHAUSTED"), "rate_limited"),
    (429, error("Number of requests has exceeded your rate limit", type="rate_limit_error"), "rate_limited"),
    (429, {"error": "Model is overloaded", "error_type": "overloaded"}, "overloaded"),
    (429, {}, "rate_limited"),
    (401, {"detail": "Unauthorized"}, "auth"),
    (401, {"statusCode": 401, "message": "Access denied due to invalid subscription key"}, "auth"),
    (403, error("Country not supported", type="request_forbidden"), "forbidden"),
    (404, error("The API deployment for this resource does not exist.", code="DeploymentNotFound"), "model_not_found"),
    (404, {"error": "model 'x:1b' not found"}, "model_not_found"),
    (404, {"type": "error", "error": {"type": "not_found_error", "message": "model: claude-x"}}, "model_not_found"),
    (404, error("Invalid URL (POST /v1/v1/chat)"), "not_found"),
    (404, {"detail": "Not Found"}, "not_found"),
    (400, error("x/y is not a valid model ID", code=400), "model_not_found"),
    (405, {"detail": "Method Not Allowed"}, "http_other"),
    (302, {}, "http_other"),
    (413, error("Request too large", type="tokens", code="rate_limit_exceeded"), "rate_limited"),
    (400, error("string too long", code="string_above_max_length"), "payload_too_large"),
    (422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}, "bad_request"),
    (424, {"error": "Request failed during generation", "error_type": "generation"}, "server_error"),
    (500, error("Internal", type="overloaded_error"), "overloaded"),
    (503, {"error": "server busy, please try again.  maximum pending requests exceeded"}, "overloaded"),
    (502, error("Provider returned error", code=502), "bad_gateway"),
    (524, {}, "gateway_timeout"),
    (521, {}, "bad_gateway"),
    (507, {}, "server_error"),
    (400, [{"error": {"code": 400, "message": "API key not valid"}}], "bad_request"),
]


@pytest.mark.parametrize(("status", "body", "outcome"), OTHERS)
def test_everything_else_keeps_its_own_class(status, body, outcome):
    """Code before type before status; prose decides only where a status leaves it open."""
    failure = classify(status, {}, json.dumps(body).encode())
    assert failure.outcome == outcome
    assert failure.retryable is (outcome in ("rate_limited", "overloaded"))


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (error("busy", type="Service Unavailable", code=503), "overloaded"),
        (error("busy", code="429"), "rate_limited"),
        ({"type": "error", "error": {"type": "api_error", "message": "x"}}, "server_error"),
        ({"object": "error", "message": "maximum context length is 9 tokens", "code": 400}, "context_length_exceeded"),
        ({"error": "out of memory"}, "stream_error"),
        ({"x_groq": {"error": "over_capacity"}}, "overloaded"),
        ({"choices": [{"error": {"code": 502, "message": "x"}, "finish_reason": "error"}]}, "bad_gateway"),
        ("something broke", "stream_error"),
    ],
)
def test_in_band_errors_are_classified_by_what_they_hold(body, outcome):
    """Inside a 200 the error's own code stands for the status; without one its type; else it is a stream_error."""
    assert classify(200, {}, json.dumps(body).encode(), in_band=True).outcome == outcome


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html><head><title>502 Bad&nbsp;Gateway</title></head><body>nginx</body></html>", "502 Bad Gateway"),
        (b"<h1>Bad</h1>\n gateway", "Bad gateway"),
        (b"upstream connect error", "upstream connect error"),
        (b"", None),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'event: error\ndata: {"error": {"message": "framed"}}\n\n', "framed"),
        (b'{"message": "flat"}', "flat"),
        (b'{"detail": [{"loc": ["body"], "msg": "Field required"}]}', "Field required"),
        (b'{"detail": ' + b"[" * 900 + b"]" * 900 + b"}", None),
        (b"x" * 5000, "x" * 800),
        (b'{"error": {"message": "\\ud800"}}', "?"),
    ],
)
def test_message_of_any_body(body, message):
    """The message is readable text of at most 800 characters, whatever a proxy answered."""
    failure = classify(502, {}, body)
    assert failure.outcome == "bad_gateway"
    assert failure.message == message


@pytest.mark.parametrize(("asked", "allowed", "retryable"), [(12_000, 10_000, False), (2_000, 10_000, True)])
def test_a_request_above_a_whole_allowance_is_final(asked, allowed, retryable):
    """Waiting helps only when one request fits into the allowance."""
    text = f"Request too large on tokens per min (TPM): Limit {allowed}, Used 9000, Requested {asked}."
    failure = classify(429, {}, json.dumps(error(text, code="rate_limit_exceeded")).encode())
    assert failure.outcome == "rate_limited"
    assert failure.retryable is retryable
    assert failure.limit_tokens is None


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        (
            error("Unsupported parameter: 'max_tokens' is not supported.", code="unsupported_parameter"),
            "max_completion_tokens",
        ),
        (
            error("Unrecognized request argument supplied: max_completion_tokens", param="max_completion_tokens"),
            "max_tokens",
        ),
        (
            error("Unsupported value: 'temperature' does not support 0", param="temperature", code="unsupported_value"),
            "leave out temperature",
        ),
        (error("messages is empty", param="messages"), None),
    ],
)
def test_hint_names_the_field_to_change(body, hint):
    """A refused parameter says what to send instead; other refusals give no hint."""
    assert classify(400, {}, json.dumps(body).encode()).hint == hint


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        (None, None),
        ({"retry-after": "7"}, 7.0),
        ({"RETRY-AFTER": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ([("Retry-After", "3"), ("Retry-After", "9")], 3.0),
        ({"retry-after-ms": "0"}, 0.0),
        ({"retry-after-ms": "junk", "retry-after": "2"}, 2.0),
        ({"retry-after-ms": "-5", "retry-after": "2"}, 2.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "5s"}, None),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Sun, 30 Nov 2025 12:01:00 GMT"}, 60.0),
        ({"retry-after": "Sunday, 30-Nov-25 12:01:00 GMT"}, 60.0),
        ({"retry-after": "Sun Nov 30 12:01:00 2025"}, 60.0),
        ({"retry-after": "Sun, 30 Nov 2025 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 99 Nov 2025 12:01:00 GMT"}, None),
        ({"retry-after": "Sun, 30 Nov 2025 12:01:00 GMT", "date": "Sun, 30 Nov 2025 12:00:50 GMT"}, 10.0),
    ],
)
def test_retry_after_in_all_its_forms(headers, seconds):
    """ms before seconds before dates; the answer's own Date before our clock; unreadable is None, never a wait."""
    assert retry_after_s(headers, now=NOON) == seconds


def test_a_date_without_any_clock_is_unknown():
    """Without `now` and without a Date header a date says nothing."""
    assert retry_after_s({"retry-after": "Sun, 30 Nov 2025 12:01:00 GMT"}) is None

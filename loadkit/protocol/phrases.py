"""The words servers use for their errors, as data: codes and types first, prose only where a status leaves it open."""

import re

from loadkit.record.names import Outcome

BY_CODE: dict[str, Outcome] = {
    # the prompt, or prompt + max_tokens, is above the window
    "context_length_exceeded": Outcome.CONTEXT_LENGTH_EXCEEDED,
    "context_window_exceeded": Outcome.CONTEXT_LENGTH_EXCEEDED,
    "contextwindowexceedederror": Outcome.CONTEXT_LENGTH_EXCEEDED,
    "exceed_context_size_error": Outcome.CONTEXT_LENGTH_EXCEEDED,
    "model_max_prompt_tokens_exceeded": Outcome.CONTEXT_LENGTH_EXCEEDED,
    "prompt_too_long": Outcome.CONTEXT_LENGTH_EXCEEDED,
    # the body is above a gateway's limit
    "request_too_large": Outcome.PAYLOAD_TOO_LARGE,
    "string_above_max_length": Outcome.PAYLOAD_TOO_LARGE,
    # money or allowance is gone: waiting does not help
    "insufficient_quota": Outcome.QUOTA_EXHAUSTED,
    "insufficient_balance": Outcome.QUOTA_EXHAUSTED,
    "insufficient_credits": Outcome.QUOTA_EXHAUSTED,
    "billing_hard_limit_reached": Outcome.QUOTA_EXHAUSTED,
    "billing_not_active": Outcome.QUOTA_EXHAUSTED,
    "billing_error": Outcome.QUOTA_EXHAUSTED,
    "rate_limit_exceeded": Outcome.RATE_LIMITED,
    "rate_limit_error": Outcome.RATE_LIMITED,
    "resource_exhausted": Outcome.RATE_LIMITED,
    "overloaded_error": Outcome.OVERLOADED,
    "overloaded": Outcome.OVERLOADED,
    "over_capacity": Outcome.OVERLOADED,
    "engine_overloaded": Outcome.OVERLOADED,
    "invalid_api_key": Outcome.AUTH,
    "authentication_error": Outcome.AUTH,
    "model_not_found": Outcome.MODEL_NOT_FOUND,
    "deploymentnotfound": Outcome.MODEL_NOT_FOUND,
}
"""Lower-cased `code`, then `type`, that say by themselves what happened, whatever the status."""

BY_GENERIC_TYPE: dict[str, Outcome] = {
    "invalid_request_error": Outcome.BAD_REQUEST,
    "badrequesterror": Outcome.BAD_REQUEST,
    "bad_request": Outcome.BAD_REQUEST,
    "validation": Outcome.BAD_REQUEST,
    "permission_error": Outcome.FORBIDDEN,
    "not_found_error": Outcome.NOT_FOUND,
    "notfounderror": Outcome.NOT_FOUND,
    "unavailable_error": Outcome.OVERLOADED,
    "service_unavailable": Outcome.OVERLOADED,
    "service unavailable": Outcome.OVERLOADED,
    "timeout_error": Outcome.GATEWAY_TIMEOUT,
    "api_error": Outcome.SERVER_ERROR,
    "server_error": Outcome.SERVER_ERROR,
    "internal_error": Outcome.SERVER_ERROR,
    "internal_server_error": Outcome.SERVER_ERROR,
    "internalservererror": Outcome.SERVER_ERROR,
    "generation": Outcome.SERVER_ERROR,
}
"""Types too broad to overrule a status; they decide only for an in-band error that names none."""

BY_STATUS: dict[int, Outcome] = {
    400: Outcome.BAD_REQUEST,
    401: Outcome.AUTH,
    402: Outcome.QUOTA_EXHAUSTED,
    403: Outcome.FORBIDDEN,
    404: Outcome.NOT_FOUND,
    408: Outcome.GATEWAY_TIMEOUT,
    413: Outcome.PAYLOAD_TOO_LARGE,
    422: Outcome.BAD_REQUEST,
    424: Outcome.SERVER_ERROR,  # TGI: the request failed during generation
    429: Outcome.RATE_LIMITED,
    502: Outcome.BAD_GATEWAY,
    503: Outcome.OVERLOADED,
    504: Outcome.GATEWAY_TIMEOUT,
    520: Outcome.BAD_GATEWAY,  # 520 to 524: Cloudflare in front of the server
    521: Outcome.BAD_GATEWAY,
    522: Outcome.GATEWAY_TIMEOUT,
    523: Outcome.BAD_GATEWAY,
    524: Outcome.GATEWAY_TIMEOUT,
    529: Outcome.OVERLOADED,
}

CONTEXT = re.compile(
    "|".join(
        (
            r"maximum (context|prompt) length",
            r"context length is only",
            r"maximum model length",
            r"context[ _]length[ _]exceeded",
            r"context[ _]window[ _]exceeded",
            r"exceed\w* (the |this |its |model's )*(available |maximum |max )*context",
            r"(longer|larger|greater) than the (model's |maximum |available )*context",
            r"too (long|large) for (the |this )?(requested )?(model|context)",
            r"context length of only",
            r"prompt (is|was) too long",
            r"(prompt|input)( length)?( \(\d+\))? exceeds (the )?max(imum)? (length|input)",
            r"tokens in the prompt cannot exceed",
            r"exceeds the maximum number of (input )?tokens",
            r"exceeded model token limit",
            r"`?inputs`? must have less than \d+ tokens",
            r"`?inputs`? tokens \+ `?max_new_tokens`? must be",
            r"exceed\w* (the )?max_(seq|input|model)_len",
            r"exceed\w* (the )?max_num_tokens",
            r"range of input length should be",
        )
    )
)
"""Prose, lower-cased, that means the context window; read only where the status is 400, 413, 422 or not known."""

QUOTA = re.compile(r"credit balance is too low|insufficient (account )?balance|insufficient credits")
MODEL = re.compile(
    r"^model:|model\b.{0,120}?\b(not found|does not exist|doesn't exist)|not a valid model|unknown model"
)
UNSUPPORTED = re.compile(
    r"unsupported (parameter|value)|unrecognized|unknown (field|parameter)|extra (inputs|fields)|not permitted"
)

_N = r"(\d[\d,_]{0,18})"  # bounded: a page of digits must not cost quadratic time

LIMIT = tuple(
    re.compile(pattern)
    for pattern in (
        rf"maximum (?:context|prompt) length (?:is|of) {_N}",
        rf"maximum context length \(?{_N}",
        rf"context (?:length|size|window)(?: is| of| only|:)* *\(?{_N}",
        rf"maximum model length (?:is|of) {_N}",
        rf"{_N} maximum context length",
        rf"> ?{_N}",
        rf"(?:token limit|tokens allowed)[: (]+{_N}",
        rf"less than {_N} tokens",
        rf"must be <= ?{_N}",
        rf"max_(?:seq_len|input_len|model_len|num_tokens)[= (]+{_N}",
        rf"maximum input length \({_N}",
        rf"prompt cannot exceed {_N}",
        rf"input length should be \[\d+, ?{_N}",
    )
)
"""Where the refusal names the window; the first that matches is taken."""

REQUESTED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_N} \+ {_N} >",
        rf"total of {_N} tokens",
        rf"passed {_N} input tokens and requested {_N} output tokens",
        rf"too large: {_N}.{{0,200}}?has {_N} input tokens",
        rf"given: {_N} `?inputs`? tokens and {_N}",
        rf"requested (?:a total of |about )?{_N} tokens",
        rf"(?:request|input|prompt) \({_N} tokens",
        rf"too long: {_N} tokens",
        rf"(?:has|have|contains?)(?: at least| about)? {_N} (?:input |prompt )?tokens",
        rf"\(length {_N}\)",
        rf"(?:input|prompt) length \(?{_N}",
        rf"token count[: (]+{_N}",
        rf"keep the first {_N} tokens",
        rf"\bgot {_N}",
        rf"given: {_N}",
    )
)
"""Where the refusal names the length asked for; several numbers in one pattern are added up."""

ALLOWANCE = re.compile(rf"limit[: ]+{_N}.{{0,200}}?requested[: ]+{_N}", re.DOTALL)
"""A per-minute allowance and what one request asks of it."""


def number(text: str) -> int:
    """A number as servers print it, thousands separated or not."""
    return int(text.replace(",", "").replace("_", ""))

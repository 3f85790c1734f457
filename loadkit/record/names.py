"""The closed sets of names a record may hold. They are also the label values of the live metrics."""

from enum import StrEnum


class Phase(StrEnum):
    """Where in a visit a request was started."""

    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"


class Outcome(StrEnum):
    """How a request ended. OK means: HTTP 200, at least one token event, and a terminal signal."""

    OK = "ok"
    AUTH = "auth"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    MODEL_NOT_FOUND = "model_not_found"
    BAD_REQUEST = "bad_request"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    RATE_LIMITED = "rate_limited"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    BAD_GATEWAY = "bad_gateway"
    GATEWAY_TIMEOUT = "gateway_timeout"
    HTTP_OTHER = "http_other"
    CONNECT_ERROR = "connect_error"
    DNS_ERROR = "dns_error"
    TLS_ERROR = "tls_error"
    PROXY_ERROR = "proxy_error"
    CONNECT_TIMEOUT = "connect_timeout"
    POOL_TIMEOUT = "pool_timeout"
    WRITE_TIMEOUT = "write_timeout"
    TTFT_TIMEOUT = "ttft_timeout"  # nothing generated in time; keep-alives do not count
    READ_TIMEOUT = "read_timeout"  # silence after the first token
    TOTAL_TIMEOUT = "total_timeout"
    RESET = "reset"
    STREAM_TRUNCATED = "stream_truncated"
    STREAM_ERROR = "stream_error"
    EMPTY_RESPONSE = "empty_response"
    BAD_RESPONSE_SHAPE = "bad_response_shape"
    PROTOCOL_ERROR = "protocol_error"
    ABORTED = "aborted"  # we stopped it


class Flag(StrEnum):
    """Something a reader of a record must know before using its numbers."""

    TOKENS_PER_EVENT_GT_1 = "tokens_per_event_gt_1"
    HIDDEN_REASONING = "hidden_reasoning"
    NOT_STREAMED = "not_streamed"
    BURSTY = "bursty"
    EVENTS_ARE_CHARACTERS = "events_are_characters"
    NO_DONE = "no_done"
    NO_FINISH_REASON = "no_finish_reason"
    EMPTY_OUTPUT = "empty_output"
    SHORT_OUTPUT = "short_output"
    PROMPT_TRUNCATED = "prompt_truncated"
    PREFIX_CACHE_HIT = "prefix_cache_hit"
    HIT_MAX_TOKENS = "hit_max_tokens"
    CLIENT_SATURATED = "client_saturated"
    TOO_FEW_ROUNDS = "too_few_rounds"
    LOW_N = "low_n"
    MODEL_DRIFT = "model_drift"
    COLD = "cold"
    THROTTLED = "throttled"
    UNLOCKED = "unlocked"
    DECODE_DROP = "decode_drop"


class ExitCode:
    """How a run ended, for pipelines; the first that applies in the order of `CHECKED`. 1 is left for bugs."""

    COMPLETE = 0
    BUG = 1
    USAGE = 2  # usage or configuration, a missing key too
    INCOMPLETE = 3  # budget, lost worker, invalid cell
    SLO_FAILED = 4
    TARGET = 5  # unreachable, unauthorised, wrong model
    SATURATED = 6  # the load generator was what was measured
    STOPPED = 7  # by a signal, after draining

    CHECKED = (USAGE, TARGET, STOPPED, SATURATED, INCOMPLETE, SLO_FAILED, COMPLETE)

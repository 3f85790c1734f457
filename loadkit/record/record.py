"""The flat record of one request: the only thing that crosses every room, from the call to the report.

Times are milliseconds after t0, which is stamped just before the first byte of the request head is handed to the
socket; what happened before t0 (`scheduled_ms`) is zero or negative. Absent is None, never 0 and never NaN.
"""

# ruff: noqa: RUF009 - _doc only wraps dataclasses.field, it makes no shared value

from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any


def _doc(text: str, unit: str = "", *, default: Any = None, factory: Any = None) -> Any:
    """A dataclass field that carries its unit and meaning into the header line of records.jsonl."""
    metadata = {"doc": text, "unit": unit}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(slots=True)
class Record:
    """One request as it was measured. Keys are those of the run folder's records.jsonl, in this order."""

    kind: str = _doc("always 'request'", default="request")
    run_id: str | None = _doc("run this request belongs to")
    request_id: str | None = _doc("unique in the run, sent as X-Request-Id")
    response_id: str | None = _doc("id the server gave its answer")
    worker: str | None = _doc("process that measured")
    cell: str | None = _doc(
        "(tier, concurrency) as 'TIERxCONCURRENCY', in an open loop 'TIER@RATErps', with '#N' at its end as stage N"
    )
    tier_tokens: int | None = _doc("planned prompt length, template and BOS included", "tokens")
    concurrency: int | None = _doc("planned streams in flight; in an open loop the most there may be", "streams")
    rate: float | None = _doc("planned arrivals of an open loop; None in a closed one", "requests/s")
    stage: int | None = _doc("place in a list of stages, from 1; None where the load goes by none")
    arrival: int | None = _doc("number in the schedule of an open loop, from 1; those missing were dropped")
    round: int | None = _doc("round within the cell, from 1; 0 for warm-up")
    visit: int | None = _doc("index of the visit in the plan")
    phase: str | None = _doc("warmup, measure or drain")
    timestamp: str | None = _doc("wall clock at t0 as a label", "ISO 8601 UTC")
    start_ms: float | None = _doc("t0 on the run's monotonic clock, from the clock's own origin", "ms")
    endpoint: str | None = _doc("name of the endpoint")
    model: str | None = _doc("model asked for")
    response_model: str | None = _doc("model the answer names")
    fingerprint: str | None = _doc("system_fingerprint of the answer")
    protocol: str | None = _doc("openai-chat, openai-completions, anthropic or ollama")
    transport: str | None = _doc("which reader took the stamps")
    host: str | None = _doc("host and port of the URL")
    path: str | None = _doc("path of the URL, without query")
    target: str | None = _doc("endpoint, engine, sim or board")
    auth: str | None = _doc("header the key went in: bearer, x-api-key or none")
    proxied: bool | None = _doc("true when a proxy stood between")
    cold: bool | None = _doc("true when a new connection was opened for it")

    target_tokens: int | None = _doc("tokens the prompt was built for", "tokens")
    prompt_tokens: int | None = _doc("tokens the server read, template and BOS included", "tokens")
    prompt_tokens_source: str | None = _doc("usage, tokenizer or estimate")
    bos_tokens: int | None = _doc("BOS tokens inside prompt_tokens", "tokens")
    overhead_tokens: int | None = _doc("chat template and BOS inside prompt_tokens", "tokens")
    cached_tokens: int | None = _doc("prompt tokens taken from a cache, by usage", "tokens")
    input_chars: int | None = _doc("characters of the user message", "characters")
    input_bytes: int | None = _doc("bytes of the request body", "bytes")
    prompt_sha256: str | None = _doc("hash of the user message; the text itself is never kept")
    output_tokens: int | None = _doc("tokens generated", "tokens")
    output_tokens_source: str | None = _doc("usage, tokenizer or events")
    output_chars: int | None = _doc("characters of all generated channels", "characters")
    reasoning_tokens: int | None = _doc("reasoning tokens by usage", "tokens")
    max_tokens: int | None = _doc("asked limit of output tokens", "tokens")
    limit_tokens: int | None = _doc("window named by a refusal", "tokens")
    requested_tokens: int | None = _doc("length named by a refusal", "tokens")

    scheduled_ms: float | None = _doc("planned time of sending; zero or negative", "ms")
    queue_ms: float | None = _doc(
        "planned time to the start of building; an open loop queues nothing, so lateness", "ms"
    )
    build_ms: float | None = _doc("time to build the request", "ms")
    tokenize_ms: float | None = _doc(
        "time to tokenise: the client's before t0 where it sends token ids, else what the server states, inside TTFT",
        "ms",
    )
    connect_ms: float | None = _doc("DNS, TCP and TLS before t0; None on a reused connection", "ms")
    sent_ms: float | None = _doc("last byte of the body handed to the socket", "ms")
    headers_ms: float | None = _doc("response head parsed", "ms")
    first_byte_ms: float | None = _doc("first byte of the response body", "ms")
    ttft_ms: float | None = _doc("first event with a non-empty generated channel", "ms")
    ttft_content_ms: float | None = _doc("first visible answer token", "ms")
    ttft_net_ms: float | None = _doc("ttft_ms - sent_ms: upload removed", "ms")
    ttft_sched_ms: float | None = _doc("ttft_ms - scheduled_ms: coordinated omission included", "ms")
    last_token_ms: float | None = _doc("last event with a non-empty generated channel", "ms")
    finish_ms: float | None = _doc("finish reason seen", "ms")
    usage_ms: float | None = _doc("last usage seen", "ms")
    done_ms: float | None = _doc("end of the stream", "ms")
    decode_ms: float | None = _doc("last_token_ms - ttft_ms", "ms")
    e2e_ms: float | None = _doc("last_token_ms", "ms")
    tpot_ms: float | None = _doc("decode_ms / (output_tokens - tokens of the first event); None below 2", "ms/token")
    itl_ms: list[float] | None = _doc("gaps between token events", "ms")
    event_tokens: list[int] | None = _doc("tokens of each token event where known", "tokens")
    event_read: list[int] | None = _doc("index of the read that completed each token event")
    stall_max_ms: float | None = _doc("longest gap between token events", "ms")
    token_events: int | None = _doc("events with a non-empty generated channel")
    reads: int | None = _doc("network reads of the response body")
    bytes_received: int | None = _doc("bytes of the response body", "bytes")

    prefill_tokens_per_s: float | None = _doc("1000 * prompt_tokens / ttft_ms", "tokens/s")
    decode_tokens_per_s: float | None = _doc("1000 / tpot_ms", "tokens/s")
    unit_price_ms: float | None = _doc("ttft_ms / (prompt_tokens - bos_tokens - cached_tokens)", "ms/token")

    http_status: int | None = _doc("status of the last attempt")
    outcome: str | None = _doc("how the last attempt ended, from a closed set")
    error_code: str | None = _doc("code of the error body")
    error_type: str | None = _doc("type of the error body")
    error_message: str | None = _doc("message of the error body, at most 800 characters, redacted")
    retry_after_ms: float | None = _doc("wait asked for by the last refusal", "ms")
    finish_reason: str | None = _doc("finish reason the server gave")
    attempts: list[dict[str, Any]] = _doc(
        "every attempt: outcome, http_status, start_ms, end_ms, wait_ms", factory=list
    )
    retry_wait_ms: float | None = _doc("sum of waits between attempts", "ms")
    ttft_first_attempt_ms: float | None = _doc("first token after the t0 of the first attempt", "ms")

    inflight_at_send: int | None = _doc("streams in flight in this process at t0, this one included", "streams")
    hub_lag_max_ms: float | None = _doc("worst lateness of the event loop while it ran", "ms")
    server_queue_ms: float | None = _doc("queue time the server states", "ms")
    server_prefill_ms: float | None = _doc("prefill time the server states", "ms")
    server_decode_ms: float | None = _doc("decode time the server states", "ms")
    flags: list[str] = _doc("what a reader must know, from a closed set", factory=list)

    def to_json(self) -> dict[str, Any]:
        """The record as a dict with all keys present, in order, of builtin values that share nothing with it."""
        return {
            name: value if type(value) in _BUILTIN else _plain(value)
            for name, value in zip(FIELDS, _values(self), strict=True)
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> "Record":
        """The record of a row of records.jsonl. Keys of a later schema are left out; missing ones get the default."""
        return cls(**{name: _plain(row[name]) for name in FIELDS if name in row})


def _plain(value: Any) -> Any:
    """A copy of builtins only; a member of a closed set becomes its string, so that every packer takes it."""
    if isinstance(value, list):
        # Gaps and counts are by far the longest lists, and they hold numbers only.
        return value.copy() if value and isinstance(value[0], (int, float)) else [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value.value if isinstance(value, StrEnum) else value


FIELDS = tuple(f.name for f in fields(Record))
_values = attrgetter(*FIELDS)
_BUILTIN = frozenset({type(None), bool, int, float, str})

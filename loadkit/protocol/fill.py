"""From a read answer to the fields of its record. Only what the answer can know is written; absent stays None."""

from collections.abc import Mapping
from typing import Any

from loadkit.measure import timing
from loadkit.protocol.answer import Answer
from loadkit.protocol.errors import Failure
from loadkit.protocol.outcome import Ending, judge
from loadkit.protocol.parser import Parser
from loadkit.protocol.retry_after import Headers
from loadkit.record.names import Flag, Outcome
from loadkit.record.record import Record

_TRUNCATED_SHARE = 0.9  # a server that read less of the prompt than this cut it
_HEAD_TOKENS = 16  # prompts differ within their first 16 tokens; what is cached up to there is not their text
_END_TOKEN_REASONS = frozenset({"stop", "end_turn", "stop_sequence", "eos_token", "tool_calls", "tool_use"})
_LENGTH_REASONS = frozenset({"length", "max_tokens"})
_LETTERS = 32  # events of one character each in a row are no tokens of any vocabulary
# Counts beyond these are no counts: tokens to a byte sent (of at least so many, for hidden system prompts), and to a
# token asked for or seen (of at least so many, for hidden reasoning).
_TOO_MANY = 64
_LEAST_BYTES = 4096
_LEAST_TOKENS = 1024


def fill(
    record: Record,
    parser: Parser,
    *,
    t0_ns: int,
    status: int | None,
    headers: Headers,
    end: Ending,
    ignore_eos: bool = False,
    believe_usage: bool = True,
    now: float | None = None,
) -> Failure | None:
    """Write outcome, marks (ms after `t0_ns`), tokens, rates and flags; return the failure, None for a success.

    `sent_ms`, `scheduled_ms`, `max_tokens`, `target_tokens`, `bos_tokens` and `overhead_tokens` are used where the
    caller has set them. With `input_bytes` and `max_tokens`, usage that cannot be true is not believed.
    `believe_usage` False: the server's usage is known to count something else than tokens, and is left out.
    `ignore_eos` says that exactly `max_tokens` were asked for; `now` is needed for a Retry-After date.
    """
    parser.end(end.at_ns, end.how)
    failure = judge(parser, status, headers, end, now)
    answer = parser.answer
    if not believe_usage:
        answer.prompt_tokens = answer.cached_tokens = answer.completion_tokens = answer.reasoning_tokens = None
        answer.event_usage.clear()
    _drop_impossible(record, answer)
    record.http_status = status
    record.outcome = (failure.outcome if failure else Outcome.OK).value
    if failure is not None:
        _fill_failure(record, failure)
    _fill_said(record, answer)
    _fill_marks(record, answer, t0_ns)
    _fill_tokens(record, answer)
    _fill_rates(record, answer)
    record.flags = [*record.flags, *(f for f in _flags(record, answer, ignore_eos) if f not in record.flags)]
    return failure


def _drop_impossible(record: Record, answer: Answer) -> None:
    """Forget usage that cannot be true, so that every number falls back to what it has without usage."""
    if record.input_bytes is not None:
        most = _TOO_MANY * max(record.input_bytes, _LEAST_BYTES)
        if max(answer.prompt_tokens or 0, answer.cached_tokens or 0) > most:
            answer.prompt_tokens = answer.cached_tokens = None
    if record.max_tokens is not None:
        most = _TOO_MANY * max(record.max_tokens, len(answer.event_times), _LEAST_TOKENS)
        stated = (answer.completion_tokens or 0, answer.reasoning_tokens or 0, *answer.event_usage)
        if max(stated) > most:
            answer.completion_tokens = answer.reasoning_tokens = None
            answer.event_usage.clear()


def _fill_failure(record: Record, failure: Failure) -> None:
    record.error_code = failure.code
    record.error_type = failure.type
    record.error_message = failure.message
    record.limit_tokens = failure.limit_tokens
    record.requested_tokens = failure.requested_tokens
    if failure.retry_after_s is not None:
        record.retry_after_ms = failure.retry_after_s * 1000


def _fill_said(record: Record, answer: Answer) -> None:
    record.response_id = answer.response_id
    record.response_model = answer.model
    record.fingerprint = answer.fingerprint
    record.finish_reason = answer.finish_reason
    record.server_queue_ms = answer.server_queue_ms
    record.server_prefill_ms = answer.server_prefill_ms
    record.server_decode_ms = answer.server_decode_ms
    if record.tokenize_ms is None:
        record.tokenize_ms = answer.server_tokenize_ms
    record.reads = answer.reads
    record.bytes_received = answer.bytes_received


def _fill_marks(record: Record, answer: Answer, t0_ns: int) -> None:
    def after_t0(at_ns: int | None) -> float | None:
        return None if at_ns is None else timing.ms(t0_ns, at_ns)

    record.first_byte_ms = after_t0(answer.first_byte_at)
    record.finish_ms = after_t0(answer.finish_at)
    record.usage_ms = after_t0(answer.usage_at)
    record.done_ms = after_t0(answer.done_at)
    times = answer.event_times
    record.token_events = len(times)
    if not times:
        return
    record.last_token_ms = record.e2e_ms = timing.ms(t0_ns, times[-1])
    if answer.not_streamed:
        return
    record.ttft_ms = timing.ms(t0_ns, times[0])
    record.ttft_content_ms = after_t0(answer.first_content_at)
    record.ttft_net_ms = timing.difference_ms(record.ttft_ms, record.sent_ms)
    record.ttft_sched_ms = timing.difference_ms(record.ttft_ms, record.scheduled_ms)
    record.decode_ms = timing.ms(times[0], times[-1])
    record.itl_ms = timing.gaps_ms(times)
    record.stall_max_ms = max(record.itl_ms, default=None)
    record.event_read = list(answer.event_read)
    record.event_tokens = answer.event_tokens


def _fill_tokens(record: Record, answer: Answer) -> None:
    """Server usage first; a zero beside generated text is no count."""
    if answer.prompt_tokens:
        record.prompt_tokens, record.prompt_tokens_source = answer.prompt_tokens, "usage"
    record.cached_tokens = answer.cached_tokens
    record.reasoning_tokens = answer.reasoning_tokens
    record.output_chars = answer.content_chars + answer.reasoning_chars + answer.tool_chars
    events = len(answer.event_times)
    if answer.completion_tokens or (answer.completion_tokens == 0 and events == 0):
        record.output_tokens, record.output_tokens_source = answer.completion_tokens, "usage"
    elif events and not answer.not_streamed and not _characters(answer):
        record.output_tokens, record.output_tokens_source = events, "events"


def _fill_rates(record: Record, answer: Answer) -> None:
    record.prefill_tokens_per_s = timing.prefill_tokens_per_s(record.prompt_tokens, record.ttft_ms)
    record.unit_price_ms = timing.unit_price_ms(
        record.ttft_ms, record.prompt_tokens, record.bos_tokens, record.cached_tokens
    )
    if _hidden_reasoning(answer) or record.ttft_ms is None:
        return
    first = record.event_tokens[0] if record.event_tokens else 1
    record.tpot_ms = timing.tpot_ms(record.ttft_ms, record.last_token_ms, record.output_tokens, first)
    record.decode_tokens_per_s = timing.decode_tokens_per_s(record.tpot_ms)


def _flags(record: Record, answer: Answer, ignore_eos: bool) -> list[str]:
    ok = record.outcome == Outcome.OK
    cases: Mapping[Flag, Any] = {
        Flag.TOKENS_PER_EVENT_GT_1: _several_tokens(record, answer),
        Flag.HIDDEN_REASONING: _hidden_reasoning(answer),
        Flag.NOT_STREAMED: answer.not_streamed,
        Flag.EVENTS_ARE_CHARACTERS: not answer.not_streamed and _characters(answer),
        Flag.BURSTY: record.itl_ms and timing.gaps_are_bursty(record.itl_ms, answer.event_read),
        Flag.NO_DONE: ok and not answer.saw_done and not answer.not_streamed,
        Flag.NO_FINISH_REASON: ok and answer.finish_reason is None,
        Flag.EMPTY_OUTPUT: answer.known_events and not answer.event_times and answer.finish_reason is not None,
        Flag.SHORT_OUTPUT: ok and ignore_eos and _below(record.output_tokens, record.max_tokens),
        Flag.PROMPT_TRUNCATED: answer.prompt_tokens
        and record.target_tokens
        and answer.prompt_tokens < _TRUNCATED_SHARE * record.target_tokens,
        Flag.PREFIX_CACHE_HIT: _cache_hit(record),
        Flag.HIT_MAX_TOKENS: ok and _hit_max_tokens(record),
    }
    return [flag.value for flag, holds in cases.items() if holds]


def _several_tokens(record: Record, answer: Answer) -> bool:
    """Events carried more tokens than one each.

    An end token is counted by servers but has no text, so an answer that ended by itself may state one token more
    than it had events.
    """
    if answer.not_streamed or not answer.event_times or _hidden_reasoning(answer):
        return False
    if record.event_tokens:
        return max(record.event_tokens) > 1
    end_token = 1 if answer.finish_reason in _END_TOKEN_REASONS else 0
    return (answer.completion_tokens or 0) > len(answer.event_times) + end_token


def _characters(answer: Answer) -> bool:
    """Every event held one character and the server states no tokens: it streams letters, of which a token has
    several. Rockchip's RKLLM demo server does."""
    events = len(answer.event_times)
    chars = answer.content_chars + answer.reasoning_chars
    return not answer.completion_tokens and events >= _LETTERS and chars == events and not answer.tool_chars


def _hidden_reasoning(answer: Answer) -> bool:
    """The server counts reasoning it did not stream: its token count says nothing about the visible pace."""
    return bool(answer.reasoning_tokens) and answer.reasoning_chars == 0


def _cache_hit(record: Record) -> bool:
    """More of the prompt came from a cache than every prompt of this server has in common."""
    common = 0 if record.overhead_tokens is None else record.overhead_tokens + _HEAD_TOKENS
    return (record.cached_tokens or 0) > common


def _below(count: int | None, limit: int | None) -> bool:
    return count is not None and limit is not None and count < limit


def _hit_max_tokens(record: Record) -> bool:
    if record.max_tokens is None:
        return record.finish_reason in _LENGTH_REASONS
    if record.output_tokens is not None and record.output_tokens >= record.max_tokens:
        return True
    return record.finish_reason in _LENGTH_REASONS and record.output_tokens_source != "usage"

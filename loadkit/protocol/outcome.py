"""How an answer ended, from what was read and how the reading ended."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from loadkit.protocol import errors
from loadkit.protocol.errors import Failure
from loadkit.protocol.parser import Parser
from loadkit.protocol.retry_after import Headers
from loadkit.record.names import Outcome

MESSAGES: Mapping[Outcome, str] = {
    Outcome.RESET: "the connection broke before the answer",
    Outcome.EMPTY_RESPONSE: "the answer ended without a generated token",
    Outcome.STREAM_TRUNCATED: "the stream ended without a finish reason or end marker",
    Outcome.TTFT_TIMEOUT: "no token in time",
    Outcome.READ_TIMEOUT: "silence after the first token",
    Outcome.TOTAL_TIMEOUT: "not complete in time",
    Outcome.BAD_RESPONSE_SHAPE: "the answer has not the shape of this protocol",
    Outcome.PROTOCOL_ERROR: "one event or line is larger than any answer should be",
    Outcome.ABORTED: "stopped by us",
}


class Ending(Protocol):
    """How the exchange ended, as a transport tells it (`call.transport.End` is one).

    `how`: eof, truncated, reset, stopped, fault, or a name that starts with timeout. `outcome` is set where the
    transport alone can name it; None leaves it to what was read.
    """

    @property
    def how(self) -> str: ...

    @property
    def outcome(self) -> Outcome | None: ...

    @property
    def detail(self) -> str: ...

    @property
    def at_ns(self) -> int: ...


def judge(
    parser: Parser, status: int | None, headers: Headers, ending: Ending, now: float | None = None
) -> Failure | None:
    """None when the request succeeded: 200, a token event and a terminal signal. Else what went wrong.

    `parser.end` must have been called. An answer that is complete is a success whatever happens to the socket after.
    """
    if status is not None and status != 200:
        return errors.classify(status, headers, parser.raw, now=now)
    answer = parser.answer
    if answer.failure is not None:
        return answer.failure
    if status == 200 and answer.complete:
        return None
    outcome = _incomplete(parser, status, ending)
    message = ending.detail or MESSAGES.get(outcome, outcome.value)
    if outcome is Outcome.BAD_RESPONSE_SHAPE:
        shown = errors.classify(200, None, answer.raw_head, in_band=True)
        message = f"{MESSAGES[outcome]}: {shown.message or errors.document(answer.raw_head)}"
        return replace(shown, outcome=outcome, message=errors.clip(message), retryable=False)
    return Failure(outcome, message=errors.clip(message))


def _incomplete(parser: Parser, status: int | None, ending: Ending) -> Outcome:
    answer = parser.answer
    if answer.overflow:
        return Outcome.PROTOCOL_ERROR
    if ending.outcome is not None and ending.outcome is not Outcome.OK:
        return ending.outcome
    if ending.how.startswith("timeout"):
        return Outcome.READ_TIMEOUT if answer.event_times else Outcome.TTFT_TIMEOUT
    if status is None:
        return Outcome.RESET
    if ending.how == "reset":
        return Outcome.STREAM_TRUNCATED if answer.bytes_received else Outcome.RESET
    if ending.how == "truncated" or answer.event_times:
        return Outcome.STREAM_TRUNCATED
    return _without_token(parser)


def _without_token(parser: Parser) -> Outcome:
    """A body that ended properly and held no token."""
    answer = parser.answer
    if answer.known_events:
        ended = answer.finish_reason is not None or answer.saw_done or answer.not_streamed
        return Outcome.EMPTY_RESPONSE if ended else Outcome.STREAM_TRUNCATED
    if answer.data_events or answer.stray:
        return Outcome.BAD_RESPONSE_SHAPE
    return Outcome.STREAM_TRUNCATED if answer.cut else Outcome.EMPTY_RESPONSE

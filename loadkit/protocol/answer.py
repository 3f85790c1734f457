"""What one chunk says and what an answer has said so far. Text is counted, never kept."""

import math
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from loadkit.protocol.errors import Failure

_MAX_COUNT = 2**53
_MAX_MS = 1e12


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts the server states. `prompt` includes what came from a cache; None = not stated."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """Times the server states, in ms; None = not stated."""

    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    tokenize: float | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one event means, whatever the protocol. Channels are the text generated in this event, "" for none.

    `content` is visible answer text (refusals too), `reasoning` is thinking, `tool` is calls of tools or functions.
    `known` is False when the event has not the protocol's shape. `whole` marks a complete, not streamed answer.
    `done` is the protocol's own end, such as message_stop.
    """

    content: str = ""
    reasoning: str = ""
    tool: str = ""
    finish_reason: str | None = None
    finish_detail: Any = None
    usage: Usage | None = None
    times: ServerTimes | None = None
    response_id: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    known: bool = True
    whole: bool = False
    done: bool = False


def _marks() -> "array[int]":
    """Marks in one piece of memory: of hundreds of streams, lists of ints would be read from all over the heap."""
    return array("q")


@dataclass(slots=True)
class Answer:
    """An answer as far as it has been read. Times are ns of the caller's clock, the time of the read that told."""

    event_times: "array[int]" = field(default_factory=_marks)
    event_read: "array[int]" = field(default_factory=_marks)
    event_usage: list[int] = field(default_factory=list)  # completion tokens stated with a token event, cumulative
    first_content_at: int | None = None
    content_chars: int = 0
    reasoning_chars: int = 0
    tool_chars: int = 0
    finish_reason: str | None = None
    finish_at: int | None = None
    usage_at: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    server_queue_ms: float | None = None
    server_prefill_ms: float | None = None
    server_decode_ms: float | None = None
    server_tokenize_ms: float | None = None
    response_id: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    failure: Failure | None = None  # an error the server put into a 200
    saw_done: bool = False
    not_streamed: bool = False
    data_events: int = 0
    known_events: int = 0
    malformed: int = 0
    stray: bool = False  # text that belongs to no event
    cut: bool = False  # the last event was not complete
    overflow: bool = False
    reads: int = 0
    bytes_received: int = 0
    first_byte_at: int | None = None
    last_read_at: int | None = None
    done_at: int | None = None
    raw_head: bytes = b""  # the first 2 KiB of the body

    @property
    def event_tokens(self) -> list[int] | None:
        """Tokens of each token event, where the server states usage with every one of them; else None."""
        if not self.event_usage or len(self.event_usage) != len(self.event_times):
            return None
        tokens = [self.event_usage[0], *(b - a for a, b in pairwise(self.event_usage))]
        return tokens if min(tokens) > 0 else None

    @property
    def complete(self) -> bool:
        """At least one token event and a terminal signal. Usage alone ends nothing."""
        return bool(self.event_times) and (self.finish_reason is not None or self.saw_done)


def count(value: Any) -> int | None:
    """A token count out of server JSON: a whole number that is not negative, else None."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
        return None
    return value


def milliseconds(value: Any, per_unit: float = 1.0) -> float | None:
    """A time out of server JSON in ms, `per_unit` ms in one of the server's units; None when it is not a time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_MS / per_unit:
        return None
    return value * per_unit


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str:
    """The value if it is a string, else ""."""
    return value if isinstance(value, str) else ""

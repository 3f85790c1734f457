"""The marks of one answered request, as the definitions of other tools need them.

Times are ms after t0. What a record does not hold is filled in only where the mark has a natural stand-in, and that is
said beside the name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from loadkit.analysis.reading import names, number, numbers
from loadkit.record.names import Flag

_TOOLS = ("tool_calls", "tool_use")
_SAME_MS = 1e-3  # marks nearer than this are of one read


@dataclass(frozen=True, slots=True)
class Marks:
    """Everything the eight definitions read. Built by `marks_of`."""

    times: tuple[float, ...]  # of every token event, any channel
    visible: tuple[float, ...]  # of the token events from the first answer text on
    last: float  # last token event
    finish: float  # finish reason seen, else `last`
    usage: float | None  # last usage seen
    done: float  # end of the stream, else the latest mark there is
    connect: float  # spent before t0 to open the connection, 0 on one that was open
    before: float  # from the t0 of the first attempt to that of the answering one
    output: int | None  # tokens generated
    asked: int | None  # limit of output tokens asked for
    event_tokens: tuple[int, ...] | None  # tokens of each event, where known
    data_events: int  # events with JSON in them, as far as the marks show: role-only before, finish after
    flags: frozenset[str]
    tools_only: bool  # the answer was tool calls without text, by its finish reason

    @property
    def first(self) -> float:
        """First token event of any channel: loadkit's TTFT."""
        return self.times[0]

    @property
    def first_visible(self) -> float | None:
        """First answer text; None when there was none."""
        return self.visible[0] if self.visible else None

    @property
    def gaps(self) -> list[float]:
        """Between token events of any channel."""
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]

    @property
    def visible_gaps(self) -> list[float]:
        """Between token events from the first answer text on."""
        return [b - a for a, b in zip(self.visible, self.visible[1:], strict=False)]

    @property
    def first_tokens(self) -> int:
        """Tokens in the first event: as stated, else one."""
        return self.event_tokens[0] if self.event_tokens else 1

    @property
    def several(self) -> bool:
        """Whether events carried more tokens than one each."""
        return Flag.TOKENS_PER_EVENT_GT_1.value in self.flags


def marks_of(record: Mapping[str, Any]) -> Marks | None:
    """The marks of a record; None for one without a token event (not streamed, failed before a token)."""
    first = number(record, "ttft_ms")
    if first is None:
        return None
    times = tuple(accumulate(numbers(record, "itl_ms"), initial=first))
    last = number(record, "last_token_ms") or times[-1]
    finish, usage = number(record, "finish_ms"), number(record, "usage_ms")
    content, begun = number(record, "ttft_content_ms"), number(record, "first_byte_ms")
    tokens = tuple(int(count) for count in numbers(record, "event_tokens"))
    role = begun is not None and begun < first - _SAME_MS
    ending = finish is not None and finish > last + _SAME_MS
    attempt = number(record, "ttft_first_attempt_ms")
    return Marks(
        times=times,
        visible=() if content is None else tuple(at for at in times if at >= content - _SAME_MS),
        last=last,
        finish=last if finish is None else finish,
        usage=usage,
        done=number(record, "done_ms") or max(last, finish or 0.0, usage or 0.0),
        connect=number(record, "connect_ms") or 0.0,
        before=0.0 if attempt is None else max(attempt - first, 0.0),
        output=_count(record, "output_tokens"),
        asked=_count(record, "max_tokens"),
        event_tokens=tokens if len(tokens) == len(times) else None,
        data_events=len(times) + role + ending,
        flags=frozenset(names(record, "flags")),
        tools_only=content is None and record.get("finish_reason") in _TOOLS,
    )


def _count(record: Mapping[str, Any], name: str) -> int | None:
    value = number(record, name)
    return None if value is None else int(value)

"""What the requests of a check show beside that they were answered: streaming, usage, clocks, a prefix cache."""

from collections.abc import Callable

from loadkit.record.names import Flag, Outcome
from loadkit.record.record import Record

MIN_SAVED_MS = 10.0  # below this a difference of two TTFTs is noise


def described(ping: Record) -> list[str]:
    """One line each on streaming, usage and the first token of an answered ping."""
    if ping.ttft_ms is None:
        return [
            "streaming: no, the answer came in one piece: TTFT cannot be measured",
            f"usage: {_usage(ping)}",
        ]
    opened = "" if ping.first_byte_ms is None else f", stream opened at {ping.first_byte_ms:.1f} ms"
    return [
        f"streaming: yes, {ping.token_events} token events in {ping.reads} reads",
        f"usage: {_usage(ping)}",
        # A role chunk or keep-alive opens many streams: a clock that stops there shows a TTFT nobody waited for.
        f"first token: {ping.ttft_ms:.1f} ms{opened}",
    ]


def _usage(ping: Record) -> str:
    if Flag.EVENTS_ARE_CHARACTERS in ping.flags:
        return "not stated, and an event is a character: output tokens are not known"
    if ping.prompt_tokens_source != "usage" and ping.output_tokens_source != "usage":
        return "not stated: output tokens are counted by events"
    prompt = ping.prompt_tokens if ping.prompt_tokens_source == "usage" else "no"
    output = ping.output_tokens if ping.output_tokens_source == "usage" else "no"
    cached = "" if ping.cached_tokens is None else f", {ping.cached_tokens} cached"
    return f"stated, {prompt} prompt tokens{cached} and {output} output tokens"


def cache(fresh: Record, send: Callable[[], Record], overhead_tokens: int) -> str:
    """One line on a prefix cache. `send` sends one prompt, the same each time it is called; `fresh` was another one of
    that length, sent before. A cache is on when the second time shows cached tokens beyond the template's, or a TTFT
    under half of both fresh ones."""
    if fresh.outcome != Outcome.OK:
        return "prefix cache: not tested, the longer prompt was refused"
    first, again = send(), send()
    for record in (first, again):
        if record.outcome != Outcome.OK:
            return f"prefix cache: not tested, a repeated prompt ended as {record.outcome}"
    if (again.cached_tokens or 0) > overhead_tokens:
        return f"prefix cache: on, {again.cached_tokens} of {again.prompt_tokens} tokens came from it when repeated"
    before = [record.ttft_ms for record in (fresh, first) if record.ttft_ms is not None]
    if again.ttft_ms is None or len(before) < 2:
        return "prefix cache: not stated, and without a stream TTFT cannot tell"
    times = f"TTFT {before[1]:.1f} ms, repeated {again.ttft_ms:.1f} ms"
    if again.ttft_ms < min(before) / 2 and min(before) - again.ttft_ms >= MIN_SAVED_MS:
        return f"prefix cache: on, by time ({times})"
    return f"prefix cache: none seen ({times})"

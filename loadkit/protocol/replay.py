"""An answer from recorded reads: the same path as a live one, without a socket or a clock."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.protocol.fill import fill
from loadkit.protocol.protocols import PROTOCOLS
from loadkit.protocol.retry_after import Headers, header
from loadkit.record.names import Outcome
from loadkit.record.record import Record

_HOW = {
    "eof": "eof",  # clean FIN, or the end of a framed body
    "chunked_end": "eof",
    "short_chunked": "truncated",  # FIN before the framing was complete
    "truncated": "truncated",
    "reset": "reset",
    "stall": "timeout",  # silence until the read timeout
    "open": "timeout",  # the socket stays open
    "timeout": "timeout",
    "stopped": "stopped",
}


@dataclass(frozen=True, slots=True)
class _End:
    how: str
    outcome: Outcome | None
    detail: str
    at_ns: int


def replay(
    protocol: str,
    reads: Iterable[tuple[float, bytes]],
    end: Mapping[str, Any] | str | None = None,
    status: int | None = 200,
    headers: Headers = None,
    *,
    known: Mapping[str, Any] | None = None,
    ignore_eos: bool = False,
    now: float | None = None,
) -> dict[str, Any]:
    """The record of an answer: all keys, those it cannot know None.

    `reads` are (ms after t0, bytes of one network read). `end` is `{"how": ..., "t_ms": ...}` or just the how: eof,
    chunked_end, short_chunked, truncated, reset, stall, open, timeout, stopped, or the name of an outcome the
    transport alone can know; None = eof. Reading stops where a live caller would: at the terminal marker.
    `known` holds record fields the caller knows, such as max_tokens or target_tokens. ValueError for an unknown name.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    parser = PROTOCOLS[protocol].parser(header(headers, "content-type"), status)
    last_ns = 0
    for at_ms, data in reads:
        last_ns = round(at_ms * 1e6)
        parser.feed(last_ns, bytes(data))
        if parser.done:
            break
    ending = _End("stopped", None, "", last_ns) if parser.done else _ending(end, last_ns)
    record = Record(protocol=protocol, **(known or {}))
    fill(record, parser, t0_ns=0, status=status, headers=headers, end=ending, ignore_eos=ignore_eos, now=now)
    return record.to_json()


def _ending(end: Mapping[str, Any] | str | None, last_ns: int) -> _End:
    if end is None or isinstance(end, str):
        end = {"how": end or "eof"}
    how = end.get("how", "eof")
    at_ms = end.get("t_ms", end.get("t"))
    at_ns = last_ns if at_ms is None else max(last_ns, round(at_ms * 1e6))
    if how in _HOW:
        return _End(_HOW[how], None, "", at_ns)
    if how == "fault":
        how = end.get("outcome")
    if how in set(Outcome):
        return _End("fault", Outcome(how), "", at_ns)
    raise ValueError(f"end is one of {', '.join(_HOW)} or an outcome, not {how!r}")

"""How fast a server is by the two pings of a check: enough to say before a run that a timeout will be too short."""

from collections.abc import Sequence

from loadkit.plan.ladder import Estimate
from loadkit.record.record import Record


def speed(pings: Sequence[Record]) -> Estimate | None:
    """The straight line through TTFT against prompt tokens of the first and last answered ping; None without two.

    Where the longer ping was not slower, its whole TTFT is put down to the prompt: the cautious reading.
    """
    seen = [(ping.prompt_tokens, ping.ttft_ms) for ping in pings]
    known = [(tokens, ttft) for tokens, ttft in seen if tokens and ttft is not None]
    if len(known) < 2 or known[-1][0] <= known[0][0]:
        return None
    (few, soon), (many, late) = known[0], known[-1]
    decode = next((ping.tpot_ms for ping in pings if ping.tpot_ms is not None), None)
    slope = (late - soon) / (many - few)
    if slope <= 0:
        return Estimate(prefill_ms=late / many, decode_ms=decode or 0.0)
    return Estimate(prefill_ms=slope, decode_ms=decode or 0.0, fixed_ms=max(0.0, soon - slope * few))

"""From marks on a clock to the numbers of one request.

Times are ms after t0, tokens are counts. A value that cannot be known is None: never 0, never NaN, never negative.
"""

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

NEAR_ZERO = 0.05  # of the mean gap: events this close left the server together or were held back together
BURSTY_SHARE = 0.25  # of the gaps near zero: from here on the quartiles of ITL show the network, not the decoder
NS_DIGITS = 6  # decimals of a ms value that a nanosecond clock can tell


def ms(start_ns: int, end_ns: int) -> float:
    """Time between two marks of the nanosecond clock, in ms."""
    return (end_ns - start_ns) / 1e6


def difference_ms(later_ms: float | None, earlier_ms: float | None) -> float | None:
    """later - earlier, None when either is unknown: `ttft_net` is ttft less sent, `ttft_sched` ttft less scheduled."""
    if later_ms is None or earlier_ms is None:
        return None
    return round(later_ms - earlier_ms, NS_DIGITS)


def tpot_ms(
    first_ms: float | None, last_ms: float | None, output_tokens: int | None, first_event_tokens: int = 1
) -> float | None:
    """Time per output token after the first event: (last - first) / (output_tokens - tokens in the first event).

    None below two tokens, and None when everything came at one instant: that is no decode speed.
    Raises ValueError when last is before first: such marks are a bug and must not be averaged.
    """
    if first_ms is None or last_ms is None or output_tokens is None:
        return None
    if last_ms < first_ms:
        raise ValueError(f"the last token at {last_ms} ms is before the first at {first_ms} ms")
    later_tokens = output_tokens - first_event_tokens
    if later_tokens < 1 or last_ms == first_ms:
        return None
    return (last_ms - first_ms) / later_tokens


def itl_ms(times_ms: Sequence[float]) -> list[float]:
    """Gaps between successive token events; empty below two events. TTFT is never among them."""
    return [round(b - a, NS_DIGITS) for a, b in pairwise(times_ms)]


def gaps_ms(times_ns: Sequence[int]) -> list[float]:
    """`itl_ms` from marks of the nanosecond clock."""
    return [(b - a) / 1e6 for a, b in pairwise(times_ns)]


def itl_per_token_ms(times_ms: Sequence[float], event_tokens: Sequence[int]) -> list[float]:
    """Gaps weighted by tokens: the gap before an event of k tokens counts as k gaps of a k-th each.

    `event_tokens[i]` belongs to `times_ms[i]`. An event of 0 tokens lends its gap to nothing.
    """
    if len(event_tokens) != len(times_ms):
        raise ValueError(f"{len(times_ms)} event times but {len(event_tokens)} token counts")
    spread: list[float] = []
    for gap, tokens in zip(itl_ms(times_ms), event_tokens[1:], strict=True):
        spread.extend([gap / tokens] * tokens if tokens > 0 else [])
    return spread


def is_bursty(times_ms: Sequence[float], event_read: Sequence[int] | None = None) -> bool:
    """Whether token events came in bursts, so that ITL percentiles would describe a buffer and must be withheld.

    True when at least a quarter of the gaps are near zero: both events completed by the same network read
    (`event_read[i]` = index of the read of event i), or a gap of at most 5 % of the mean gap. TPOT is hardly moved by
    bursts and stays.
    """
    return gaps_are_bursty(itl_ms(times_ms), event_read)


def gaps_are_bursty(gaps_ms: Sequence[float], event_read: Sequence[int] | None = None) -> bool:
    """`is_bursty` for gaps; there is one more entry in `event_read` than there are gaps."""
    if not gaps_ms:
        return False
    limit = NEAR_ZERO * sum(gaps_ms) / len(gaps_ms)
    near = [gap <= limit for gap in gaps_ms]
    if event_read is not None and len(set(event_read)) < len(event_read):
        same = (a == b for a, b in pairwise(event_read))
        near = [close or together for close, together in zip(near, same, strict=True)]
    return sum(near) >= BURSTY_SHARE * len(gaps_ms)


def unit_price_ms(
    ttft_ms: float | None, prompt_tokens: int | None, bos_tokens: int | None = 0, cached_tokens: int | None = 0
) -> float | None:
    """Prefill price in ms per token: TTFT / (prompt - BOS - cached). None when nothing was prefilled."""
    if ttft_ms is None or prompt_tokens is None:
        return None
    computed = prompt_tokens - (bos_tokens or 0) - (cached_tokens or 0)
    return ttft_ms / computed if computed > 0 else None


def prefill_tokens_per_s(prompt_tokens: int | None, ttft_ms: float | None) -> float | None:
    """Prompt tokens per second until the first token: 1000 * prompt_tokens / TTFT; never from total time."""
    if not prompt_tokens or not ttft_ms or ttft_ms < 0:
        return None
    return 1000.0 * prompt_tokens / ttft_ms


def decode_tokens_per_s(tpot_ms: float | None) -> float | None:
    """Tokens per second of one stream while decoding: 1000 / TPOT."""
    return 1000.0 / tpot_ms if tpot_ms else None


def peak_in_flight(intervals: Sequence[tuple[float, float | None]]) -> int:
    """Most requests in flight at one moment. An interval is (start, end), end None = still running at the end.

    A request that ends at the moment another starts does not overlap it: a slot was handed over. The unit of time is
    the caller's. Raises ValueError for an interval that ends before it starts.
    """
    running: list[float] = []  # heap of ends
    peak = 0
    for start, end in sorted((start, math.inf if end is None else end) for start, end in intervals):
        if end < start:
            raise ValueError(f"an interval from {start} ends at {end}, before it starts")
        while running and running[0] <= start:
            heappop(running)
        heappush(running, end)
        peak = max(peak, len(running))
    return peak

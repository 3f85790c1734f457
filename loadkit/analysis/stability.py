"""Whether decoding keeps its pace inside an answer: the first half of its gaps against the second half, and the slope.

A pace that falls inside 128 tokens is the growing KV cache being read, or another load on the machine; a pace that is
steady from the start is fine. Answers of unequal lengths reach different depths of the cache and are not compared.
"""

from array import array
from functools import lru_cache
from typing import Any

import numpy as np

from loadkit.analysis.spread import median, median_interval
from loadkit.record.names import Flag

MIN_GAPS = 8
MIN_ANSWERS = 3
CHANGE = 0.10  # of the pace between the halves, in the median answer; half of it in the interval of the median
UNEQUAL = 0.10  # of the longest answer's gaps

STEADY, SLOWING, SPEEDING = "steady", "slowing", "speeding"


@lru_cache(maxsize=256)
def _weights(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Ones for half of n gaps, and the place of each of n gaps from their middle: one pair serves all answers."""
    return np.ones(n // 2), np.arange(n) - (n - 1) / 2


class Stability:
    """The pace inside the answers of one cell: add the gaps of each, then `summary()`."""

    def __init__(self) -> None:
        self.first, self.second, self.ratio, self.slope = (array("d") for _ in range(4))
        self.lengths = (0, 0)  # fewest and most gaps of an answer

    def add(self, gaps: array, tokens: array) -> None:
        """Take the gaps (ms) between the token events of an answer and the tokens of each event (empty: one each).

        The middle gap of an odd number belongs to neither half. The slope is that of least squares over the gaps.
        """
        n = len(gaps)
        shortest, longest = self.lengths
        self.lengths = (min(shortest or n, n), max(longest, n))
        if n < MIN_GAPS:
            return
        pace = np.frombuffer(gaps)
        if len(tokens) == n + 1:
            pace = pace / np.maximum(np.frombuffer(tokens)[1:], 1.0)
        half = n // 2
        ones, place = _weights(n)
        first, second = float(ones @ pace[:half]) / half, float(ones @ pace[n - half :]) / half
        if first <= 0:
            return
        self.first.append(first)
        self.second.append(second)
        self.ratio.append(second / first)
        self.slope.append(float(place @ pace) * 12 / (n * (n * n - 1)))

    def summary(self, bursty: bool) -> dict[str, Any]:
        """Medians over the answers: ms per token in each half, their ratio, slope in ms per token and token.

        The verdict is slowing or speeding when the median ratio differs from 1 by a tenth or more and its 90 %
        interval by half a tenth; None with a reason (too_few_tokens, bursty, too_few_rounds, output_lengths_differ).
        """
        reason = self._reason(bursty)
        return {
            "first_half_tpot_ms": median(self.first),
            "second_half_tpot_ms": median(self.second),
            "ratio": median(self.ratio),
            "slope_ms_per_token": median(self.slope),
            "n": len(self.ratio),
            "verdict": None if reason else self._verdict(),
            "reason": reason,
        }

    def _reason(self, bursty: bool) -> str | None:
        shortest, longest = self.lengths
        if not self.ratio:
            return "too_few_tokens"
        if bursty:
            return Flag.BURSTY.value
        if len(self.ratio) < MIN_ANSWERS:
            return Flag.TOO_FEW_ROUNDS.value
        return "output_lengths_differ" if shortest < (1 - UNEQUAL) * longest else None

    def _verdict(self) -> str:
        middle, interval = median(self.ratio), median_interval(np.sort(np.array(self.ratio)))
        if middle is None or interval is None:
            return STEADY
        if middle >= 1 + CHANGE and interval[0] >= 1 + CHANGE / 2:
            return SLOWING
        return SPEEDING if middle <= 1 - CHANGE and interval[1] <= 1 - CHANGE / 2 else STEADY

"""How many prompt tokens are read in one pass with the next tokens of the streams that are decoding.

A pass with a chunk takes longer than a decode step, and the streams wait for it. The chunk is sized by measurement: the
pass may take STRETCH decode steps, so that the longest gaps stay below three times the ordinary one, with room for
noise.
"""

from __future__ import annotations

STRETCH = 2.0  # decode steps that a pass with a chunk may take
FIRST, NOTCH = 8, 4  # tokens; sizes are whole notches
MEMORY = 0.2  # weight of the newest decode step in the running mean
STALE = 64  # passes with a chunk after which a decode step alone is timed again
RETRY = 256  # chunks until a size that took too long is tried again: its gaps stay below one in a hundred


class Pace:
    """The size of the next chunk, in tokens, from the times of passes so far.

    Time does not grow evenly with size, since products of a few rows are done in another way than those of many. So
    the size goes up a notch at a time, and one that took too long twice in a row is remembered.
    """

    def __init__(self, largest: int) -> None:
        self.size = min(FIRST, largest)
        self._largest = self._ceiling = largest
        self._patience = RETRY
        self._strikes = 0  # passes in a row that took too long
        self._climbing = True  # no chunk has taken too long yet
        self._step_s: float | None = None
        self._passes = 0  # since a decode step was timed

    @property
    def blind(self) -> bool:
        """A decode step without a chunk is due, so that there is something to compare with."""
        return self._step_s is None or self._passes >= STALE

    def decoded(self, seconds: float) -> None:
        """A decode step took so long."""
        self._passes = 0
        self._step_s = seconds if self._step_s is None else self._step_s + MEMORY * (seconds - self._step_s)

    def read(self, tokens: int, seconds: float) -> None:
        """A pass with a chunk of so many tokens took so long."""
        self._passes += 1
        if self._step_s is None or tokens < self.size:
            return
        allowed = STRETCH * self._step_s
        self._patience -= 1
        if self._patience <= 0:
            self._ceiling, self._patience = self._largest, RETRY
        self._strikes = self._strikes + 1 if seconds > allowed else 0
        if self._strikes == 1:  # once may be anything that the machine did beside
            return
        if self._strikes > 1:
            self._strikes = 0
            self._ceiling, self._patience, self._climbing = max(tokens - NOTCH, NOTCH), RETRY, False
            self.size = max(tokens // 2 // NOTCH * NOTCH if seconds > 2 * allowed else tokens - NOTCH, NOTCH)
        elif seconds < 0.9 * allowed:
            double = self._climbing and seconds < 0.3 * allowed
            self.size = min(2 * tokens if double else tokens + NOTCH, self._ceiling)

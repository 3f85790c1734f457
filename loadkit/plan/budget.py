"""Limits that stop a run cleanly in the middle: a pure function of what was spent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """The most a run may take; None = no limit."""

    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def exhausted(self, tokens: int, cost: float | None, seconds: float) -> str | None:
        """Why no further request may start ('tokens', 'cost' or 'seconds'), or None. An unknown cost never stops."""
        spent = (("tokens", tokens, self.tokens), ("cost", cost, self.cost), ("seconds", seconds, self.seconds))
        for name, used, limit in spent:
            if limit is not None and used is not None and used >= limit:
                return name
        return None

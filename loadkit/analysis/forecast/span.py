"""A value between two ends."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """`value` lies between `low` and `high`, all in one unit; None where only the ends are known. `how` says where it
    comes from, in words."""

    low: float
    value: float | None
    high: float
    how: str = ""

    @property
    def middle(self) -> float:
        """The value, or the middle of the ends where there is none."""
        return self.value if self.value is not None else (self.low + self.high) / 2

    def times(self, factor: float) -> "Span":
        """The same, so many times; `factor` is not negative."""
        value = None if self.value is None else self.value * factor
        return Span(self.low * factor, value, self.high * factor, self.how)

    def plus(self, other: "Span") -> "Span":
        """Both one after the other. The ends add up, because what makes one slow makes the other slow."""
        known = self.value is not None or other.value is not None
        how = self.how if other.how in ("", self.how) else "; ".join(filter(None, (self.how, other.how)))
        return Span(self.low + other.low, self.middle + other.middle if known else None, self.high + other.high, how)


NOTHING = Span(0.0, 0.0, 0.0)

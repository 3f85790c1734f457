"""Candidates of one kind of knee: boxes of log K, each with a weight that is spread evenly over it."""

from dataclasses import dataclass, replace

import numpy as np

from loadkit.analysis.knee.tiers import Array

GATE = 0.25
"""Excess over the low regime, at the longest tier, from which a bend is a knee."""
PLACES = 128
BEYOND = 8.0
"""Smooth bends and saturation are looked for up to so many times the longest tier; what lies beyond it is no knee."""


@dataclass(frozen=True)
class Candidates:
    """`low` and `high` edge in log K, log of likelihood times prior, excess at the longest tier, and which are knees.

    What is no knee counts for `none`, and `reason` says what it stands for.
    """

    kind: str
    low: Array
    high: Array
    weight: Array
    excess: Array
    knee: Array
    reason: str = "excess_below_gate"

    def kept(self, chosen: Array) -> "Candidates":
        """Some of the candidates."""
        low, high, weight, excess, knee = (
            values[chosen] for values in (self.low, self.high, self.weight, self.excess, self.knee)
        )
        return replace(self, low=low, high=high, weight=weight, excess=excess, knee=knee)


def places(low: float, high: float) -> tuple[Array, Array, Array]:
    """PLACES boxes of equal width in log K: low edges, high edges, and the K in their middle."""
    edges = np.linspace(np.log(low), np.log(high), PLACES + 1)
    return edges[:-1], edges[1:], np.exp((edges[:-1] + edges[1:]) / 2)


def without_knee(reason: str, weight: Array) -> Candidates:
    """Candidates of a model that has no knee."""
    zero = np.zeros_like(weight)
    return Candidates("none", zero, zero, weight, zero, zero.astype(bool), reason)

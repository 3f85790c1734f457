"""How many replicas a load takes, from what one of them was measured to sustain.

Work is counted in replicas: a tier that arrives at rate l and of which one replica sustains g takes l / g of a replica,
and tiers that share replicas add up (each second of a replica goes to one of them or to another).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from loadkit.capacity.inputs import InputError, not_negative, positive

_ROUNDING = 1e-9  # a load that is a whole number of replicas but for rounding does not take one more


@dataclass(frozen=True, slots=True)
class Load:
    """One tier: how many requests/s arrive, and how many one replica sustains under the objectives."""

    requests_per_s: float
    goodput: float

    @property
    def work(self) -> float:
        """Replicas it keeps busy."""
        return not_negative("arrivals/s", self.requests_per_s) / positive("goodput", self.goodput)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Replicas for a load: `bare` carries it at full use, `with_headroom` with a margin, `n_plus_1` when one is lost.
    `work` is the load in replicas."""

    work: float
    headroom: float
    bare: int
    with_headroom: int
    n_plus_1: int

    @property
    def recommended(self) -> int:
        """Enough for the margin, and for the loss of one."""
        return max(self.with_headroom, self.n_plus_1)

    def utilisation(self, replicas: int | None = None) -> float:
        """Share of so many replicas (the recommended ones) that is used."""
        return self.work / (replicas or self.recommended)


def whole(work: float) -> int:
    """The least whole number of replicas for so much work, at least 1 for any."""
    return math.ceil(not_negative("work", work) * (1 - _ROUNDING))


def replicas(loads: Iterable[Load], headroom: float = 1.0, spare: int = 1) -> Replicas:
    """Replicas that all tiers share: ceil(headroom x sum of l / g), and ceil(sum of l / g) + `spare` so that the rest
    carries the load when that many are lost. InputError for a headroom below 1 or a goodput of 0."""
    if not (math.isfinite(headroom) and headroom >= 1):
        raise InputError(f"headroom must be 1 or more, it is {headroom!r}: 1.2 keeps a fifth in reserve")
    if spare < 0:
        raise InputError(f"spare replicas must be 0 or more, not {spare}")
    work = sum(load.work for load in loads)
    bare = whole(work)
    return Replicas(work, headroom, bare, whole(work * headroom), bare + spare)


def prefill_work(requests_per_s: float, prompt_tokens: float, tokens_per_s: float, correction: float = 1.0) -> float:
    """Prefill workers kept busy where prefill and decode are apart: rate x prompt x min(1, correction) / tokens/s of
    one, as NVIDIA Dynamo's planner has it. `correction` is measured TTFT over expected. `whole` makes workers of it."""
    load = not_negative("requests/s", requests_per_s) * positive("prompt tokens", prompt_tokens)
    return load * min(1.0, positive("correction", correction)) / positive("prefill tokens/s", tokens_per_s)


def decode_work(requests_per_s: float, output_tokens: float, tokens_per_s: float) -> float:
    """Decode workers kept busy beside them: rate x output / tokens/s of one at the ITL objective."""
    load = not_negative("requests/s", requests_per_s) * positive("output tokens", output_tokens)
    return load / positive("decode tokens/s", tokens_per_s)

"""Given models on one budget: which holds the context, fits the memory and is fast enough, and at how many bits.

Total parameters decide the size, active ones the speed. Of what passes, the largest comes first: a bigger model at
4 bit before a smaller one at 16, and what memory is left over goes to more bits.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from loadkit.capacity import kv as cache
from loadkit.capacity.advise.numbers import OVERHEAD_GB, REACH, USE
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError
from loadkit.capacity.memory import GB
from loadkit.capacity.params import total
from loadkit.capacity.quant import Q4_K_M
from loadkit.capacity.roofline import weights_per_step

BITS = (16.0, 8.0, Q4_K_M)  # tried from the widest


@dataclass(frozen=True, slots=True)
class Budget:
    """What there is and what is wanted: memory in GB, tokens and sequences to hold, bandwidth in GB/s, tokens/s."""

    mem_gb: float
    context: int
    sequences: int = 1
    bw_gbs: float | None = None
    target_tps: float | None = None
    min_bits: float | None = None
    kv: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("mem_gb", "context", "sequences"):
            if not getattr(self, name) > 0:
                raise CardError(f"{name} must be above 0, it is {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One card at the widest bits that pass, or at the narrowest where none do. GB, tokens, tokens/s.

    `rank` 0 passes everything; 1 is too slow, 2 knows no such context, 3 does not fit. `tokens_per_s` is what engines
    reach of the bound, None without a bandwidth.
    """

    name: str
    params: int
    bits: float
    weights_gb: float
    kv_gb: float
    need_gb: float
    budget_gb: float
    longest: int  # tokens per sequence that fit, at most what the model was made for
    tokens_per_s: float | None
    rank: int
    reason: str


def rank(cards: Iterable[ModelCard], budget: Budget) -> list[Candidate]:
    """The cards in the order in which to try them. CardError for a card whose cache is not known."""
    found = [_best(card, budget) for card in cards]
    return sorted(found, key=lambda each: (each.rank, -each.params, -(each.tokens_per_s or 0.0)))


def _best(card: ModelCard, budget: Budget) -> Candidate:
    """The widest bits at which a card passes; else the narrowest at which it gets furthest."""
    if card.weight_bytes is not None and card.bits is not None:
        widths: tuple[float, ...] = (card.bits,)  # a file that exists has the bits it has
    else:
        widths = tuple(bits for bits in BITS if bits >= (budget.min_bits or 0.0))
    tried = [_at(card, bits, budget) for bits in widths]
    return min(tried, key=lambda each: (each.rank, each.bits if each.rank else -each.bits))


def _at(card: ModelCard, bits: float, budget: Budget) -> Candidate:
    weights = total(card) * bits / 8 / GB
    held = cache.per_sequence(card, budget.context, budget.kv) * budget.sequences / GB
    room = USE * budget.mem_gb
    need = weights + held + OVERHEAD_GB
    growth = cache.per_token(card, budget.kv) * budget.sequences / GB
    fixed = held - growth * budget.context
    fitting = int(max(0.0, room - weights - OVERHEAD_GB - fixed) / growth) if growth else budget.context
    rate = None
    if budget.bw_gbs is not None:
        rate = REACH * budget.bw_gbs / (weights_per_step(card, 1, bits) / GB + held)
    level, reason = _verdict(card, need, room, rate, budget)
    return Candidate(
        name=card.name,
        params=total(card),
        bits=bits,
        weights_gb=weights,
        kv_gb=held,
        need_gb=need,
        budget_gb=room,
        longest=min(fitting, card.context or fitting),
        tokens_per_s=rate,
        rank=level,
        reason=reason,
    )


def _verdict(card: ModelCard, need: float, room: float, rate: float | None, budget: Budget) -> tuple[int, str]:
    if need > room:
        return 3, f"does not fit: {need:.1f} of {room:.1f} GB"
    if card.context is not None and card.context < budget.context:
        return 2, f"made for {card.context} tokens, {budget.context} are wanted"
    if budget.target_tps is not None and rate is not None and rate < budget.target_tps:
        return 1, f"about {rate:.1f} tokens/s, {budget.target_tps:g} are wanted"
    speed = "" if rate is None else f", about {rate:.1f} tokens/s"
    return 0, f"fits with {room - need:.1f} GB left{speed}"

"""Upper bounds of decode from memory bandwidth, and what a measured rate says about them.

A step reads every weight its tokens meet once, and every sequence's cache: tokens/s <= bandwidth / bytes at batch 1.
The bound (Williams et al., 2009) turns from memory to arithmetic at the ridge point, FLOP/s over bytes/s.
"""

from dataclasses import dataclass

from loadkit.capacity import kv as cache
from loadkit.capacity.card import ModelCard, Moe
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import parameters

SUSPICIOUS = 0.85  # of the bound: real decoders reach 0.3 to 0.82 on boards, so look at the byte count
SWAPPING = 0.05  # below this the model does not fit and is read from disk


def ridge_point(flops_per_s: float, bytes_per_s: float) -> float:
    """Operations per byte above which arithmetic is the bound. H100 FP16: 990e12 / 3.35e12 = 295.5."""
    return _positive("FLOP/s", flops_per_s) / _positive("bandwidth", bytes_per_s)


def dram_bandwidth(clock_hz: float, bus_bits: int) -> float:
    """Bytes per second of double data rate memory: clock x 2 x bits / 8. 2112 MHz and 64 bits make 33.8 GB/s."""
    return _positive("clock", clock_hz) * 2 * _positive("bus width", bus_bits) / 8


def decode_bound(bytes_per_s: float, bytes_per_token: float) -> float:
    """Tokens per second that one sequence cannot exceed."""
    return _positive("bandwidth", bytes_per_s) / _positive("bytes per token", bytes_per_token)


def experts_touched(moe: Moe, batch: int) -> float:
    """Experts of a layer that a batch reads, each token choosing alike and at random: E (1 - (1 - k/E)^b)."""
    return moe.experts * (1 - (1 - moe.active / moe.experts) ** batch)


def weights_per_step(card: ModelCard, batch: int = 1, bits: float = 16) -> float:
    """Bytes of weights one decode step of `batch` sequences reads; an MoE reads more experts as the batch grows."""
    dims = card.dims
    if dims is None:
        if card.active_decode is None or batch > 1:
            card.need()
        return (card.active_decode or 0) * bits / 8
    touched = experts_touched(dims.moe, batch) if dims.moe else None
    return parameters(dims).read_per_step(touched) * bits / 8


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step: seconds, tokens per second of the whole batch, and which of the two bounds it is."""

    seconds: float
    tokens_per_s: float
    bound: str  # "memory" or "compute"


def decode_step(
    card: ModelCard,
    *,
    batch: int,
    context: int,
    bytes_per_s: float,
    flops_per_s: float,
    bits: float = 16,
    kv: str = "bf16",
) -> Step:
    """max((weights + batch x cache) / bandwidth, 2 x active x batch / FLOP/s). Attention's operations are left out."""
    if batch < 1:
        raise CardError(f"a batch holds at least one sequence, not {batch}")
    moved = weights_per_step(card, batch, bits) + batch * cache.per_sequence(card, context, kv)
    memory = moved / _positive("bandwidth", bytes_per_s)
    compute = 2 * batch * weights_per_step(card, 1, 8) / _positive("FLOP/s", flops_per_s)
    seconds = max(memory, compute)
    return Step(seconds, batch / seconds, "memory" if memory >= compute else "compute")


def efficiency(tokens_per_s: float, bytes_per_s: float, bytes_per_token: float) -> float:
    """Measured decode rate over the bound."""
    return tokens_per_s / decode_bound(bytes_per_s, bytes_per_token)


def reading(share: float) -> str:
    """What an efficiency says: "invalid", "suspicious", "swapping" or "plausible"."""
    if share > 1:
        return "invalid"
    if share > SUSPICIOUS:
        return "suspicious"
    return "swapping" if share < SWAPPING else "plausible"


def _positive(what: str, value: float) -> float:
    if not value > 0:
        raise CardError(f"{what} must be above 0, it is {value!r}")
    return value

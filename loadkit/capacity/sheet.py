"""One page about a model before anything is measured: accounts, what fits, how prefill grows, bounds of decode.

Everything is arithmetic on the card; the functions it calls have the formulas and their sources.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadkit.capacity import flops, roofline
from loadkit.capacity import kv as cache
from loadkit.capacity.accounts import accounts
from loadkit.capacity.card import ModelCard
from loadkit.capacity.memory import Memory, fit
from loadkit.capacity.params import parameters, total

GROWTH = (8192, 131_072)  # tokens: the article's example of a context made 16 times longer
HIT = 0.9  # of a prompt found in the prefix cache
BATCHES = (1, 8, 64)
OFFLOAD = ("llama.cpp --n-cpu-moe", "KTransformers")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a sheet is made for: memory, bytes per second of it, FLOP/s; None where not known."""

    memory: Memory | None = None
    bandwidth: float | None = None
    flops_per_s: float | None = None


def sheet(
    card: ModelCard,
    machine: Machine,
    tiers: Sequence[int],
    *,
    sequences: int = 1,
    bits: float | None = None,
    kv: str = "bf16",
) -> dict[str, Any]:
    """The page as plain values: bytes, parameters, tokens, seconds, tokens/s. Parts that cannot be known are None.

    CardError for what cannot be: no memory, a cache type that is not known, heads that do not split over the GPUs.
    """
    cache.value_bytes(kv)
    return {
        "schema": "loadkit-card/1",
        "model": card.name,
        "source": card.source,
        "parameters": _parameters(card),
        "accounts": asdict(accounts(card, bits, kv)),
        "cache": [_cached(card, tokens, kv) for tokens in tiers] if _grows(card) else None,
        "fit": _fits(card, machine.memory, tiers, sequences, bits, kv) if machine.memory and _grows(card) else None,
        "prefill": _prefill(card, tiers) if card.dims else None,
        "decode": _decode(card, machine, tiers, bits, kv) if machine.bandwidth and _reads(card) else None,
        "ridge_flop_per_byte": _ridge(machine),
    }


def _grows(card: ModelCard) -> bool:
    return card.dims is not None or card.kv_bytes_per_token is not None


def _reads(card: ModelCard) -> bool:
    return card.dims is not None or card.active_decode is not None


def _parameters(card: ModelCard) -> dict[str, Any]:
    """Computed from dimensions where there are some; `stated` stands beside."""
    computed = parameters(card.dims) if card.dims else None
    return {
        "total": total(card),
        "stated": card.params,
        "active": computed.active(card.active_embedding) if computed else card.active,
        "linear": computed.linear if computed else None,
    }


def _cached(card: ModelCard, tokens: int, kv: str) -> dict[str, Any]:
    return {"tokens": tokens, "bytes": cache.per_sequence(card, tokens, kv)}


def _fits(
    card: ModelCard, memory: Memory, tiers: Sequence[int], sequences: int, bits: float | None, kv: str
) -> list[dict[str, Any]]:
    """A row per tier. What does not fit for its weights names the engines that keep some of them elsewhere."""
    rows = []
    for tokens in tiers:
        found = fit(card, memory, tokens, sequences=sequences, bits=bits, kv=kv)
        ratio = found.per_sequence * sequences / found.weights
        offload = list(OFFLOAD) if found.lacks == "weights" else []
        rows.append({**asdict(found), "cache_over_weights": ratio, "offload": offload})
    return rows


def _prefill(card: ModelCard, tiers: Sequence[int]) -> dict[str, Any]:
    """Operations per tier with attention's share, and why 16 times the length is neither 16 nor 256 times the work."""
    dims = card.need()
    first, last = GROWTH
    rows = [
        {
            "tokens": tokens,
            "operations": flops.prefill(dims, tokens),
            "attention_share": flops.attention(dims, tokens) / flops.prefill(dims, tokens),
            "exponent": flops.local_exponent(dims, tokens),
            "left_with_prefix": flops.remaining(dims, tokens, HIT),
        }
        for tokens in tiers
    ]
    return {
        "tiers": rows,
        "crossover_tokens": flops.crossover(dims),
        "growth": {
            "from": first,
            "to": last,
            "all": flops.growth(dims, first, last),
            "linear": last / first,
            "attention": flops.attention(dims, last) / flops.attention(dims, first) if dims.full_layers else None,
        },
        "hit": HIT,
    }


def _decode(
    card: ModelCard, machine: Machine, tiers: Sequence[int], bits: float | None, kv: str
) -> list[dict[str, Any]]:
    """Bounds of one decode step at the first tier's context: batches of sequences, and the experts they read."""
    width = bits or card.bits or 16
    assert machine.bandwidth is not None
    if card.dims is None or machine.flops_per_s is None:
        moved = roofline.weights_per_step(card, 1, width) + (
            cache.per_sequence(card, tiers[0], kv) if _grows(card) else 0
        )
        rate = roofline.decode_bound(machine.bandwidth, moved)
        return [{"batch": 1, "context": tiers[0], "seconds": 1 / rate, "tokens_per_s": rate, "bound": "memory"}]
    rows = []
    for batch in BATCHES:
        step = roofline.decode_step(
            card,
            batch=batch,
            context=tiers[0],
            bytes_per_s=machine.bandwidth,
            flops_per_s=machine.flops_per_s,
            bits=width,
            kv=kv,
        )
        touched = roofline.experts_touched(card.dims.moe, batch) if card.dims.moe else None
        rows.append({"batch": batch, "context": tiers[0], **asdict(step), "experts_touched": touched})
    return rows


def _ridge(machine: Machine) -> float | None:
    if machine.flops_per_s is None or machine.bandwidth is None:
        return None
    return roofline.ridge_point(machine.flops_per_s, machine.bandwidth)

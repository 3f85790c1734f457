"""What a model costs, as four accounts that are never mixed: weights, prefill, decode, cache."""

from dataclasses import dataclass

from loadkit.capacity import kv as cache
from loadkit.capacity.card import ModelCard
from loadkit.capacity.memory import weight_bytes
from loadkit.capacity.params import parameters


@dataclass(frozen=True, slots=True)
class Accounts:
    """Bytes of weights, parameters met by a prompt token, parameters read for an output token, bytes of cache growth.

    8B active in prefill are neither 8B of memory nor 8B in decode. None where neither dimensions nor maker tell.
    """

    weight_bytes: float
    active_prefill: int | None
    active_decode: int | None
    kv_bytes_per_token: float | None


def accounts(card: ModelCard, bits: float | None = None, kv: str = "bf16") -> Accounts:
    """The four accounts of a card: stated figures first, else those of its dimensions."""
    counted = parameters(card.dims) if card.dims else None
    known = card.dims is not None or card.kv_bytes_per_token is not None
    return Accounts(
        weight_bytes=weight_bytes(card, bits),
        active_prefill=card.active_prefill or (counted.linear if counted else card.active),
        active_decode=card.active_decode or (round(counted.read_per_step()) if counted else card.active),
        kv_bytes_per_token=cache.per_token(card, kv) if known else None,
    )

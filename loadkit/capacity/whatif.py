"""What a shorter prompt, a cached prefix or another model saves, from a measured unit price (ms of TTFT per token).

TTFT = tokens x price. With a card, the price at one length is carried to another by its operations, which grow faster
than the length; without one it is taken as constant, and the answer says so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loadkit.capacity import flops
from loadkit.capacity.card import ModelCard
from loadkit.capacity.errors import CardError


@dataclass(frozen=True, slots=True)
class Price:
    """Milliseconds per prompt token, and the length at which it was measured (None: taken for every length)."""

    ms: float
    at_tokens: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.ms < math.inf:
            raise CardError(f"a unit price must be a number above 0 ms per token, it is {self.ms!r}")


Prices = Mapping[int | None, float]
"""Milliseconds per token by the prompt tokens they were measured at, or under None where nobody says at which."""


def nearest(prices: Prices, tokens: float) -> Price:
    """The price measured at the length nearest to `tokens`, by ratio; one of no stated length goes before all."""
    if not prices:
        raise CardError("no unit price was measured")
    at = None if None in prices else min(filter(None, prices), key=lambda length: abs(math.log(length / tokens)))
    return Price(prices[at], at)


@dataclass(frozen=True, slots=True)
class Saving:
    """Two prompts in tokens, and their waits for the first token in s; `how` says how the price was carried."""

    tokens: int
    instead: int
    ttft_s: float
    instead_s: float
    how: str

    @property
    def saved_s(self) -> float:
        """Seconds until the first token that the shorter prompt saves."""
        return self.ttft_s - self.instead_s

    @property
    def share(self) -> float:
        """Share of the wait that is saved."""
        return self.saved_s / self.ttft_s


def ttft_s(tokens: int, price: Price, card: ModelCard | None = None) -> float:
    """Seconds until the first token: tokens x price, or by the card's operations from where it was measured."""
    if tokens < 1:
        raise CardError(f"a prompt has at least one token, not {tokens}")
    if card is None or card.dims is None or price.at_tokens is None:
        return tokens * price.ms / 1000
    return price.at_tokens * price.ms / 1000 * flops.growth(card.dims, price.at_tokens, tokens)


def stuffing(tokens: int, instead: int, price: Price, card: ModelCard | None = None) -> Saving:
    """A whole document against the chunks that matter: the wait of both prompts."""
    if instead > tokens:
        raise CardError(f"the prompt instead must be the shorter one, not {instead} against {tokens} tokens")
    known = card is not None and card.dims is not None and price.at_tokens is not None
    how = f"operations of {card.name}" if known and card else "one price for every length"
    return Saving(tokens, instead, ttft_s(tokens, price, card), ttft_s(instead, price, card), how)


def cached_s(tokens: int, prefix: int, price: Price, card: ModelCard | None = None) -> float:
    """Seconds that a cached prefix saves: its tokens x price, or the share of operations it stands for by the card."""
    if not 0 <= prefix < tokens:
        raise CardError(f"a prefix is shorter than its prompt, not {prefix} of {tokens} tokens")
    if prefix == 0:
        return 0.0
    whole = ttft_s(tokens, price, card)
    if card is None or card.dims is None or price.at_tokens is None:
        return whole * prefix / tokens
    return whole * (1 - flops.remaining(card.dims, tokens, prefix / tokens))


@dataclass(frozen=True, slots=True)
class Ratio:
    """Prices of two models in ms per token, where both were measured in tokens: first over second."""

    tokens: int | None
    first_ms: float
    second_ms: float

    @property
    def ratio(self) -> float:
        """How many times dearer the first is."""
        return self.first_ms / self.second_ms


def price_ratios(first: Prices, second: Prices) -> list[Ratio]:
    """Ratios at the lengths that both series have, ms per token by prompt tokens. CardError where they share none."""
    shared = sorted(set(first) & set(second), key=lambda tokens: tokens or 0)
    if not shared:
        raise CardError("the two series share no prompt length; measure both at the same tokens")
    return [Ratio(tokens, first[tokens], second[tokens]) for tokens in shared]

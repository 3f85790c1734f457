"""What a model card predicts for the knee in prompt length, to print beside the measured one and never instead of it.

The prediction assumes that attention runs at the efficiency of the other matrix products, and no fixed cost.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from loadkit.capacity import flops
from loadkit.capacity.card import ModelCard
from loadkit.capacity.catalogue import dimensions, lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import parameters


def predict(model_names: Iterable[str], facts: Mapping[str, Any] | None = None, causal: bool = True) -> dict | None:
    """The prediction for the model of a run, or None where no card is known or attention never takes over.

    `facts` is what a target told of itself (`target` in the manifest): an engine's own `dimensions` go before the
    catalogue. `linear_params` counts weights, `crossover_tokens` and `k25_tokens` are prompt tokens, see `flops`.
    """
    card = find(model_names, facts)
    if card is None or card.dims is None:
        return None
    crossing, knee = flops.crossover(card.dims, causal), flops.k25(card.dims, causal)
    if crossing is None or knee is None:
        return None
    return {
        "model": card.name,
        "source": card.source,
        "linear_params": parameters(card.dims).linear,
        "crossover_tokens": crossing,
        "k25_tokens": knee,
        "causal": causal,
    }


def find(model_names: Iterable[str], facts: Mapping[str, Any] | None = None) -> ModelCard | None:
    """The card of a run: from the target's own dimensions, else the catalogue's; None when names disagree."""
    told = _told(facts or {})
    if told is not None:
        return told
    names = [*model_names, (facts or {}).get("model")]
    found = {card.name: card for name in names if isinstance(name, str) and (card := lookup(name)) is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def predict_ttft_ratio(card: ModelCard, tokens_a: float, tokens_b: float, causal: bool = True) -> float:
    """TTFT at `tokens_b` over TTFT at `tokens_a` if time went with operations: no queue, no fixed cost, no cache."""
    return flops.growth(card.need(), tokens_a, tokens_b, causal)


def _told(facts: Mapping[str, Any]) -> ModelCard | None:
    """The card of a target that told its dimensions; None when it told none, or ones that cannot be."""
    raw = facts.get("dimensions")
    if not isinstance(raw, dict):
        return None
    try:
        dims = dimensions(raw)
    except (CardError, TypeError):
        return None
    return ModelCard(name=str(facts.get("model") or "engine")[:200], source="the dimensions the target told", dims=dims)

"""How fast a server is thought to be: as an earlier run measured it, as a model card predicts it, or assumed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from loadkit.analysis.forecast.lengths import Lengths, lengths
from loadkit.analysis.forecast.span import Span
from loadkit.capacity import flops, roofline
from loadkit.capacity.card import ModelCard
from loadkit.capacity.inputs import positive
from loadkit.plan.ladder import Estimate

# Share of a chip's arithmetic that prefill reached, and of its memory bandwidth that decode reached: Llama-3.3-70B on
# H100 by NVIDIA's tables (0.446) and boards (0.3 to 0.82).
PREFILL_SHARE = (0.25, 0.446, 0.7)
DECODE_SHARE = (0.3, 0.6, 0.85)


class Speed(Protocol):
    """What a plan's time is worked out from. Times in ms."""

    @property
    def source(self) -> str:
        """Where the speed comes from, for the reader."""

    def ttft(self, tokens: float) -> Span:
        """TTFT of one prompt alone."""

    def gap(self, tokens: float, streams: int) -> Span:
        """Time between two tokens of an answer while so many streams decode behind prompts of so many tokens."""

    def measured(self, tier: int, streams: int) -> Mapping[str, Any] | None:
        """The cell of a summary for exactly this place, None where none was measured."""


class FromRun:
    """A run: its own cells where it has them, else its tiers at concurrency 1."""

    def __init__(self, summary: Mapping[str, Any], name: str) -> None:
        self.source = f"measured in {name}"
        self.lengths: Lengths = lengths(summary)
        ladder = [cell for cell in summary["cells"] if cell["rate"] is None and cell["stage"] is None]
        usable = [cell for cell in ladder if cell["validity"]["status"] != "invalid"]
        self._cells = {(c["tier_tokens"], c["concurrency"]): c for c in usable if c["ttft_ms"] and c["tpot_ms"]}

    def ttft(self, tokens: float) -> Span:
        return self.lengths.ttft(tokens)

    def gap(self, tokens: float, streams: int) -> Span:
        """That of the nearest cell; as many times longer at most as there are more streams than it had."""
        if not self._cells:
            return Span(0.0, 0.0, 0.0, "no answer of the run has two tokens")
        near = min(self._cells, key=lambda place: (abs(place[1] - streams), abs(place[0] - tokens)))
        times = self._cells[near]["tpot_ms"]
        low, high = times["ci"] or (times["min"], times["max"])
        return Span(low, times["p50"], high * max(1.0, streams / near[1]))

    def measured(self, tier: int, streams: int) -> Mapping[str, Any] | None:
        return self._cells.get((tier, streams))


@dataclass(frozen=True, slots=True)
class FromCard:
    """A model on a chip, by operations and bytes: FLOP/s and bytes/s of all chips of a replica, bits of a weight."""

    card: ModelCard
    flops_per_s: float
    bytes_per_s: float
    bits: float = 16
    kv: str = "bf16"

    def __post_init__(self) -> None:
        positive("FLOP/s", self.flops_per_s)
        positive("bandwidth", self.bytes_per_s)
        self.card.need()

    @property
    def source(self) -> str:
        """For the reader."""
        return f"predicted from the card of {self.card.name}, nothing was measured"

    def ttft(self, tokens: float) -> Span:
        """Operations over the share of FLOP/s that prefill reaches."""
        ms = 1000 * flops.prefill(self.card.need(), tokens) / self.flops_per_s
        low, value, high = (ms / share for share in reversed(PREFILL_SHARE))
        return Span(
            low, value, high, f"operations / FLOP/s at {PREFILL_SHARE[0]:.0%} to {PREFILL_SHARE[2]:.0%} of the peak"
        )

    def gap(self, tokens: float, streams: int) -> Span:
        """Bytes of a decode step over the share of the bandwidth that decode reaches."""
        step = roofline.decode_step(
            self.card,
            batch=streams,
            context=round(tokens),
            bytes_per_s=self.bytes_per_s,
            flops_per_s=self.flops_per_s,
            bits=self.bits,
            kv=self.kv,
        )
        low, value, high = (1000 * step.seconds / share for share in reversed(DECODE_SHARE))
        return Span(low, value, high)

    def measured(self, tier: int, streams: int) -> Mapping[str, Any] | None:
        return None


@dataclass(frozen=True, slots=True)
class Assumed:
    """The speed that `--dry-run` assumes, half and twice of it as its ends."""

    estimate: Estimate
    source: str = "assumed, nothing was measured: --from RUN or --predict CARD give better ones"

    def ttft(self, tokens: float) -> Span:
        value = 1000 * self.estimate.ttft_s(round(tokens))
        return Span(value / 2, value, 2 * value, "assumed speed, half to twice")

    def gap(self, tokens: float, streams: int) -> Span:
        value = self.estimate.decode_ms
        return Span(value / 2, value, 2 * value)

    def measured(self, tier: int, streams: int) -> Mapping[str, Any] | None:
        return None

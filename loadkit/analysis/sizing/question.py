"""What is asked of a capacity session, checked before anything is computed."""

import math
from dataclasses import dataclass, field

from loadkit.analysis.sizing.mix import Share
from loadkit.capacity.card import ModelCard
from loadkit.capacity.kv import BYTES
from loadkit.capacity.memory import Memory
from loadkit.measure.slo import Slo
from loadkit.measure.slo import parse as parse_slo
from loadkit.plan.errors import ConfigError
from loadkit.plan.tiers import parse_tier

MOST_RATE = 1e6
MOST_GPUS = 4096
WHAT_IF = "context=16K, or kv=fp8 with --card and --memory"


@dataclass(frozen=True, slots=True)
class Prices:
    """A provider's list per million tokens; None where it is not known. Money everywhere is in `currency`."""

    currency: str = "USD"
    input: float | None = None
    output: float | None = None
    cached: float | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """One replica and the model on it: for the cache formula. `bits` of a stored weight, `kv` a type of `kv.BYTES`."""

    card: ModelCard
    memory: Memory
    bits: float | None = None
    kv: str = "bf16"


@dataclass(frozen=True, slots=True)
class Question:
    """Objectives in the grammar of `measure.slo`, arrivals in requests/s, money per GPU and hour, `gpus` per replica.

    `target_cost` is per million output tokens. Raises ConfigError, one line, for what cannot be.
    """

    slo: str
    rate: float | None = None
    mix: tuple[Share, ...] = ()
    headroom: float = 1.2
    gpu_hour: float | None = None
    gpus: int = 1
    target_cost: float | None = None
    prices: Prices = field(default_factory=Prices)
    hardware: Hardware | None = None
    what_if: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.objectives()
        _within("--rate", self.rate, "requests/s above 0", 0.0, MOST_RATE)
        _within("--gpu-hour", self.gpu_hour, "a price above 0", 0.0, math.inf)
        _within("--target-cost", self.target_cost, "a price above 0", 0.0, math.inf)
        if not (math.isfinite(self.headroom) and 1 <= self.headroom <= 100):
            raise ConfigError(f"--headroom {self.headroom:g}: must be from 1 (none) to 100; 1.2 keeps a fifth")
        if not 1 <= self.gpus <= MOST_GPUS:
            raise ConfigError(f"--gpus {self.gpus}: a replica has from 1 to {MOST_GPUS} GPUs")
        if self.target_cost is not None and self.gpu_hour is None:
            raise ConfigError("--target-cost needs --gpu-hour: without a price there is no cost to compare")
        for change in self.what_if:
            parse_change(change, self)
        self._check_context()

    def _check_context(self) -> None:
        """An entry of the mix that the model cannot hold contradicts its card."""
        card = self.hardware.card if self.hardware else None
        most = card and (card.context or (card.dims.context if card.dims else None))
        for share in self.mix:
            if card and most and share.tier_tokens + (share.output_tokens or 0) > most:
                raise ConfigError(f"--mix {share.name}: {card.name} takes {most:,} tokens of prompt and answer")

    def objectives(self) -> list[Slo]:
        """The objectives; ConfigError where they cannot be read."""
        if not self.slo:
            raise ConfigError("there is no objective: give --slo, such as ttft=2s,itl=50ms")
        try:
            return parse_slo(self.slo)
        except ValueError as error:
            raise ConfigError(f"--slo: {error}") from None

    @property
    def replica_hour(self) -> float | None:
        """Price of a replica per hour."""
        return None if self.gpu_hour is None else self.gpu_hour * self.gpus


def parse_change(text: str, question: Question) -> tuple[str, int | str]:
    """(context, tokens) or (kv, type) of one --what-if. ConfigError for anything else."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    if name == "context" and equals:
        return name, parse_tier(value)
    if name == "kv" and equals:
        if value not in BYTES:
            raise ConfigError(f"--what-if kv={value[:40]}: one of {', '.join(BYTES)}")
        if question.hardware is None:
            raise ConfigError("--what-if kv= needs --card and --memory: the cache is worked out from the model")
        return name, value
    raise ConfigError(f"--what-if {text[:40]!r}: expected {WHAT_IF}")


def _within(name: str, value: float | None, what: str, above: float, most: float) -> None:
    if value is not None and not (above < value <= most and math.isfinite(value)):
        raise ConfigError(f"{name} {value:g}: must be {what}{f' and at most {most:g}' if math.isfinite(most) else ''}")

"""One request's life inside the engine: what was asked, what has come out, and when.

The server's thread makes a `Generation` and reads its events; the scheduler's thread fills them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.attention import Cache

COLDEST = 1e-4  # below it the likeliest token always wins, and dividing logits by it could overflow


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an answer is chosen and when it ends."""

    max_tokens: int
    min_tokens: int = 0  # before this many, a stop token cannot be chosen
    ignore_eos: bool = False  # stop tokens are never chosen
    temperature: float = 0.0  # below COLDEST it takes the likeliest token
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a generation."""

    reason: str  # "stop", "length", "abort" (the client left), "error"
    error: str = ""


@dataclass(slots=True, eq=False)
class Generation:
    """A prompt on its way through the engine. Times are seconds of the scheduler's clock."""

    prompt: list[int]
    sampling: Sampling
    alive: Callable[[], bool]  # False when nobody waits for the answer any more
    events: SimpleQueue[int | Finished] = field(default_factory=SimpleQueue)  # token ids, then one Finished
    output_tokens: int = 0
    last_token: int = -1
    cache: Cache | None = None
    submitted_s: float = 0.0
    started_s: float | None = None  # the first prefill chunk began
    first_token_s: float | None = None
    last_token_s: float | None = None
    rng: np.random.Generator | None = None

    def timings(self) -> dict[str, float]:
        """llama.cpp's `timings`, ms: the first token is charged to the prompt, the others to prediction."""
        started = self.submitted_s if self.started_s is None else self.started_s
        first = started if self.first_token_s is None else self.first_token_s
        predicted_ms = 0.0 if self.last_token_s is None else 1000 * (self.last_token_s - first)
        return {
            "cache_n": 0,
            "prompt_n": len(self.prompt),
            "prompt_ms": 1000 * (first - started),
            "predicted_n": self.output_tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / max(self.output_tokens - 1, 1),
            "queue_ms": 1000 * (started - self.submitted_s),
        }

    def next_token(self, logits: NDArray[np.float32], stops: NDArray[np.intp], suppressed: NDArray[np.intp]) -> int:
        """The next token from logits [V], which are changed in place."""
        logits[suppressed] = -np.inf
        if self.sampling.ignore_eos or self.output_tokens < self.sampling.min_tokens:
            logits[stops] = -np.inf
        if self.sampling.temperature < COLDEST:
            return int(logits.argmax())
        if self.rng is None:
            self.rng = np.random.default_rng(self.sampling.seed)
        # The largest of logit / temperature + Gumbel noise is a draw from the softmax.
        return int((logits / self.sampling.temperature + self.rng.gumbel(size=logits.shape)).argmax())

"""One request's life inside the engine: what was asked, what has come out, and when.

The server's thread makes a `Generation`; the scheduler's thread fills it and hands out its tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
    emit: Callable[[int | Finished], None]  # takes each token id, then one Finished; called by the scheduler's thread
    tokenize_s: float = 0.0  # template and tokenizer, before it was queued
    reuse: bool = False  # the prompt's keys and values may come from, and go to, the prefix cache
    cached_tokens: int = 0  # prompt tokens whose keys and values came from there
    output_tokens: int = 0
    last_token: int = -1
    cache: Cache | None = None
    submitted_s: float = 0.0
    started_s: float | None = None  # the first prefill chunk began
    first_token_s: float | None = None
    last_token_s: float | None = None
    rng: np.random.Generator | None = None

    def timings(self) -> dict[str, float]:
        """llama.cpp's `timings`, ms: the first token is charged to the prompt, the others to prediction.

        `prompt_n` leaves out the `cache_n` tokens of the prefix cache; `queue_ms` and, before it, `tokenize_ms` are
        this engine's own.
        """
        started = self.submitted_s if self.started_s is None else self.started_s
        first = started if self.first_token_s is None else self.first_token_s
        prompt_ms, prompt_n = 1000 * (first - started), len(self.prompt) - self.cached_tokens
        predicted_ms = 0.0 if self.last_token_s is None else 1000 * (self.last_token_s - first)
        steps = max(self.output_tokens - 1, 0)
        return {
            "cache_n": self.cached_tokens,
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / prompt_n,
            "prompt_per_second": 1000 * prompt_n / prompt_ms if prompt_ms else 0.0,
            "predicted_n": self.output_tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / max(steps, 1),
            "predicted_per_second": 1000 * steps / predicted_ms if predicted_ms else 0.0,
            "queue_ms": 1000 * (started - self.submitted_s),
            "tokenize_ms": 1000 * self.tokenize_s,
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

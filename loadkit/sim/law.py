"""The latency law of the simulated server: pure functions of a few numbers, no clock and no randomness of its own.

TTFT(n) = a + b*n + c*n^2 + d*max(0, n - K1) + (X if n > K2 else 0), n = prompt tokens that are not cached,
times (1 + jitter*u) with u in [-1, 1). Times are milliseconds before scaling; schedules are integer nanoseconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

MAX_MS = 1e10
MAX_COUNT = 10**9


def _opt(default: Any, help_text: str, **meta: Any) -> Any:
    return field(default=default, metadata={"help": help_text, **meta})


@dataclass(frozen=True, slots=True)
class Law:
    """Everything a request's timing and outcome depend on. Each field is a command-line option and an `X-Sim` key;
    fields marked `request_only` are faults and exist only as keys."""

    ttft_ms: float = _opt(50.0, "a: TTFT of an empty prompt, ms")
    per_token_ms: float = _opt(0.0, "b: ms per prompt token")
    per_token2_ms: float = _opt(0.0, "c: ms per squared prompt token")
    hinge_at: int | None = _opt(None, "K1: prompt tokens above which the slope grows")
    hinge_per_token_ms: float = _opt(0.0, "d: ms per token added to the slope above K1")
    break_at: int | None = _opt(None, "K2: prompt tokens above which TTFT jumps")
    break_ms: float = _opt(0.0, "X: the jump above K2, ms")
    jitter: float = _opt(0.0, "TTFT is multiplied by 1 + jitter*u, u uniform in [-1, 1)", high=1)
    itl_ms: float = _opt(20.0, "ms between two token events")
    tokens_per_event: int = _opt(1, "output tokens in one event", low=1)
    events_per_write: int = _opt(1, "events in one write; the write is due when its first event is", low=1)
    lock_step: bool = _opt(False, "round every event up to one global grid of itl_ms, as a batching engine emits")
    output_tokens: int = _opt(128, "output tokens when the request sets no max_tokens", low=1)
    eos_after: int | None = _opt(None, "the model ends by itself after this many tokens unless ignore_eos", low=1)
    role: str = _opt("at-once", "when the role-only chunk is sent", choices=("at-once", "with-first", "none"))
    window: int | None = _opt(None, "context window in tokens; prompt + max_tokens above it is a 400", low=1)
    cached_tokens: int = _opt(0, "prompt tokens reported as cached; they cost no prefill")
    error_rate: float = _opt(0.0, "share of requests answered with error_status", high=1)
    error_status: int = _opt(503, "status of an injected error", low=400, high=599)
    retry_after: str = _opt("1", "Retry-After header of 429 and 503; empty = none")
    response_model: str | None = _opt(None, "model name in answers, if not the one asked for", request_only=True)
    cut_after: int | None = _opt(None, "close cleanly in mid-body when this many events are out", request_only=True)
    reset_after: int | None = _opt(None, "reset the connection after this many events", request_only=True)
    inband_error_after: int | None = _opt(None, "send an in-band error after this many events", request_only=True)
    stall_after: int | None = _opt(None, "go silent after this many events", request_only=True)
    stall_ms: float | None = _opt(None, "length of that silence; absent = until the client leaves", request_only=True)

    def with_changes(self, changes: Mapping[str, Any]) -> Law:
        """A copy with `changes` (JSON values) applied; ValueError, one line, for an unknown key or a wrong value."""
        checked = {}
        for name, value in changes.items():
            spec = _SPECS.get(name)
            if spec is None:
                raise ValueError(f"sim: unknown key {name[:40]!r}; known: {', '.join(_SPECS)}")
            checked[name] = _checked(name, spec, value)
        return replace(self, **checked)

    def ttft(self, prompt_tokens: int) -> float:
        """Milliseconds from receipt to the first token for `prompt_tokens`, before jitter and scale."""
        n = max(0, prompt_tokens - self.cached_tokens)
        time = self.ttft_ms + self.per_token_ms * n + self.per_token2_ms * n * n
        if self.hinge_at is not None:
            time += self.hinge_per_token_ms * max(0, n - self.hinge_at)
        if self.break_at is not None and n > self.break_at:
            time += self.break_ms
        return time


_SPECS = {spec.name: spec for spec in fields(Law)}


def kind_of(spec: Any) -> type:
    """The scalar type behind a Law field's annotation (`int | None` is int)."""
    return {"float": float, "int": int, "bool": bool, "str": str}[str(spec.type).split(" ")[0]]


def _checked(name: str, spec: Any, value: Any) -> Any:
    if value is None and "None" in str(spec.type):
        return None
    kind, meta = kind_of(spec), spec.metadata
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return _checked_text(name, str(value), meta.get("choices"))
    if kind in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _checked_number(name, kind, value, meta)
    raise ValueError(f"sim: {name} must be of type {kind.__name__}")


def _checked_text(name: str, value: str, choices: tuple[str, ...] | None) -> str:
    if choices and value not in choices:
        raise ValueError(f"sim: {name} must be one of {', '.join(choices)}")
    if len(value) > 200 or not value.isascii() or not value.isprintable():
        raise ValueError(f"sim: {name} must be printable ASCII of at most 200 characters")
    return value


def _checked_number(name: str, kind: type, value: int | float, meta: Mapping[str, Any]) -> int | float:
    low, high = meta.get("low", 0), meta.get("high", MAX_COUNT if kind is int else MAX_MS)
    if kind is int and value != value // 1:
        raise ValueError(f"sim: {name} must be a whole number")
    if not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"sim: {name} must be from {low} to {high:g}")
    return kind(value)


class Dice:
    """The seeded randomness of a server: exactly two draws per request in order of receipt, whatever the law."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.reset()

    def reset(self) -> None:
        """Start the sequence again, so that the same requests meet the same fate."""
        self._random = random.Random(self._seed)

    def roll(self) -> tuple[float, float]:
        """(error draw in [0, 1), jitter draw in [-1, 1)) of the next request."""
        return self._random.random(), 2 * self._random.random() - 1


@dataclass(frozen=True, slots=True)
class Schedule:
    """When one answer's writes are due, absolute on the monotonic clock, and how it ends.

    Write j carries events j*per_write up to (j+1)*per_write and is due at `due(j)`; `due(writes)` is when the event
    after the last one would have come: there a fault happens."""

    first_ns: int
    step_ns: int
    events: int
    tokens: int
    tokens_per_event: int
    per_write: int
    ending: str
    finish: str
    stall_from: int
    stall_ns: int

    @property
    def writes(self) -> int:
        return -(-self.events // self.per_write)

    def due(self, write: int) -> int:
        """The nanosecond at which `write` must leave; a function of its number alone, so lateness never adds up."""
        return self.first_ns + write * self.step_ns + (self.stall_ns if write >= self.stall_from else 0)

    def tokens_of(self, events: int) -> int:
        """Output tokens in the first `events` events."""
        return min(self.tokens, events * self.tokens_per_event)


def output_length(law: Law, max_tokens: int | None, ignore_eos: bool, min_tokens: int) -> tuple[int, str]:
    """(output tokens, finish reason): max_tokens unless the model ends by itself before."""
    limit = law.output_tokens if max_tokens is None else max_tokens
    if law.eos_after is None or ignore_eos:
        return limit, "length"
    wanted = max(law.eos_after, min_tokens)
    return (wanted, "stop") if wanted < limit else (limit, "length")


def schedule(
    law: Law, prompt_tokens: int, output: tuple[int, str], start_ns: int, jitter: float, scale: float
) -> Schedule:
    """The plan of one answer whose service starts at `start_ns`; `jitter` in [-1, 1), `scale` multiplies all times."""
    tokens, finish = output
    first = start_ns + _ns(law.ttft(prompt_tokens) * (1 + law.jitter * jitter) * scale)
    itl_ns = _ns(law.itl_ms * scale)
    if law.lock_step and itl_ns:
        first = -(-first // itl_ns) * itl_ns
    events = -(-tokens // law.tokens_per_event)
    ending = "complete"
    for name, after in _faults(law):
        if after < events:
            events, ending = after, name
    per_write = law.events_per_write
    stall_from = events + 1
    if law.stall_after is not None and law.stall_ms is not None:
        stall_from = -(-law.stall_after // per_write)
    return Schedule(first, itl_ns * per_write, events, tokens, law.tokens_per_event, per_write, ending, finish,
                    stall_from, _ns((law.stall_ms or 0) * scale))  # fmt: skip


def _faults(law: Law) -> list[tuple[str, int]]:
    endless_stall = law.stall_after if law.stall_ms is None else None
    named = [("cut", law.cut_after), ("reset", law.reset_after), ("inband_error", law.inband_error_after),
             ("stall", endless_stall)]  # fmt: skip
    return [(name, after) for name, after in named if after is not None]


def _ns(ms: float) -> int:
    return round(ms * 1e6)

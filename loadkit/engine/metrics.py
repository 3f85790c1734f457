"""The engine's own counts and times, rendered as Prometheus text. Names follow vLLM's, times are seconds."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence

from loadkit.engine.generation import Generation

PREFIX = "loadkit_engine_"
REASONS = ("stop", "length", "abort", "error")
TOKEN_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)
REQUEST_BOUNDS = (0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
HISTOGRAMS = {
    "time_to_first_token_seconds": (REQUEST_BOUNDS, "From acceptance to the first token."),
    "request_queue_time_seconds": (REQUEST_BOUNDS, "From acceptance to the first prefill chunk."),
    "request_prefill_time_seconds": (REQUEST_BOUNDS, "From the first prefill chunk to the first token."),
    "inter_token_latency_seconds": (TOKEN_BOUNDS, "Between two tokens of one answer."),
    "request_decode_time_seconds": (REQUEST_BOUNDS, "From the first to the last token."),
    "request_time_per_output_token_seconds": (TOKEN_BOUNDS, "Decode time over tokens after the first."),
    "e2e_request_latency_seconds": (REQUEST_BOUNDS, "From acceptance to the end."),
}


class Histogram:
    """Counts of values at or below fixed bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> list[str]:
        lines, total = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*lines, f"{name}_sum {self.sum}", f"{name}_count {total}"]


class Metrics:
    """Everything counted since the start. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._queried_tokens = 0
        self._generation_tokens = 0
        self._rejected = 0
        self._finished = dict.fromkeys(REASONS, 0)
        self._times = {name: Histogram(bounds) for name, (bounds, _) in HISTOGRAMS.items()}

    def prefilled(self, tokens: int, cached: int) -> None:
        """A whole prompt has been read; `cached` of its tokens came from the prefix cache."""
        with self._lock:
            self._prompt_tokens += tokens
            self._cached_tokens += cached

    def looked_up(self, tokens: int) -> None:
        """A prompt of so many tokens was looked up in the prefix cache."""
        with self._lock:
            self._queried_tokens += tokens

    def gap(self, seconds: float) -> None:
        """So long after the one before it came a token of the same answer."""
        with self._lock:
            self._times["inter_token_latency_seconds"].add(seconds)

    def generated(self) -> None:
        """One token has been handed out."""
        with self._lock:
            self._generation_tokens += 1

    def rejected(self) -> None:
        """A request was refused because the queue is full."""
        with self._lock:
            self._rejected += 1

    def finished(self, generation: Generation, reason: str, end_s: float) -> None:
        """A generation ended for `reason`, one of REASONS; times that it never reached are not counted."""
        g = generation
        with self._lock:
            self._finished[reason] += 1
            self._times["e2e_request_latency_seconds"].add(end_s - g.submitted_s)
            if g.started_s is not None:
                self._times["request_queue_time_seconds"].add(g.started_s - g.submitted_s)
            if g.started_s is not None and g.first_token_s is not None and g.last_token_s is not None:
                decode_s = g.last_token_s - g.first_token_s
                self._times["time_to_first_token_seconds"].add(g.first_token_s - g.submitted_s)
                self._times["request_prefill_time_seconds"].add(g.first_token_s - g.started_s)
                self._times["request_decode_time_seconds"].add(decode_s)
                if g.output_tokens > 1:
                    per_token = decode_s / (g.output_tokens - 1)
                    self._times["request_time_per_output_token_seconds"].add(per_token)

    def render(self, *, running: int, waiting: int, kv_usage: float) -> str:
        """Prometheus text format 0.0.4; the three gauges are the scheduler's."""
        with self._lock:
            lines = _sample("num_requests_running", "gauge", "Requests that hold a slot.", running)
            lines += _sample("num_requests_waiting", "gauge", "Requests that wait for a slot.", waiting)
            lines += _sample("kv_cache_usage_perc", "gauge", "Filled share of slots times window.", kv_usage)
            lines += _sample("prompt_tokens_total", "counter", "Prompt tokens read.", self._prompt_tokens)
            queried, cached = self._queried_tokens, self._cached_tokens
            lines += _sample("prefix_cache_queries_total", "counter", "Prompt tokens looked up.", queried)
            lines += _sample("prefix_cache_hits_total", "counter", "Prompt tokens found.", cached)
            lines += _sample("generation_tokens_total", "counter", "Tokens generated.", self._generation_tokens)
            lines += _sample("requests_rejected_total", "counter", "Requests refused, queue full.", self._rejected)
            name = PREFIX + "request_success_total"
            lines += _head(name, "counter", "Requests ended, by reason.")
            lines += [f'{name}{{finished_reason="{reason}"}} {count}' for reason, count in self._finished.items()]
            for key, histogram in self._times.items():
                lines += _head(PREFIX + key, "histogram", HISTOGRAMS[key][1])
                lines += histogram.lines(PREFIX + key)
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _sample(key: str, kind: str, text: str, value: float) -> list[str]:
    return [*_head(PREFIX + key, kind, text), f"{PREFIX}{key} {value}"]

"""What the target says of itself at its own /metrics: vLLM, SGLang, llama.cpp, TGI, and the embedded engine.

Times are means over the requests that ended between two samples, so that TTFT splits into network, queue and prefill
where the server tells; a server that counts no such times gives its gauges alone.
"""

import math
import re
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpcore
import httpx

MAX_TEXT = 4 * 1024 * 1024  # bytes of a page that are looked at


@dataclass(frozen=True, slots=True)
class Names:
    """How one engine names what a sample holds; several names are tried in order, histograms without their suffix.

    `scale` brings the times to ms. `ratio` counts the prefix cache: (found, asked).
    """

    gauges: Mapping[str, tuple[str, ...]]
    times: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ratio: tuple[str, str] | None = None
    scale: float = 1e3


ENGINES: dict[str, Names] = {
    "vllm": Names(
        {
            "running": ("vllm:num_requests_running",),
            "waiting": ("vllm:num_requests_waiting",),
            "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
            "preemptions": ("vllm:num_preemptions_total", "vllm:num_preemptions"),
        },
        {
            "queue_ms": ("vllm:request_queue_time_seconds",),
            "prefill_ms": ("vllm:request_prefill_time_seconds",),
            "decode_ms": ("vllm:request_decode_time_seconds",),
            "ttft_ms": ("vllm:time_to_first_token_seconds",),
        },
        ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
    ),
    "sglang": Names(
        {
            "running": ("sglang:num_running_reqs",),
            "waiting": ("sglang:num_queue_reqs",),
            "kv_usage": ("sglang:token_usage",),
            "prefix_hit": ("sglang:cache_hit_rate",),
        },
        {"queue_ms": ("sglang:queue_time_seconds",), "ttft_ms": ("sglang:time_to_first_token_seconds",)},
    ),
    "llama.cpp": Names(
        {
            "running": ("llamacpp:requests_processing",),
            "waiting": ("llamacpp:requests_deferred",),
            "kv_usage": ("llamacpp:kv_cache_usage_ratio",),
        },
    ),
    "tgi": Names(
        {"running": ("tgi_batch_current_size",), "waiting": ("tgi_queue_size",)},
        {"queue_ms": ("tgi_request_queue_duration",)},
    ),
    "loadkit": Names(
        {
            "running": ("loadkit_engine_num_requests_running",),
            "waiting": ("loadkit_engine_num_requests_waiting",),
            "kv_usage": ("loadkit_engine_kv_cache_usage_perc",),
        },
        {
            "queue_ms": ("loadkit_engine_request_queue_time_seconds",),
            "prefill_ms": ("loadkit_engine_request_prefill_time_seconds",),
            "decode_ms": ("loadkit_engine_request_decode_time_seconds",),
            "ttft_ms": ("loadkit_engine_time_to_first_token_seconds",),
        },
        ("loadkit_engine_prefix_cache_hits_total", "loadkit_engine_prefix_cache_queries_total"),
    ),
}
LARGEST = ("kv_usage", "prefix_hit")  # of several replicas the fullest counts; everything else adds up


def _wanted(names: Names) -> list[str]:
    plain = [name for group in names.gauges.values() for name in group] + list(names.ratio or ())
    return plain + [f"{name}_{end}" for group in names.times.values() for name in group for end in ("sum", "count")]


_LINE = re.compile(
    r"^(" + "|".join(sorted({re.escape(name) for names in ENGINES.values() for name in _wanted(names)})) + r")"
    r"(?:\{[^\n]*\})?[ \t]+(\S+)",
    re.MULTILINE | re.ASCII,
)


def parse(text: str) -> dict[str, list[float]]:
    """Name -> its values over all sets of labels, of the names that some engine has; other lines are skipped."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in _LINE.findall(text[:MAX_TEXT]):
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            found[name].append(number)
    return dict(found)


def engine_of(values: Mapping[str, list[float]]) -> str | None:
    """Which engine a page is of, by its gauges; None where it is none that is known."""
    return next(
        (
            engine
            for engine, names in ENGINES.items()
            if any(name in values for group in names.gauges.values() for name in group)
        ),
        None,
    )


def sample(values: Mapping[str, list[float]], before: Mapping[str, list[float]] | None = None) -> dict[str, Any] | None:
    """What a page says: {engine, running, waiting, kv_usage, preemptions, prefix_hit, queue_ms, prefill_ms, ttft_ms}.

    Means and the share of the prefix cache are over what happened since the page `before`. What is not told is None;
    None for the page of a server that is not known.
    """
    engine = engine_of(values)
    if engine is None:
        return None
    names = ENGINES[engine]
    found: dict[str, Any] = {"engine": engine, "prefix_hit": None, "preemptions": None, "kv_usage": None}
    for key, group in names.gauges.items():
        numbers = next((values[name] for name in group if name in values), None)
        found[key] = None if numbers is None else max(numbers) if key in LARGEST else sum(numbers)
    for key in ("queue_ms", "prefill_ms", "ttft_ms"):
        shares = [_change(f"{n}_sum", f"{n}_count", values, before) for n in names.times.get(key, ())]
        mean = next((share for share in shares if share is not None), None)
        found[key] = None if mean is None else mean * names.scale
    if names.ratio is not None:
        found["prefix_hit"] = _change(*names.ratio, values, before)
    return found


def _change(
    part: str, whole: str, values: Mapping[str, list[float]], before: Mapping[str, list[float]] | None
) -> float | None:
    """How much a sum rose for each that was counted; None where nothing was, or the server began anew."""
    if before is None or part not in values or whole not in values:
        return None
    rise = sum(values[part]) - sum(before.get(part, ()))
    count = sum(values[whole]) - sum(before.get(whole, ()))
    return rise / count if count > 0 and rise >= 0 else None


# The control client's transport raises httpcore's own.
_NO_ANSWER = (httpx.HTTPError, httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError)


def scrape(client: httpx.Client, url: str) -> dict[str, list[float]] | None:
    """The values of the page at `url`; None where there is no page of a server that is known."""
    try:
        answer = client.get(url, headers={"Accept": "text/plain"})
    except _NO_ANSWER:
        return None
    if answer.status_code != 200:
        return None
    values = parse(answer.text)
    return values if engine_of(values) else None


def row(found: Mapping[str, Any]) -> dict[str, Any]:
    """A sample as a line of telemetry.jsonl, taken now."""
    return {
        "kind": "server",
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "at_ms": time.perf_counter_ns() / 1e6,
        **found,
    }

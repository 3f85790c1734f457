"""`loadkit engine bench`: what a token of prompt and a token of answer cost, in this process, without a server.

Unit price = TTFT / prompt tokens, ms. TPOT = mean gap between tokens of one stream, ms. Their ratio, TPOT / unit price,
is how many prompt tokens are computed in the time of one decode step: `prefill_parallelism`. It is near 1 for an
engine that reads its prompt token by token, and depends on the machine far less than the two times do.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from loadkit.engine import machine
from loadkit.engine.attention import Cache
from loadkit.engine.dims import PREFIX
from loadkit.engine.errors import EngineError
from loadkit.engine.load import load
from loadkit.engine.model import Model


def bench(
    *,
    model: str | None,
    dims: str | None,
    threads: int,
    seed: int,
    prefill_mode: str,
    tokens: Sequence[int],
    rounds: int,
    output_tokens: int,
    as_json: bool,
) -> None:
    """Load, measure, print. Raises EngineError when the model cannot be loaded or the prompts do not fit it."""
    loaded = load(str(model) if dims is None else PREFIX + dims, seed=seed, threads=threads)
    need = max(tokens) + output_tokens
    if need > loaded.config.context_length:
        raise EngineError(f"{need} tokens do not fit the model's window of {loaded.config.context_length}")
    engine = Model(loaded.config, loaded.weights, context=need, prefill_mode=prefill_mode)
    facts = {
        "model": loaded.name,
        "source": loaded.source,
        "parameters": loaded.config.parameters,
        "dimensions": loaded.config.dimensions,
        "dtype": "float32",
        "seed": seed,
        "prefill_mode": prefill_mode,
        "threads": threads,
    }
    result = facts | machine.facts() | measure(engine, tokens, rounds, output_tokens)
    print(json.dumps(result) if as_json else text(result))


def measure(
    model: Model, lengths: Sequence[int], rounds: int, output_tokens: int, now: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """Times of prompts of `lengths` tokens and of `output_tokens` decode steps after the longest, in ms.

    Of `rounds` repetitions the fastest counts: what disturbs a computation only ever slows it. `unit_price_ms` and
    `tpot_ms` are of the longest prompt.
    """
    prefill = []
    for length in sorted(lengths):
        prompt = [token % model.config.vocab for token in range(length)]
        ttft_ms, steps_ms = [], []
        for _ in range(rounds):
            cache = model.new_cache(length + output_tokens)
            began = now()
            token = int(model.prefill(prompt, cache).argmax())
            ttft_ms.append(1000 * (now() - began))
            if length == max(lengths):
                steps_ms.append(_decode_ms(model, token, cache, output_tokens, now))
        best = min(ttft_ms)
        prefill.append({"tokens": length, "ttft_ms": best, "unit_price_ms": best / length, "rounds_ms": ttft_ms})
    tpot_ms = min(steps_ms)
    unit_price_ms = best / length
    return {
        "prefill": prefill,
        "unit_price_ms": unit_price_ms,
        "tpot_ms": tpot_ms,
        "decode_after_tokens": max(lengths),
        "output_tokens": output_tokens,
        "prefill_parallelism": tpot_ms / unit_price_ms,
    }


def _decode_ms(model: Model, token: int, cache: Cache, steps: int, now: Callable[[], float]) -> float:
    """Mean time of a greedy decode step, ms."""
    began = now()
    for _ in range(steps):
        token = int(model.decode([token], [cache])[0].argmax())
    return 1000 * (now() - began) / steps


def text(result: dict[str, Any]) -> str:
    """The result as a person reads it."""
    weights = "random weights" if result["source"] in ("random", "builtin") else "its own weights"
    kernel = f", kernel {result['blas_kernel']}" if result["blas_kernel"] else ""
    lines = [
        f"{result['model']}: {result['parameters'] / 1e6:.0f} M parameters in {result['dtype']}, {weights}",
        f"{result['threads']} threads, numpy {result['numpy']} on {result['blas']}{kernel}",
        f"prefill is {result['prefill_mode']}",
        "",
        "prompt tokens    TTFT ms    unit price ms/token",
    ]
    for row in result["prefill"]:
        lines.append(f"{row['tokens']:13d} {row['ttft_ms']:10.1f} {row['unit_price_ms']:22.3f}")
    lines += [
        "",
        f"TPOT {result['tpot_ms']:.2f} ms/token after {result['decode_after_tokens']} tokens",
        f"prefill_parallelism = TPOT / unit price = {result['tpot_ms']:.2f} / {result['unit_price_ms']:.3f}"
        f" = {result['prefill_parallelism']:.1f}",
    ]
    return "\n".join(lines)

"""Other engines on the same work, for benchmarks/engine.py: llama.cpp and PyTorch, where they are installed."""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

LENGTHS = (512, 1024, 1536)
DECODE_AFTER, ROUNDS, STEPS = 128, 3, 24


def seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def best(work: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of some repetitions."""
    return min(seconds(work) for _ in range(rounds))


def llamacpp(args: argparse.Namespace) -> dict[str, Any] | None:
    """llama.cpp's own clock on the GGUF file: token ids in, its prompt cache off."""
    try:
        import xllamacpp
    except ImportError:
        return None
    from urllib.request import Request, urlopen

    params = xllamacpp.CommonParams()
    params.model.path = str(args.gguf)
    params.n_ctx, params.n_parallel, params.port = 2048, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = args.threads
    server = xllamacpp.Server(params)

    def timings(tokens: int) -> dict[str, float]:
        body = {"prompt": list(range(5, 5 + tokens)), "n_predict": STEPS, "ignore_eos": True, "cache_prompt": False}
        request = Request(
            f"{server.listening_address}/completion", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        return json.load(urlopen(request))["timings"]

    prefill = {length: min(timings(length)["prompt_ms"] for _ in range(ROUNDS)) / 1000 for length in (512, 1024)}
    decode = min(timings(DECODE_AFTER)["predicted_per_token_ms"] for _ in range(ROUNDS)) / 1000
    return {"prefill_s": prefill, "decode_s": decode}


def pytorch(args: argparse.Namespace) -> dict[str, Any] | None:
    """transformers' model of the same dimensions, random weights, float32, logits of the last position only."""
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
    except ImportError:
        return None
    from loadkit.engine import dims

    config = dims.of(args.dims)
    kinds = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
    if config.architecture not in kinds:
        return None
    config_class, model_class = kinds[config.architecture]
    torch.set_num_threads(args.threads)
    settings = config_class(
        vocab_size=config.vocab,
        hidden_size=config.hidden,
        intermediate_size=config.ffn,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        tie_word_embeddings=config.tied,
        max_position_embeddings=config.context_length,
    )
    with torch.no_grad():
        model = model_class(settings).float().eval()

        def prefill(length: int) -> Any:
            return model(torch.arange(length)[None], use_cache=True, logits_to_keep=1)

        lengths = LENGTHS[: 2 if args.quick else 3]
        times = {length: best(lambda length=length: prefill(length), ROUNDS) for length in lengths}
        state = prefill(DECODE_AFTER).past_key_values
        step = best(lambda: model(torch.tensor([[7]]), past_key_values=state, use_cache=True), STEPS)
    return {"prefill_s": times, "decode_s": step, "version": torch.__version__}

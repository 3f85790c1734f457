"""Dimensions of well-known models, for random weights of their true size: time does not depend on what weights say.

From the config.json of each. The windows are the ones of the instruction-tuned releases. Llama 3.2's stretched RoPE is
left plain: it changes answers and not time.
"""

from __future__ import annotations

from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError

PREFIX = "random:"  # random:qwen2.5-0.5b is a model one can load


def _qwen2(layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int) -> ModelConfig:
    return ModelConfig(
        "qwen2", layers, hidden, heads, kv_heads, head_dim, ffn, 151_936, 32_768, 1e6, 1e-6, tied=True, qkv_bias=True
    )


def _qwen3(layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int) -> ModelConfig:
    return ModelConfig(
        "qwen3", layers, hidden, heads, kv_heads, head_dim, ffn, 151_936, 40_960, 1e6, 1e-6, tied=True, qkv_bias=False,
        qk_norm=True,
    )  # fmt: skip


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int, vocab: int, window: int, theta: float,
    tied: bool,
) -> ModelConfig:  # fmt: skip
    return ModelConfig(
        "llama", layers, hidden, heads, kv_heads, head_dim, ffn, vocab, window, theta, 1e-5, tied=tied, qkv_bias=False
    )


DIMENSIONS: dict[str, ModelConfig] = {
    "qwen2.5-0.5b": _qwen2(24, 896, 14, 2, 64, 4864),
    "qwen2.5-1.5b": _qwen2(28, 1536, 12, 2, 128, 8960),
    "qwen2.5-3b": _qwen2(36, 2048, 16, 2, 128, 11008),
    "qwen3-0.6b": _qwen3(28, 1024, 16, 8, 128, 3072),
    "qwen3-1.7b": _qwen3(28, 2048, 16, 8, 128, 6144),
    "llama-3.2-1b": _llama(16, 2048, 32, 8, 64, 8192, 128_256, 131_072, 5e5, True),
    "llama-3.2-3b": _llama(28, 3072, 24, 8, 128, 8192, 128_256, 131_072, 5e5, True),
    "tinyllama-1.1b": _llama(22, 2048, 32, 4, 64, 5632, 32_000, 2048, 1e4, False),
    "smollm2-135m": _llama(30, 576, 9, 3, 64, 1536, 49_152, 8192, 1e5, True),
}


def of(name: str) -> ModelConfig:
    """The dimensions of a model by name; EngineError with the names there are."""
    if name.lower() not in DIMENSIONS:
        raise EngineError(f"no dimensions of {name[:40]!r} are known; there are: {', '.join(DIMENSIONS)}")
    return DIMENSIONS[name.lower()]

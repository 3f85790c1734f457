"""Weights laid out once for the products they are used in.

Shapes: D hidden, H query heads, K key heads, h head dimension, F feed-forward, V vocabulary.

A decode step costs the reading of every weight once, so the layout is what BLAS reads fastest for one row: wide
products (fused query-key-value, gate-up, head) as [in, out], narrow ones (back to D) as [out, in], used transposed.

Four things are folded in at load, so that no step pays for them: norm gains (into the rows of the next matrix),
1/sqrt(h) (into the queries), the minus sign that silu needs (into gate and up), and the RoPE layout (a head's
dimensions stand as rotated pairs, see `model.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError

Array = NDArray[np.float32]
Tensor = Callable[[str], Array]  # a Hugging Face tensor name -> float32 values, [out, in] for matrices

EMBEDDING, FINAL_NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Layer:
    qkv: Array  # [D, (H + 2 K) h]
    qkv_bias: Array | None  # [(H + 2 K) h]
    out: Array  # [D, H h]
    gate_up: Array  # [D, 2 F]
    down: Array  # [D, F]


@dataclass(frozen=True, slots=True)
class Weights:
    embedding: Array  # [V, D], a transposed view of the head when tied
    layers: tuple[Layer, ...]
    final_norm: Array  # [D]
    head: Array  # [D, V]


def pack(config: ModelConfig, tensor: Tensor, *, rope_pairs: bool) -> Weights:
    """Weights from tensors in Hugging Face's names.

    `rope_pairs`: the query and key rows already stand as rotated pairs (llama in GGUF files); otherwise a head's first
    half rotates with its second half (Hugging Face, qwen2 in GGUF files) and the rows are interleaved here.
    Raises EngineError for a missing tensor or one of the wrong shape.
    """
    source = _Source(tensor)
    embedding = source(EMBEDDING, config.vocab, config.hidden)
    layers = tuple(_layer(config, source, f"model.layers.{i}.", rope_pairs) for i in range(config.layers))
    final_norm = source(FINAL_NORM, config.hidden)
    head = np.ascontiguousarray((embedding if config.tied else source(HEAD, config.vocab, config.hidden)).T)
    return Weights(head.T if config.tied else embedding, layers, final_norm, head)


@dataclass(frozen=True, slots=True)
class _Source:
    tensor: Tensor

    def __call__(self, name: str, *shape: int) -> Array:
        values = self.tensor(name)
        if values.shape != shape:
            raise EngineError(f"weights: {name} has shape {list(values.shape)}, the config asks for {list(shape)}")
        return values


def _layer(config: ModelConfig, source: _Source, prefix: str, rope_pairs: bool) -> Layer:
    D, F = config.hidden, config.ffn
    q_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    scale = np.float32(config.head_dim**-0.5)

    def rows(values: Array) -> Array:
        return values if rope_pairs else interleave(values, config.head_dim)

    attn_gain = source(prefix + "input_layernorm.weight", D)
    attn = prefix + "self_attn."
    qkv = np.empty((D, config.qkv_width), np.float32)
    _lay(qkv[:, :q_width], rows(source(attn + "q_proj.weight", q_width, D)), attn_gain * scale)
    _lay(qkv[:, q_width : q_width + kv_width], rows(source(attn + "k_proj.weight", kv_width, D)), attn_gain)
    _lay(qkv[:, q_width + kv_width :], source(attn + "v_proj.weight", kv_width, D), attn_gain)
    bias = None
    if config.qkv_bias:
        q_bias = rows(source(attn + "q_proj.bias", q_width)) * scale
        k_bias = rows(source(attn + "k_proj.bias", kv_width))
        bias = np.concatenate([q_bias, k_bias, source(attn + "v_proj.bias", kv_width)])

    ffn_gain = source(prefix + "post_attention_layernorm.weight", D)
    mlp = prefix + "mlp."
    gate_up = np.empty((D, 2 * F), np.float32)
    _lay(gate_up[:, :F], source(mlp + "gate_proj.weight", F, D), -ffn_gain)
    _lay(gate_up[:, F:], source(mlp + "up_proj.weight", F, D), -ffn_gain)
    return Layer(
        qkv=qkv,
        qkv_bias=bias,
        out=source(attn + "o_proj.weight", D, q_width),
        gate_up=gate_up,
        down=source(mlp + "down_proj.weight", D, F),
    )


def _lay(target: Array, matrix: Array, gain: Array) -> None:
    """Write [out, in] `matrix` as [in, out] into `target`, each input scaled by `gain` [in]."""
    np.multiply(matrix.T, gain[:, None], out=target)


def interleave(values: Array, head_dim: int) -> Array:
    """Rows of query or key weights (or their bias) from half-split to pairs: 0, h/2, 1, h/2 + 1, ... in each head."""
    rest = values.shape[1:]
    halves = values.reshape(-1, 2, head_dim // 2, *rest)  # [heads h, ...] -> [heads, 2, h/2, ...]
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)

"""Weights laid out once for the products they are used in, and for the threads that share them.

Shapes: D hidden, H query heads, K key heads, G query heads per key head, h head dimension, F feed-forward, V
vocabulary; k, f are one thread's numbers of key heads and feed-forward columns.

A decode step costs the reading of every weight once, so every matrix is [out, in], which is read fastest, see
`products.py`, and what a thread reads of a layer is one run of memory. Cut out of matrices that all threads share, its
columns of `out` and `down` would be short pieces with gaps, which take almost twice as long to read. Rows of the fused
query-key-value matrix stand by key head: its G query heads, its key, its value.

Four things are folded in at load, so that no step pays for them: norm gains (into the inputs of the next matrix),
1/sqrt(h) (into the queries), the minus sign that silu needs (into gate and up), and the RoPE layout (a head's
dimensions stand as rotated pairs, see `lane.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """A layer, or one thread's part of it."""

    qkv: Array  # [k (G + 2) h, D]
    qkv_bias: Array | None  # [k (G + 2) h]
    out: Array  # [D, k G h]
    gate_up: Array  # [2 f, D], gates first
    down: Array  # [D, f]
    qk_gain: Array | None = None  # [k, G + 1, h], gains of the queries' and keys' norms; the queries' carry 1/sqrt(h)

    @property
    def matrices(self) -> tuple[Array, ...]:
        """In the order they are read."""
        return self.qkv, self.out, self.gate_up, self.down


@dataclass(frozen=True, slots=True)
class Weights:
    embedding: Array  # [V, D]
    layers: tuple[tuple[Layer, ...], ...]  # of each layer, each thread's part
    final_norm: Array  # [D]
    head: Array  # [V, D], the embedding itself when tied

    @property
    def threads(self) -> int:
        """How many threads they are laid out for."""
        return len(self.layers[0])


def share(count: int, rank: int, threads: int) -> slice:
    """Which of `count` key heads, columns or words thread `rank` of `threads` has."""
    return slice(count * rank // threads, count * (rank + 1) // threads)


def pack(config: ModelConfig, tensor: Tensor, *, rope_pairs: bool, threads: int = 1) -> Weights:
    """Weights from tensors in Hugging Face's names, laid out for `threads` threads.

    `rope_pairs`: the query and key rows already stand as rotated pairs (llama in GGUF files); otherwise a head's first
    half rotates with its second half (Hugging Face, qwen2 in GGUF files) and the rows are interleaved here.
    Raises EngineError for a missing tensor, one of the wrong shape or one with values that are not finite.
    """
    source = _Source(tensor)
    embedding = source(EMBEDDING, config.vocab, config.hidden)
    head = embedding if config.tied else source(HEAD, config.vocab, config.hidden)
    names = (f"model.layers.{i}." for i in range(config.layers))
    layers = tuple(split(config, _layer(config, source, name, rope_pairs), threads) for name in names)
    return Weights(embedding, layers, source(FINAL_NORM, config.hidden), head)


def split(config: ModelConfig, whole: Layer, threads: int) -> tuple[Layer, ...]:
    """Each thread's part of a layer, in memory of its own."""
    return tuple(_part(config, whole, rank, threads) for rank in range(threads))


def _part(config: ModelConfig, whole: Layer, rank: int, threads: int) -> Layer:
    D, K = config.hidden, config.kv_heads
    heads, columns = share(K, rank, threads), share(config.ffn, rank, threads)
    qkv, out, gate_up, down = _one_run(
        whole.qkv.reshape(K, -1, D)[heads],  # [k, (G + 2) h, D]
        whole.out.reshape(D, K, -1)[:, heads],  # [D, k, G h]
        whole.gate_up.reshape(2, -1, D)[:, columns],  # [2, f, D]
        whole.down[:, columns],  # [D, f]
    )
    return Layer(
        qkv=qkv.reshape(-1, D),
        qkv_bias=None if whole.qkv_bias is None else whole.qkv_bias.reshape(K, -1)[heads].reshape(-1),
        out=out.reshape(D, -1),
        gate_up=gate_up.reshape(-1, D),
        down=down,
        qk_gain=None if whole.qk_gain is None else whole.qk_gain[heads],
    )


def _one_run(*arrays: Array) -> Sequence[Array]:
    """Copies that stand one behind the other in memory."""
    run = np.empty(sum(array.size for array in arrays), np.float32)
    ends = np.cumsum([array.size for array in arrays])
    copies = [part.reshape(array.shape) for part, array in zip(np.split(run, ends[:-1]), arrays, strict=True)]
    for copy, array in zip(copies, arrays, strict=True):
        copy[...] = array
    return copies


@dataclass(frozen=True, slots=True)
class _Source:
    tensor: Tensor

    def __call__(self, name: str, *shape: int) -> Array:
        values = self.tensor(name)
        if values.shape != shape:
            raise EngineError(f"weights: {name} has shape {list(values.shape)}, the config asks for {list(shape)}")
        with np.errstate(invalid="ignore", over="ignore"):
            whole = np.isfinite(values.sum())  # one NaN or infinity makes the sum one
        if not whole:
            raise EngineError(f"weights: {name} has values that are not finite numbers")
        return values


def _layer(config: ModelConfig, source: _Source, prefix: str, rope_pairs: bool) -> Layer:
    D, F = config.hidden, config.ffn
    q_width, kv_width = config.heads * config.head_dim, config.kv_heads * config.head_dim
    scale = np.float32(config.head_dim**-0.5)

    def rows(values: Array) -> Array:
        return values if rope_pairs else interleave(values, config.head_dim)

    attn_gain = source(prefix + "input_layernorm.weight", D)
    attn = prefix + "self_attn."
    # Before any memory is taken for their product: the shapes are checked against the file here.
    q, k = rows(source(attn + "q_proj.weight", q_width, D)), rows(source(attn + "k_proj.weight", kv_width, D))
    v = source(attn + "v_proj.weight", kv_width, D)
    # A norm would undo a factor before it, so then 1/sqrt(h) goes into the norm's gain.
    q_scale = np.float32(1) if config.qk_norm else scale
    qkv = np.empty((config.kv_heads, config.group + 2, config.head_dim, D), np.float32)
    grouped = (config.kv_heads, config.group, config.head_dim)
    np.multiply(q.reshape(*grouped, D), attn_gain * q_scale, out=qkv[:, : config.group])
    np.multiply(k.reshape(-1, config.head_dim, D), attn_gain, out=qkv[:, config.group])
    np.multiply(v.reshape(-1, config.head_dim, D), attn_gain, out=qkv[:, config.group + 1])
    bias = None
    if config.qkv_bias:
        q_bias = rows(source(attn + "q_proj.bias", q_width)).reshape(grouped) * q_scale
        k_bias = rows(source(attn + "k_proj.bias", kv_width)).reshape(-1, 1, config.head_dim)
        v_bias = source(attn + "v_proj.bias", kv_width).reshape(-1, 1, config.head_dim)
        bias = np.concatenate([q_bias, k_bias, v_bias], axis=1).reshape(-1)
    qk_gain = None
    if config.qk_norm:
        q_gain = rows(source(attn + "q_norm.weight", config.head_dim)) * scale
        k_gain = rows(source(attn + "k_norm.weight", config.head_dim))
        qk_gain = np.tile(np.stack([q_gain] * config.group + [k_gain]), (config.kv_heads, 1, 1))

    ffn_gain = source(prefix + "post_attention_layernorm.weight", D)
    mlp = prefix + "mlp."
    gate, up = source(mlp + "gate_proj.weight", F, D), source(mlp + "up_proj.weight", F, D)
    gate_up = np.empty((2 * F, D), np.float32)
    np.multiply(gate, -ffn_gain, out=gate_up[:F])
    np.multiply(up, -ffn_gain, out=gate_up[F:])
    return Layer(
        qkv=qkv.reshape(-1, D),
        qkv_bias=bias,
        out=source(attn + "o_proj.weight", D, q_width),
        gate_up=gate_up,
        down=source(mlp + "down_proj.weight", D, F),
        qk_gain=qk_gain,
    )


def interleave(values: Array, head_dim: int) -> Array:
    """Rows of query or key weights (or their bias) from half-split to pairs: 0, h/2, 1, h/2 + 1, ... in each head."""
    rest = values.shape[1:]
    halves = values.reshape(-1, 2, head_dim // 2, *rest)  # [heads h, ...] -> [heads, 2, h/2, ...]
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)

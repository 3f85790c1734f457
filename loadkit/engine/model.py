"""The forward pass in pure NumPy, float32: prefill in chunks, decode for several sequences at once.

Shapes: T rows (tokens of one chunk, or one token of each of T sequences), D hidden, H query heads, K key heads,
G = H / K, h head dimension, F feed-forward, V vocabulary. Weights come folded, see `weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.attention import Cache, PrefillAttention, decode_attention
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError
from loadkit.engine.weights import Layer, Weights

Array = NDArray[np.float32]
Attend = Callable[[int, Array, Array, Array, Array], None]  # (layer, q, k, v, out): fills out [T, H h]

CHUNK = 512  # most rows of one pass; a product of 512 rows runs at the processor's full speed
TILE = 16  # rows of SwiGLU at a time, so that they stay in the second-level cache


def rotations(positions: int, head_dim: int, theta: float) -> NDArray[np.complex64]:
    """RoPE as complex factors exp(i p theta^(-2 j / h)), [positions, h/2]: a rotated pair is one complex number."""
    frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)  # [h/2]
    angles = np.arange(positions)[:, None] * frequencies  # [positions, h/2]
    return np.exp(1j * angles).astype(np.complex64)


class Model:
    """A model and the scratch memory of one pass. Not safe for several threads: one thread computes."""

    def __init__(self, config: ModelConfig, weights: Weights, *, context: int | None = None) -> None:
        self.config = config
        self.weights = weights
        self.context = config.context_length if context is None else context  # positions a sequence may have
        if not 1 <= self.context <= config.context_length:
            raise EngineError(f"context must be between 1 and the model's {config.context_length}, it is {context}")
        self._rotations = rotations(self.context, config.head_dim, config.rope_theta)  # [context, h/2]
        self._prefill_attention = PrefillAttention(config)
        D, width = config.hidden, config.heads * config.head_dim
        self._x = np.empty((CHUNK, D), np.float32)  # the residual stream
        self._normed = np.empty((CHUNK, D), np.float32)
        self._added = np.empty((CHUNK, D), np.float32)
        self._qkv = np.empty((CHUNK, config.qkv_width), np.float32)
        self._mixed = np.empty((CHUNK, width), np.float32)
        self._gate_up = np.empty((CHUNK, 2 * config.ffn), np.float32)
        self._gated = np.empty((CHUNK, config.ffn), np.float32)
        self._tile = np.empty((TILE, config.ffn), np.float32)

    def new_cache(self, capacity: int) -> Cache:
        """An empty cache for a sequence of at most `capacity` tokens."""
        return Cache(self.config, capacity)

    def prefill(self, tokens: Sequence[int], cache: Cache) -> Array:
        """Append a prompt's tokens to the cache, in chunks; logits [V] after the last one."""
        if not tokens:
            raise ValueError("a prompt needs at least one token")
        for first in range(0, len(tokens), CHUNK):
            hidden = self.extend(tokens[first : first + CHUNK], cache)
        return self.logits(hidden[-1:])[0]

    def extend(self, tokens: Sequence[int], cache: Cache) -> Array:
        """Append 1 to CHUNK tokens of one sequence; their last hidden states [T, D], valid until the next pass."""
        start, end = cache.length, cache.length + len(tokens)
        if end > min(cache.capacity, self.context) or len(tokens) > CHUNK:
            raise ValueError(f"{len(tokens)} tokens after {start} do not fit a cache of {cache.capacity}")
        K, G, h = self.config.kv_heads, self.config.group, self.config.head_dim

        def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
            keys, values = cache.keys[layer], cache.values[layer]  # [K, capacity, h]
            keys[:, start:end] = k.swapaxes(0, 1)  # [T, K, h] -> [K, T, h]
            values[:, start:end] = v.swapaxes(0, 1)
            grouped = (len(q), K, G, h)
            self._prefill_attention(q.reshape(grouped), keys, values, start, out.reshape(grouped))

        hidden = self._pass(tokens, self._rotations[start:end], attend)
        cache.length = end
        return hidden

    def decode(self, tokens: Sequence[int], caches: Sequence[Cache]) -> Array:
        """Append one token to each of 1 to CHUNK sequences, every weight read once; logits [T, V]."""
        positions = [cache.length for cache in caches]
        if any(cache.length >= min(cache.capacity, self.context) for cache in caches):
            raise ValueError("a sequence is at the end of its cache")
        K, G, h = self.config.kv_heads, self.config.group, self.config.head_dim

        def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
            for row, (cache, at) in enumerate(zip(caches, positions, strict=True)):
                keys, values = cache.keys[layer], cache.values[layer]
                keys[:, at] = k[row]  # [K, h]
                values[:, at] = v[row]
                mixed = decode_attention(q[row].reshape(K, G, h), keys[:, : at + 1], values[:, : at + 1])
                out[row] = mixed.reshape(-1)  # [K, G, h] -> [H h]

        hidden = self._pass(tokens, self._rotations[positions], attend)
        for cache in caches:
            cache.length += 1
        return self.logits(hidden)

    def logits(self, hidden: Array) -> Array:
        """Logits [T, V] of hidden states [T, D]."""
        normed = np.empty_like(hidden)
        _rms_norm(hidden, self.config.rms_eps, normed)
        normed *= self.weights.final_norm
        return normed @ self.weights.head  # [T, D] @ [D, V] -> [T, V]

    def _pass(self, tokens: Sequence[int], rotation: NDArray[np.complex64], attend: Attend) -> Array:
        """All layers for T tokens with their RoPE factors [T, h/2]; the residual stream [T, D]."""
        x = self._x[: len(tokens)]
        x[...] = self.weights.embedding[np.asarray(tokens)]  # [T] -> [T, D]
        # silu of a very negative gate overflows exp to infinity on the way to its right value, 0.
        with np.errstate(over="ignore"):
            for index, layer in enumerate(self.weights.layers):
                self._attention(index, layer, x, rotation, attend)
                self._feed_forward(layer, x)
        return x

    def _attention(self, index: int, layer: Layer, x: Array, rotation: NDArray[np.complex64], attend: Attend) -> None:
        T, H, K, h = len(x), self.config.heads, self.config.kv_heads, self.config.head_dim
        normed, qkv, mixed, added = self._normed[:T], self._qkv[:T], self._mixed[:T], self._added[:T]
        _rms_norm(x, self.config.rms_eps, normed)
        np.matmul(normed, layer.qkv, out=qkv)  # [T, D] @ [D, (H + 2 K) h] -> [T, (H + 2 K) h]
        if layer.qkv_bias is not None:
            qkv += layer.qkv_bias
        pairs = qkv[:, : (H + K) * h].view(np.complex64).reshape(T, H + K, h // 2)
        pairs *= rotation[:, None, :]  # RoPE of queries and keys at once, in place
        heads = qkv.reshape(T, H + 2 * K, h)
        attend(index, heads[:, :H], heads[:, H : H + K], heads[:, H + K :], mixed)
        np.matmul(mixed, layer.out.T, out=added)  # [T, H h] @ [H h, D] -> [T, D]
        x += added

    def _feed_forward(self, layer: Layer, x: Array) -> None:
        T, F = len(x), self.config.ffn
        normed, gate_up, gated, added = self._normed[:T], self._gate_up[:T], self._gated[:T], self._added[:T]
        _rms_norm(x, self.config.rms_eps, normed)
        np.matmul(normed, layer.gate_up, out=gate_up)  # [T, D] @ [D, 2 F] -> [T, 2 F]
        for first in range(0, T, TILE):
            tile = gate_up[first : first + TILE]
            _swiglu(tile[:, :F], tile[:, F:], self._tile[: len(tile)], gated[first : first + TILE])
        np.matmul(gated, layer.down.T, out=added)  # [T, F] @ [F, D] -> [T, D]
        x += added


def _rms_norm(x: Array, eps: float, out: Array) -> None:
    """x / sqrt(mean(x^2) + eps) for each row of [T, D]; the gain is folded into the next matrix."""
    squares = np.vecdot(x, x)  # [T, D] -> [T]
    np.multiply(x, (1.0 / np.sqrt(squares / x.shape[1] + np.float32(eps)))[:, None], out=out)


def _swiglu(gate: Array, up: Array, scratch: Array, out: Array) -> None:
    """silu(-gate) * -up: both come negated from the weights, which spares a pass for exp(-gate)."""
    np.exp(gate, out=scratch)
    scratch += 1
    np.multiply(gate, up, out=out)
    out /= scratch

"""The forward pass of some rows through all layers, in pure NumPy, float32, with the scratch memory of one thread.

Shapes: T rows (tokens of one sequence, or one token of each of T sequences), D hidden, H query heads, K key heads,
h head dimension, F feed-forward. Weights come folded, see `weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.attention import PrefillAttention
from loadkit.engine.config import ModelConfig
from loadkit.engine.weights import Layer, Weights

Array = NDArray[np.float32]
Rotation = NDArray[np.complex64]
Attend = Callable[[int, Array, Array, Array, Array], None]  # (layer, q, k, v, out): fills out [T, H h]

TILE = 16  # rows of SwiGLU at a time, so that they stay in the second-level cache


class Lane:
    """Buffers for up to `rows` rows, allocated once. One thread at a time."""

    def __init__(self, config: ModelConfig, rows: int) -> None:
        self.config = config
        self.prefill_attention = PrefillAttention(config)
        self._normed = np.empty((rows, config.hidden), np.float32)
        self._added = np.empty((rows, config.hidden), np.float32)
        self._qkv = np.empty((rows, config.qkv_width), np.float32)
        self._mixed = np.empty((rows, config.heads * config.head_dim), np.float32)
        self._gate_up = np.empty((rows, 2 * config.ffn), np.float32)
        self._gated = np.empty((rows, config.ffn), np.float32)
        self._tile = np.empty((TILE, config.ffn), np.float32)

    def run(self, weights: Weights, x: Array, rotation: Rotation, attend: Attend) -> None:
        """All layers, in place, for the residual stream x [T, D] with its RoPE factors [T, h/2]."""
        # silu of a very negative gate overflows exp to infinity on the way to its right value, 0.
        with np.errstate(over="ignore"):
            for index, layer in enumerate(weights.layers):
                self._attention(index, layer, x, rotation, attend)
                self._feed_forward(layer, x)

    def _attention(self, index: int, layer: Layer, x: Array, rotation: Rotation, attend: Attend) -> None:
        T, H, K, h = len(x), self.config.heads, self.config.kv_heads, self.config.head_dim
        normed, qkv, mixed, added = self._normed[:T], self._qkv[:T], self._mixed[:T], self._added[:T]
        rms_norm(x, self.config.rms_eps, normed)
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
        rms_norm(x, self.config.rms_eps, normed)
        np.matmul(normed, layer.gate_up, out=gate_up)  # [T, D] @ [D, 2 F] -> [T, 2 F]
        for first in range(0, T, TILE):
            tile = gate_up[first : first + TILE]
            _swiglu(tile[:, :F], tile[:, F:], self._tile[: len(tile)], gated[first : first + TILE])
        np.matmul(gated, layer.down.T, out=added)  # [T, F] @ [F, D] -> [T, D]
        x += added


def rms_norm(x: Array, eps: float, out: Array) -> None:
    """x / sqrt(mean(x^2) + eps) for each row of [T, D]; the gain is folded into the next matrix."""
    squares = np.vecdot(x, x)  # [T, D] -> [T]
    np.multiply(x, (1.0 / np.sqrt(squares / x.shape[1] + np.float32(eps)))[:, None], out=out)


def _swiglu(gate: Array, up: Array, scratch: Array, out: Array) -> None:
    """silu(-gate) * -up: both come negated from the weights, which spares a pass for exp(-gate)."""
    np.exp(gate, out=scratch)
    scratch += 1
    np.multiply(gate, up, out=out)
    out /= scratch

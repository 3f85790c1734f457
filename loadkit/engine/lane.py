"""One thread's share of a forward pass, in pure NumPy, float32, with its own scratch memory.

Shapes: T rows (tokens of one sequence, or one token of each of T sequences), D hidden, K key heads, G query heads per
key head, h head dimension, F feed-forward, V vocabulary; k, f, v are this thread's numbers of key heads, feed-forward
columns and words. Weights come folded and split, see `weights.py`.

A layer is split as Megatron-LM splits it (Shoeybi et al. 2019): a thread has some key heads with their queries and
some columns of the feed-forward, so that it can go through a whole half of the layer alone. It ends with a sum over all
inputs of which it has a part; the threads meet, and each adds up all parts. That is two meetings per layer. Every
thread keeps its own copy of the residual stream: to do the little work on it again is cheaper than to meet again.

The feed-forward of many rows is computed with columns for rows, see `products.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.attention import PrefillAttention
from loadkit.engine.config import ModelConfig
from loadkit.engine.products import FEW, Array, project
from loadkit.engine.team import Team
from loadkit.engine.weights import Layer, Weights, share

Rotation = NDArray[np.complex64]
Attend = Callable[[int, Array, Array, Array, Array], None]  # (layer, q, k, v, out): fills out [T, k, G, h]

TILE = 16  # rows' worth of SwiGLU at a time, so that it stays in the second-level cache


class Lane:
    """Share `rank` of `team`; the threads put their parts into `sums` [2, threads, rows, D], `rows` at most."""

    def __init__(self, config: ModelConfig, rank: int, team: Team, sums: Array) -> None:
        self.config = config
        self.prefill_attention = PrefillAttention(config)
        self.key_heads = share(config.kv_heads, rank, team.size)
        self._words = share(config.vocab, rank, team.size)
        self._rank, self._team, self._sums = rank, team, sums
        rows, D = sums.shape[2:]
        heads, columns = _width(self.key_heads), _width(share(config.ffn, rank, team.size))
        self.x = np.empty((rows, D), np.float32)  # the residual stream
        self._normed = np.empty((rows, D), np.float32)
        self._qkv = np.empty((rows, heads * (config.group + 2) * config.head_dim), np.float32)
        self._mixed = np.empty((rows, heads * config.group * config.head_dim), np.float32)
        self._gate_up = np.empty(rows * 2 * columns, np.float32)
        self._tile = np.empty(max(TILE * columns, rows), np.float32)

    def run(self, weights: Weights, tokens: NDArray[np.intp], rotation: Rotation, attend: Attend) -> None:
        """All layers for tokens [T] with their RoPE factors [T, h/2]; `x` [T, D] has the last hidden states."""
        x = self.x[: len(tokens)]
        x[...] = weights.embedding[tokens]  # [T] -> [T, D]
        # silu of a very negative gate overflows exp to infinity on the way to its right value, 0.
        with np.errstate(over="ignore"):
            for index, parts in enumerate(weights.layers):
                layer = parts[self._rank]
                self._attention(index, layer, x, rotation, attend)
                self._feed_forward(layer, x)

    def logits(self, weights: Weights, hidden: Array, out: Array) -> None:
        """This share's columns of the logits, out [T, V], of hidden states [T, D]."""
        normed = self._normed[: len(hidden)]
        rms_norm(hidden, self.config.rms_eps, normed)
        normed *= weights.final_norm
        project(normed, weights.head[self._words], out[:, self._words])

    def _attention(self, index: int, layer: Layer, x: Array, rotation: Rotation, attend: Attend) -> None:
        T, G, h = len(x), self.config.group, self.config.head_dim
        normed, qkv, mixed = self._normed[:T], self._qkv[:T], self._mixed[:T]
        rms_norm(x, self.config.rms_eps, normed)
        project(normed, layer.qkv, qkv)  # [T, D] -> [T, k (G + 2) h]
        if layer.qkv_bias is not None:
            qkv += layer.qkv_bias
        heads = qkv.reshape(T, -1, G + 2, h)  # of each key head its queries, its key, its value
        turning = heads[:, :, : G + 1]  # [T, k, G + 1, h]
        if layer.qk_gain is not None:
            head_norm(turning, self.config.rms_eps, layer.qk_gain)
        pairs = turning.view(np.complex64)  # [T, k, G + 1, h/2]
        pairs *= rotation[:, None, None, :]  # RoPE of queries and keys at once, in place
        attend(index, heads[:, :, :G], heads[:, :, G], heads[:, :, G + 1], mixed.reshape(T, -1, G, h))
        sums = self._sums[0, :, :T]  # [threads, T, D]
        project(mixed, layer.out, sums[self._rank])  # [T, k G h] -> [T, D]
        self._team.meet(self._rank)
        for part in sums:
            x += part

    def _feed_forward(self, layer: Layer, x: Array) -> None:
        T, D = x.shape
        normed = self._normed[:T]
        rms_norm(x, self.config.rms_eps, normed)
        sums = self._sums[1].reshape(self._team.size, -1)[:, : T * D]
        if T <= FEW:
            self._rows(layer, normed, sums[self._rank].reshape(T, D))
            self._team.meet(self._rank)
            for part in sums:
                x += part.reshape(T, D)
        else:
            self._columns(layer, normed, sums[self._rank].reshape(D, T))
            self._team.meet(self._rank)
            total = normed.reshape(-1)  # has done its work
            sums.sum(axis=0, out=total)
            x += total.reshape(D, T).T

    def _rows(self, layer: Layer, normed: Array, out: Array) -> None:
        """This thread's part of the feed-forward, [T, D] -> [T, D]."""
        T, f = len(normed), layer.down.shape[1]
        gate_up = self._gate_up[: T * 2 * f].reshape(T, 2 * f)
        project(normed, layer.gate_up, gate_up)  # [T, D] -> [T, 2 f]
        gate, up = gate_up[:, :f], gate_up[:, f:]
        _swiglu(gate, up, self._tile[: T * f].reshape(T, f))
        project(up, layer.down, out)  # [T, f] -> [T, D]

    def _columns(self, layer: Layer, normed: Array, out: Array) -> None:
        """The same for many rows, columns coming out: [T, D] -> [D, T]."""
        T, f = len(normed), layer.down.shape[1]
        gate_up = self._gate_up[: 2 * f * T].reshape(2 * f, T)
        np.matmul(layer.gate_up, normed.T, out=gate_up)  # [2 f, D] @ [D, T] -> [2 f, T]
        gate, up = gate_up[:f], gate_up[f:]
        step = len(self._tile) // T
        for first in range(0, f, step):
            part = slice(first, min(first + step, f))
            _swiglu(gate[part], up[part], self._tile[: gate[part].size].reshape(-1, T))
        np.matmul(layer.down, up, out=out)  # [D, f] @ [f, T] -> [D, T]


def _width(part: slice) -> int:
    return int(part.stop - part.start)


def rms_norm(x: Array, eps: float, out: Array) -> None:
    """x / sqrt(mean(x^2) + eps) for each row of [T, D]; the gain is folded into the next matrix."""
    squares = np.vecdot(x, x)  # [T, D] -> [T]
    np.multiply(x, (1.0 / np.sqrt(squares / x.shape[1] + np.float32(eps)))[:, None], out=out)


def head_norm(heads: Array, eps: float, gain: Array) -> None:
    """RMS norm of each vector of [T, k, heads, h] with gain [k, heads, h], in place (Qwen 3's queries and keys)."""
    squares = np.vecdot(heads, heads)  # [T, k, heads, h] -> [T, k, heads]
    heads *= (1.0 / np.sqrt(squares / heads.shape[-1] + np.float32(eps)))[..., None]
    heads *= gain


def _swiglu(gate: Array, up: Array, scratch: Array) -> None:
    """up becomes silu(-gate) * -up: both come negated from the weights, which spares a pass for exp(-gate)."""
    np.exp(gate, out=scratch)
    scratch += 1
    up *= gate
    up /= scratch

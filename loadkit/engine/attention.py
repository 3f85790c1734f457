"""Causal attention over a key and value cache, in blocks with a running softmax.

Shapes: T new tokens, S cached positions, K key heads, G query heads per key head, h head dimension. Heads are a batch
axis of one matrix product, never a Python loop. Scores exist for one block of queries and one block of keys at a time,
so memory does not grow with the prompt, and blocks above the diagonal are never computed. Queries carry 1/sqrt(h).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.config import ModelConfig

Array = NDArray[np.float32]

QUERY_BLOCK = 128  # rows of queries per block
KEY_BLOCK = 512  # keys per block: scores of one block stay in the second-level cache


class Cache:
    """Keys and values of one sequence, kept in float32, for `capacity` positions; `length` of them are filled."""

    def __init__(self, config: ModelConfig, capacity: int) -> None:
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.keys: Array = np.empty(shape, np.float32)  # [layers, K, capacity, h]
        self.values: Array = np.empty(shape, np.float32)  # [layers, K, capacity, h]
        self.capacity = capacity
        self.length = 0

    def take(self, other: Cache, tokens: int) -> None:
        """Become a copy of the first `tokens` positions of another sequence of the same model."""
        self.keys[:, :, :tokens] = other.keys[:, :, :tokens]
        self.values[:, :, :tokens] = other.values[:, :, :tokens]
        self.length = tokens


class PrefillAttention:
    """Attention of a chunk of one sequence's tokens to all its tokens so far. Owns its scratch memory."""

    def __init__(self, config: ModelConfig) -> None:
        self.group = config.group
        rows = config.heads * QUERY_BLOCK
        self.queries = np.empty(rows * config.head_dim, np.float32)
        self.mixed = np.empty(rows * config.head_dim, np.float32)
        self.part = np.empty(rows * config.head_dim, np.float32)
        self.scores = np.empty(rows * max(KEY_BLOCK, QUERY_BLOCK), np.float32)
        self.ones = np.ones(max(KEY_BLOCK, QUERY_BLOCK), np.float32)
        above = np.triu(np.ones((QUERY_BLOCK, QUERY_BLOCK), bool), 1)
        self.mask = np.where(above, np.float32(-np.inf), np.float32(0))  # [QUERY_BLOCK, QUERY_BLOCK]

    def __call__(self, q: Array, keys: Array, values: Array, start: int, out: Array) -> None:
        """Attend from q [T, K, G, h], positions from `start` on, to keys, values [K, >= start + T, h]; fills `out`."""
        for first in range(0, len(q), QUERY_BLOCK):
            last = min(first + QUERY_BLOCK, len(q))
            self._block(q[first:last], keys, values, start + first, out[first:last])

    def _block(self, q: Array, keys: Array, values: Array, start: int, out: Array) -> None:
        T, K, G, h = q.shape
        rows = (K, G * T, h)
        block = self.queries[: q.size].reshape(rows)
        block.reshape(K, G, T, h)[...] = q.transpose(1, 2, 0, 3)  # [T, K, G, h] -> [K, G, T, h]
        mixed = self.mixed[: q.size].reshape(rows)
        part = self.part[: q.size].reshape(rows)

        # The diagonal comes first: every query sees itself there, so the running maximum is finite from the start.
        scores = self._scores(block, keys[:, start : start + T])  # [K, G T, T]
        scores.reshape(K, G, T, T)[...] += self.mask[:T, :T]
        peak = scores.max(axis=-1, keepdims=True)  # [K, G T, 1]
        total = self._exponentials(scores, peak)
        np.matmul(scores, values[:, start : start + T], out=mixed)  # [K, G T, T] @ [K, T, h] -> [K, G T, h]

        for low in range(0, start, KEY_BLOCK):
            high = min(low + KEY_BLOCK, start)
            scores = self._scores(block, keys[:, low:high])  # [K, G T, high - low]
            higher = np.maximum(peak, scores.max(axis=-1, keepdims=True))
            fade = np.exp(peak - higher)  # what the sums so far are worth under the new maximum
            peak = higher
            total *= fade
            total += self._exponentials(scores, peak)
            mixed *= fade
            np.matmul(scores, values[:, low:high], out=part)  # [K, G T, keys] @ [K, keys, h] -> [K, G T, h]
            mixed += part
        mixed /= total
        out[...] = mixed.reshape(K, G, T, h).transpose(2, 0, 1, 3)  # [K, G, T, h] -> [T, K, G, h]

    def _scores(self, block: Array, keys: Array) -> Array:
        shape = (*block.shape[:2], keys.shape[1])
        scores = self.scores[: shape[0] * shape[1] * shape[2]].reshape(shape)
        return np.matmul(block, keys.swapaxes(1, 2), out=scores)  # [K, G T, h] @ [K, h, keys] -> [K, G T, keys]

    def _exponentials(self, scores: Array, peak: Array) -> Array:
        """Turn scores into exp(scores - peak) in place; their sums over the keys, [K, G T, 1]."""
        scores -= peak
        np.exp(scores, out=scores)
        # BLAS adds up twice as fast as NumPy.
        return np.matmul(scores, self.ones[: scores.shape[-1]])[..., None]


def decode_attention(q: Array, keys: Array, values: Array) -> Array:
    """One token's attention, q [K, G, h], to keys and values [K, S, h] that already hold its own; [K, G, h]."""
    # Keys from the left: with the few query rows on the left BLAS takes three times as long.
    by_key = np.matmul(keys, q.swapaxes(1, 2))  # [K, S, h] @ [K, h, G] -> [K, S, G]
    scores = np.ascontiguousarray(by_key.swapaxes(1, 2))  # [K, G, S]
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    total = scores.sum(axis=-1, keepdims=True)  # [K, G, 1]
    return np.matmul(scores, values) / total  # [K, G, S] @ [K, S, h] -> [K, G, h]

"""The model: prefill in chunks, decode for several sequences at once.

Shapes: T rows, D hidden, K key heads, G query heads per key head, h head dimension, V vocabulary.

Prefill uses several threads by splitting a chunk's rows into pieces that follow each other through the layers: a piece
may attend in a layer once its predecessor has stored its keys and values there. BLAS itself runs single-threaded,
because its own threads meet several times in every product: when another process takes a core, each meeting waits for
the scheduler, and a token costs ten times as much. Pieces wait once per layer and only for the one before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Semaphore

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.attention import Cache, decode_attention
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError
from loadkit.engine.lane import Array, Lane, rms_norm
from loadkit.engine.weights import Weights

CHUNK = 512  # most rows of one pass
MIN_PIECE = 32  # fewer rows than this are not worth another thread


def rotations(positions: int, head_dim: int, theta: float) -> NDArray[np.complex64]:
    """RoPE as complex factors exp(i p theta^(-2 j / h)), [positions, h/2]: a rotated pair is one complex number."""
    frequencies = theta ** (-np.arange(0, head_dim, 2) / head_dim)  # [h/2]
    angles = np.arange(positions)[:, None] * frequencies  # [positions, h/2]
    return np.exp(1j * angles).astype(np.complex64)


class Model:
    """A model with its scratch memory and threads. One caller at a time."""

    def __init__(self, config: ModelConfig, weights: Weights, *, context: int | None = None, threads: int = 1) -> None:
        self.config = config
        self.weights = weights
        self.context = config.context_length if context is None else context  # positions a sequence may have
        if not 1 <= self.context <= config.context_length:
            raise EngineError(f"context must be between 1 and the model's {config.context_length}, it is {context}")
        self._rotations = rotations(self.context, config.head_dim, config.rope_theta)  # [context, h/2]
        self._x = np.empty((CHUNK, config.hidden), np.float32)  # the residual stream of one pass
        # The first lane also decodes, one row for each of up to CHUNK sequences.
        self._lanes = [Lane(config, CHUNK if lane == 0 else _piece(CHUNK, threads)) for lane in range(threads)]
        self._pool = ThreadPoolExecutor(max(threads - 1, 1), "lane")

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
        if cache.length + len(tokens) > min(cache.capacity, self.context) or len(tokens) > CHUNK:
            raise ValueError(f"{len(tokens)} tokens after {cache.length} do not fit a cache of {cache.capacity}")
        x = self._embed(tokens)
        size = _piece(len(tokens), len(self._lanes))
        starts = range(0, len(tokens), size)
        ready = [Semaphore(0) for _ in starts]  # ready[i]: one permit per layer that piece i - 1 has stored
        ready.append(Semaphore(0))
        pieces = [
            (self._lanes[i], x[at : at + size], cache, cache.length + at, ready[i] if i else None, ready[i + 1])
            for i, at in enumerate(starts)
        ]
        others = [self._pool.submit(self._run_piece, *piece) for piece in pieces[:-1]]
        try:
            self._run_piece(*pieces[-1])
        finally:
            wait(others)  # the next pass needs their lanes
        for other in others:
            other.result()
        cache.length += len(tokens)
        return x

    def decode(self, tokens: Sequence[int], caches: Sequence[Cache]) -> Array:
        """Append one token to each of 1 to CHUNK sequences, every weight read once; logits [T, V]."""
        positions = [cache.length for cache in caches]
        if any(cache.length >= min(cache.capacity, self.context) for cache in caches):
            raise ValueError("a sequence is at the end of its cache")
        grouped = (self.config.kv_heads, self.config.group, self.config.head_dim)

        def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
            for row, (cache, at) in enumerate(zip(caches, positions, strict=True)):
                keys, values = cache.keys[layer], cache.values[layer]  # [K, capacity, h]
                keys[:, at] = k[row]  # [K, h]
                values[:, at] = v[row]
                mixed = decode_attention(q[row].reshape(grouped), keys[:, : at + 1], values[:, : at + 1])
                out[row] = mixed.reshape(-1)  # [K, G, h] -> [H h]

        x = self._embed(tokens)
        self._lanes[0].run(self.weights, x, self._rotations[positions], attend)
        for cache in caches:
            cache.length += 1
        return self.logits(x)

    def logits(self, hidden: Array) -> Array:
        """Logits [T, V] of hidden states [T, D]."""
        normed = np.empty_like(hidden)
        rms_norm(hidden, self.config.rms_eps, normed)
        normed *= self.weights.final_norm
        return normed @ self.weights.head  # [T, D] @ [D, V] -> [T, V]

    def _embed(self, tokens: Sequence[int]) -> Array:
        x = self._x[: len(tokens)]
        x[...] = self.weights.embedding[np.asarray(tokens)]  # [T] -> [T, D]
        return x

    def _run_piece(
        self, lane: Lane, x: Array, cache: Cache, start: int, before: Semaphore | None, after: Semaphore
    ) -> None:
        """One piece [T, D] of a chunk, its first token at position `start`; `before` and `after` are its neighbours."""
        end = start + len(x)
        grouped = (len(x), self.config.kv_heads, self.config.group, self.config.head_dim)

        def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
            keys, values = cache.keys[layer], cache.values[layer]  # [K, capacity, h]
            keys[:, start:end] = k.swapaxes(0, 1)  # [T, K, h] -> [K, T, h]
            values[:, start:end] = v.swapaxes(0, 1)
            if before is not None:
                before.acquire()
            after.release()
            lane.prefill_attention(q.reshape(grouped), keys, values, start, out.reshape(grouped))

        try:
            lane.run(self.weights, x, self._rotations[start:end], attend)
        finally:
            after.release(self.config.layers)  # when this piece failed, the next must not wait for ever


def _piece(rows: int, lanes: int) -> int:
    """Rows per piece when `rows` are split over at most `lanes` threads."""
    return max(-(-rows // lanes), MIN_PIECE)

"""The model: prefill in chunks, decode for several sequences at once.

What a caller uses, one thread at a time:

    Model(config, weights, *, context=None, prefill_mode="batched")
    new_cache(capacity) -> Cache             `cache.length` positions are filled; lower it to forget the last ones
    extend(tokens, cache) -> hidden [T, D]   append 1 to CHUNK tokens of one prompt; valid until the next pass
    logits(hidden [T, D]) -> [T, V]          of the rows asked for: a prompt needs only its last one
    prefill(tokens, cache) -> [V]            extend in chunks of CHUNK, logits after the last token
    decode(tokens, caches) -> [T, V]         one token for each of T sequences of any lengths, every weight read once
    mixed(tokens, caches, chunk, cache)      decode and extend in one pass: ([T, V], hidden of the chunk)

Shapes: T rows, D hidden, K key heads, G query heads per key head, h head dimension, V vocabulary.

The threads that the weights are laid out for share every product of a pass, see `lane.py`. BLAS itself runs
single-threaded, see `team.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadkit.engine.attention import Cache, decode_attention
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError
from loadkit.engine.lane import Attend, Lane
from loadkit.engine.products import Array
from loadkit.engine.rope import rotations
from loadkit.engine.team import Team
from loadkit.engine.weights import Weights

CHUNK = 512  # most rows of one pass
PREFILL_MODES = (
    "batched",
    "sequential",
)  # many rows at a time, or one after another, as a decoder without batches does


class Model:
    """A model with its scratch memory and threads. One caller at a time."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        *,
        context: int | None = None,
        prefill_mode: str = "batched",
    ) -> None:
        self.config = config
        self.weights = weights
        self.prefill_mode = prefill_mode
        self.context = config.context_length if context is None else context  # positions a sequence may have
        if not 1 <= self.context <= config.context_length:
            raise EngineError(f"context must be between 1 and the model's {config.context_length}, it is {context}")
        # [context, h/2]
        self._rotations = rotations(self.context, config.head_dim, config.rope_theta, config.rope_factors)
        self._team = Team(weights.threads)
        sums = np.empty((2, weights.threads, CHUNK, config.hidden), np.float32)
        self._lanes = [Lane(config, rank, self._team, sums) for rank in range(weights.threads)]

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
        if self.prefill_mode == "sequential":
            return np.concatenate([self._pass([token], cache).copy() for token in tokens])
        return self._pass(tokens, cache)

    def _pass(self, tokens: Sequence[int], cache: Cache) -> Array:
        start = cache.length
        ids, rotation = np.asarray(tokens), self._rotations[start : start + len(tokens)]
        self._team.run(lambda rank: self._lanes[rank].run(self.weights, ids, rotation, self._chunk(rank, cache, start)))
        cache.length += len(tokens)
        return self._lanes[0].x[: len(tokens)]

    def decode(self, tokens: Sequence[int], caches: Sequence[Cache]) -> Array:
        """Append one token to each of 1 to CHUNK sequences, every weight read once; logits [T, V]."""
        positions = [cache.length for cache in caches]
        if any(cache.length >= min(cache.capacity, self.context) for cache in caches):
            raise ValueError("a sequence is at the end of its cache")
        ids, rotation = np.asarray(tokens), self._rotations[positions]
        logits = np.empty((len(ids), self.config.vocab), np.float32)

        def share(rank: int) -> None:
            lane = self._lanes[rank]
            lane.run(self.weights, ids, rotation, self._tokens(rank, caches, positions))
            lane.logits(self.weights, lane.x[: len(ids)], logits)

        self._team.run(share)
        for cache in caches:
            cache.length += 1
        return logits

    def mixed(
        self, tokens: Sequence[int], caches: Sequence[Cache], chunk: Sequence[int], cache: Cache
    ) -> tuple[Array, Array]:
        """`decode` and, for another sequence, `extend` in one pass, every weight read once for both.

        Logits [T, V] of the former, last hidden states of the latter, valid until the next pass; together at most
        CHUNK rows.
        """
        if self.prefill_mode == "sequential":
            return self.decode(tokens, caches), self.extend(chunk, cache)
        T, start, positions = len(tokens), cache.length, [one.length for one in caches]
        ends = [*(at + 1 for at in positions), start + len(chunk)]
        room = [min(one.capacity, self.context) for one in (*caches, cache)]
        if T + len(chunk) > CHUNK or any(end > most for end, most in zip(ends, room, strict=True)):
            raise ValueError(f"{len(chunk)} tokens beside {T} sequences do not fit the pass or a cache")
        ids = np.asarray([*tokens, *chunk])
        rotation = self._rotations[[*positions, *range(start, start + len(chunk))]]
        logits = np.empty((T, self.config.vocab), np.float32)

        def share(rank: int) -> None:
            lane = self._lanes[rank]
            single, several = self._tokens(rank, caches, positions), self._chunk(rank, cache, start)

            def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
                single(layer, q[:T], k[:T], v[:T], out[:T])
                several(layer, q[T:], k[T:], v[T:], out[T:])

            lane.run(self.weights, ids, rotation, attend)
            lane.logits(self.weights, lane.x[:T], logits)

        self._team.run(share)
        for one, end in zip((*caches, cache), ends, strict=True):
            one.length = end
        return logits, self._lanes[0].x[T : len(ids)]

    def logits(self, hidden: Array) -> Array:
        """Logits [T, V] of hidden states [T, D]."""
        logits = np.empty((len(hidden), self.config.vocab), np.float32)
        self._team.run(lambda rank: self._lanes[rank].logits(self.weights, hidden, logits))
        return logits

    def _chunk(self, rank: int, cache: Cache, start: int) -> Attend:
        """Attention of a thread's heads in a chunk of one sequence whose first token is at position `start`."""
        lane = self._lanes[rank]
        mine = lane.key_heads

        def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
            keys, values = cache.keys[layer, mine], cache.values[layer, mine]  # [k, capacity, h]
            keys[:, start : start + len(k)] = k.swapaxes(0, 1)  # [T, k, h] -> [k, T, h]
            values[:, start : start + len(v)] = v.swapaxes(0, 1)
            lane.prefill_attention(q, keys, values, start, out)

        return attend

    def _tokens(self, rank: int, caches: Sequence[Cache], positions: Sequence[int]) -> Attend:
        """Attention of a thread's heads for one token of each of several sequences."""
        mine = self._lanes[rank].key_heads

        def attend(layer: int, q: Array, k: Array, v: Array, out: Array) -> None:
            for row, (cache, at) in enumerate(zip(caches, positions, strict=True)):
                keys, values = cache.keys[layer, mine], cache.values[layer, mine]  # [k, capacity, h]
                keys[:, at] = k[row]  # [k, h]
                values[:, at] = v[row]
                out[row] = decode_attention(q[row], keys[:, : at + 1], values[:, : at + 1])

        return attend

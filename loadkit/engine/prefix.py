"""The prefix cache: keys and values of prompts that were read before, for requests that ask to use it.

Only requests with `cache_prompt` take from it or add to it, so that a prompt of a measurement is computed whole unless
it asks for the contrary. It holds the prompts used last, up to a number of bytes.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from loadkit.engine.attention import Cache
from loadkit.engine.config import ModelConfig

SHORTEST = 16  # tokens of a prefix that are worth keeping


class PrefixCache:
    """Prompts with their keys and values, the one used last at the end. One thread at a time."""

    def __init__(self, config: ModelConfig, limit_bytes: int) -> None:
        self._config = config
        self._limit = limit_bytes
        self._kept: OrderedDict[tuple[int, ...], Cache] = OrderedDict()
        self.bytes = 0

    def fill(self, prompt: list[int], cache: Cache) -> int:
        """Copy what is known of a prompt's beginning into its empty cache; how many tokens that were.

        At least the last token is left to compute: its logits are not kept.
        """
        best: tuple[int, ...] = ()
        length = 0
        wanted = np.array(prompt[:-1])
        for tokens in self._kept:
            common = _common(np.array(tokens[: len(wanted)]), wanted)
            if common > length:
                best, length = tokens, common
        if length < SHORTEST:
            return 0
        self._kept.move_to_end(best)
        cache.take(self._kept[best], length)
        return length

    def keep(self, prompt: list[int], cache: Cache) -> None:
        """Keep a copy of a prompt's keys and values; the longest unused ones go when there is no room."""
        size = self._config.kv_bytes(len(prompt))
        key = tuple(prompt)
        if len(prompt) < SHORTEST or size > self._limit or key in self._kept:
            return
        while self.bytes + size > self._limit:
            oldest, _ = self._kept.popitem(last=False)
            self.bytes -= self._config.kv_bytes(len(oldest))
        copy = Cache(self._config, len(prompt))
        copy.take(cache, len(prompt))
        self._kept[key] = copy
        self.bytes += size


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the common beginning; `one` is not the longer."""
    differ = np.flatnonzero(one != other[: len(one)])
    return int(differ[0]) if len(differ) else len(one)

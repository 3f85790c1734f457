"""Who computes next: one thread, a bounded first-come queue, one prefill at a time, decode for all streams together.

A round is one pass of the model: at most one chunk of one prompt, and one token for every stream that has its first
one. While somebody decodes, the chunk is small enough that the pass takes little more than twice a decode step (see
`pace.py`), so that a long prompt slows the other streams and does not stop them.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.attention import Cache
from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation
from loadkit.engine.metrics import Metrics
from loadkit.engine.model import CHUNK, Model
from loadkit.engine.pace import Pace
from loadkit.engine.prefix import PrefixCache

MAX_RETRY_AFTER_S = 60


class Scheduler:
    """Runs generations on a model. `submit` may be called from any thread, `step` from one only."""

    def __init__(
        self,
        model: Model,
        *,
        slots: int,
        queue: int,
        metrics: Metrics,
        prefixes: PrefixCache,
        stops: Iterable[int] = (),
        suppressed: Iterable[int] = (),
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._slots = slots  # generations that hold a cache at the same time
        self._queue = queue  # generations that may wait for a slot
        self._metrics = metrics
        self._prefixes = prefixes
        self._pace = Pace(CHUNK)
        self._stops = frozenset(stops)
        self._stop_ids: NDArray[np.intp] = np.array(sorted(self._stops), np.intp)
        self._suppressed: NDArray[np.intp] = np.array(sorted(suppressed), np.intp)
        self._now = now
        self._wake = threading.Condition()
        self._waiting: deque[Generation] = deque()
        self._prefilling: Generation | None = None
        self._decoding: list[Generation] = []
        self._stopping = False
        self._service_s = 1.0  # running mean of how long a generation holds its slot

    def submit(self, generation: Generation) -> None:
        """Queue a generation; ApiError 503 with Retry-After when slots and queue are full."""
        with self._wake:
            if self.running + len(self._waiting) >= self._slots + self._queue:
                self._metrics.rejected()
                raise ApiError(
                    503,
                    "overloaded",
                    f"the engine is full: {self._slots} slots in use, {self._queue} requests waiting; try again later",
                    retry_after_s=self._retry_after_s(),
                )
            generation.submitted_s = self._now()
            self._waiting.append(generation)
            self._wake.notify()

    @property
    def running(self) -> int:
        """Generations that hold a slot."""
        return len(self._decoding) + (self._prefilling is not None)

    @property
    def kv_tokens(self) -> int:
        """Positions that hold keys and values of generations, the prefix cache left out."""
        active = [*self._decoding, self._prefilling]
        caches = [generation.cache for generation in active if generation is not None]
        return sum(cache.length for cache in caches if cache is not None)

    @property
    def waiting(self) -> int:
        """Generations that wait for a slot."""
        return len(self._waiting)

    def run(self) -> None:
        """Work until `stop`; sleeps while there is nothing to do."""
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._waiting or self.running)
                if self._stopping:
                    return
            self.step()

    def stop(self) -> None:
        """Make `run` return after its current round."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def step(self) -> None:
        """One round: drop who has left, admit the next, one chunk of its prompt and one token for every stream."""
        self._drop_abandoned()
        self._admit()
        reading = self._prefilling
        if reading is not None and reading.cache is None:
            self._guarded(partial(self._open, reading), [reading])
        if self._decoding and (self._prefilling is None or self._pace.blind):
            self._guarded(self._decode_all, self._decoding)
        elif self._prefilling is None:
            return
        elif self._decoding:
            self._guarded(partial(self._decode_and_read, self._prefilling), [self._prefilling, *self._decoding])
        else:
            self._guarded(partial(self._read, self._prefilling), [self._prefilling])

    def _guarded(self, work: Callable[[], None], generations: list[Generation]) -> None:
        """Run a piece of work; when it fails its generations end with an error and the engine goes on."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 (the server outlives a failed request, whatever failed)
            traceback.print_exc(file=sys.stderr)
            for generation in list(generations):
                self._finish(generation, Finished("error", f"{type(error).__name__} in the engine"))

    def _drop_abandoned(self) -> None:
        with self._wake:
            gone = [generation for generation in self._waiting if not generation.alive()]
            for generation in gone:
                self._waiting.remove(generation)
        active = [*self._decoding, *([self._prefilling] if self._prefilling else [])]
        gone += [generation for generation in active if not generation.alive()]
        for generation in gone:
            self._finish(generation, Finished("abort"))

    def _admit(self) -> None:
        with self._wake:
            if self._prefilling is None and self._waiting and len(self._decoding) < self._slots:
                self._prefilling = self._waiting.popleft()
                self._prefilling.started_s = self._now()

    def _open(self, generation: Generation) -> None:
        """Give it a cache with room for the whole answer; its beginning comes from the prefix cache where wished."""
        cache = self._model.new_cache(len(generation.prompt) + generation.sampling.max_tokens)
        if generation.reuse:
            generation.cached_tokens = self._prefixes.fill(generation.prompt, cache)
            self._metrics.looked_up(len(generation.prompt))
        generation.cache = cache

    def _read(self, generation: Generation) -> None:
        """A chunk of a prompt that has the model for itself."""
        cache = _cache(generation)
        self._advance(generation, self._model.extend(generation.prompt[cache.length : cache.length + CHUNK], cache))

    def _decode_and_read(self, generation: Generation) -> None:
        """A token for every stream and a chunk of a prompt, in one pass."""
        streams, cache = list(self._decoding), _cache(generation)
        size = min(self._pace.size, CHUNK - len(streams))
        chunk = generation.prompt[cache.length : cache.length + size]
        last = [stream.last_token for stream in streams]
        began = self._now()
        logits, hidden = self._model.mixed(last, [_cache(stream) for stream in streams], chunk, cache)
        self._pace.read(len(chunk), self._now() - began)
        for stream, row in zip(streams, logits, strict=True):
            self._take(stream, row)
        self._advance(generation, hidden)

    def _advance(self, generation: Generation, hidden: NDArray[np.float32]) -> None:
        """A chunk of its prompt has been read; with the last one comes the first token."""
        cache = _cache(generation)
        if cache.length < len(generation.prompt):
            return
        logits = self._model.logits(hidden[-1:])[0]
        if generation.reuse:
            self._prefixes.keep(generation.prompt, cache)
        with self._wake:  # `submit` counts both
            self._prefilling = None
            self._decoding.append(generation)
        self._metrics.prefilled(len(generation.prompt), generation.cached_tokens)
        self._take(generation, logits)

    def _decode_all(self) -> None:
        streams = list(self._decoding)
        last = [stream.last_token for stream in streams]
        began = self._now()
        logits = self._model.decode(last, [_cache(stream) for stream in streams])  # [streams, V]
        self._pace.decoded(self._now() - began)
        for stream, row in zip(streams, logits, strict=True):
            self._take(stream, row)

    def _take(self, generation: Generation, logits: NDArray[np.float32]) -> None:
        """Choose a generation's next token, hand it out, and end the generation when it is the last."""
        token = generation.next_token(logits, self._stop_ids, self._suppressed)
        if token in self._stops:
            self._finish(generation, Finished("stop"))
            return
        now = self._now()
        if generation.first_token_s is None:
            generation.first_token_s = now
        else:
            self._metrics.gap(now - (generation.last_token_s or now))
        generation.last_token_s = now
        generation.last_token = token
        generation.output_tokens += 1
        self._metrics.generated()
        # The end is decided before the token is handed out: a client that has read its last token finds a free slot.
        last = generation.output_tokens >= generation.sampling.max_tokens
        if last:
            self._release(generation)
        generation.emit(token)
        if last:
            self._finish(generation, Finished("length"))

    def _release(self, generation: Generation) -> None:
        generation.cache = None
        if generation is self._prefilling:
            self._prefilling = None
        if generation in self._decoding:
            self._decoding.remove(generation)

    def _finish(self, generation: Generation, finished: Finished) -> None:
        self._release(generation)
        end = self._now()
        if generation.started_s is not None:
            self._service_s += 0.2 * (end - generation.started_s - self._service_s)
        self._metrics.finished(generation, finished.reason, end)
        generation.emit(finished)

    def _retry_after_s(self) -> int:
        """Whole seconds until a slot is likely to be free for one more."""
        expected = self._service_s * (len(self._waiting) + 1) / self._slots
        return min(max(math.ceil(expected), 1), MAX_RETRY_AFTER_S)


def _cache(generation: Generation) -> Cache:
    assert generation.cache is not None  # it has one from its first chunk to its end
    return generation.cache

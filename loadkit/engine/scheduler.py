"""Who computes next: one thread, a bounded first-come queue, one prefill at a time, decode for all streams together.

A round is at most one chunk of one prompt and one token for every stream that has its first token. While somebody
decodes, prompts advance in small chunks, so that a long prompt slows the other streams and does not stop them.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from loadkit.engine.errors import ApiError
from loadkit.engine.generation import Finished, Generation
from loadkit.engine.metrics import Metrics
from loadkit.engine.model import CHUNK, Model

SHARED_CHUNK = 64  # prompt tokens per round while others decode
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
        stops: Iterable[int] = (),
        suppressed: Iterable[int] = (),
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._model = model
        self._slots = slots  # generations that hold a cache at the same time
        self._queue = queue  # generations that may wait for a slot
        self._metrics = metrics
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
        """Queue a generation; ApiError 429 with Retry-After when slots and queue are full."""
        with self._wake:
            if self.running + len(self._waiting) >= self._slots + self._queue:
                self._metrics.rejected()
                raise ApiError(
                    429,
                    "rate_limit_exceeded",
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
        """One round: drop who has left, admit the next, one chunk of its prompt, one token for every stream."""
        self._drop_abandoned()
        self._admit()
        if self._prefilling is not None:
            self._guarded(self._prefill_chunk, [self._prefilling])
        if self._decoding:
            self._guarded(self._decode_all, self._decoding)

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

    def _prefill_chunk(self) -> None:
        generation = self._prefilling
        assert generation is not None
        if generation.cache is None:
            generation.cache = self._model.new_cache(len(generation.prompt) + generation.sampling.max_tokens)
        done = generation.cache.length
        size = SHARED_CHUNK if self._decoding else CHUNK
        hidden = self._model.extend(generation.prompt[done : done + size], generation.cache)
        if generation.cache.length < len(generation.prompt):
            return
        logits = self._model.logits(hidden[-1:])[0]
        with self._wake:  # `submit` counts both
            self._prefilling = None
            self._decoding.append(generation)
        self._metrics.prefilled(len(generation.prompt))
        self._take(generation, logits)

    def _decode_all(self) -> None:
        streams = list(self._decoding)
        caches = [generation.cache for generation in streams if generation.cache is not None]
        logits = self._model.decode([generation.last_token for generation in streams], caches)  # [streams, V]
        for generation, row in zip(streams, logits, strict=True):
            self._take(generation, row)

    def _take(self, generation: Generation, logits: NDArray[np.float32]) -> None:
        """Choose a generation's next token, hand it out, and end the generation when it is the last."""
        token = generation.next_token(logits, self._stop_ids, self._suppressed)
        if token in self._stops:
            self._finish(generation, Finished("stop"))
            return
        now = self._now()
        if generation.first_token_s is None:
            generation.first_token_s = now
        generation.last_token_s = now
        generation.last_token = token
        generation.output_tokens += 1
        self._metrics.generated()
        # The end is decided before the token is handed out: a client that has read its last token finds a free slot.
        last = generation.output_tokens >= generation.sampling.max_tokens
        if last:
            self._release(generation)
        generation.events.put(token)
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
        generation.events.put(finished)

    def _retry_after_s(self) -> int:
        """Whole seconds until a slot is likely to be free for one more."""
        expected = self._service_s * (len(self._waiting) + 1) / self._slots
        return min(max(math.ceil(expected), 1), MAX_RETRY_AFTER_S)

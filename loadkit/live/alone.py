"""Which times of a server's histograms belong to one request: those of a window that held no other. Pure state.

A histogram tells how much its sum has risen and how many it counted. Where between two looks at the page exactly one
request of ours ended, the server counted exactly one, and nothing from before was still to be counted, the rise of the
sums is the time of that request. In every other case nothing is told of it.
"""

from collections.abc import Mapping
from typing import Any

from loadkit.live.server_metrics import ENGINES, engine_of

Page = Mapping[str, list[float]]
KEYS = ("queue_ms", "prefill_ms", "decode_ms")
ROUNDING_MS = 1.0  # by which the parts may come out longer than the TTFT they are parts of


class Alone:
    """Told of every request that ends and shown the page after those that ran alone."""

    def __init__(self) -> None:
        self._before: Page | None = None
        self._ended = 0  # requests of ours since then
        self._owed = 0  # requests of ours that the server had not counted by then

    def ended(self, *, ok: bool) -> None:
        """A request of ours has ended. Whether a server counts one that failed is not known: it begins anew."""
        if ok:
            self._ended += 1
        else:
            self.forget()

    def forget(self) -> None:
        """What was seen says nothing about what comes."""
        self._before, self._ended, self._owed = None, 0, 0

    def look(self, page: Page, ttft_ms: float | None) -> dict[str, float]:
        """{queue_ms, prefill_ms, decode_ms} of the request that has just ended, as far as the page tells; {} where it
        may be of another one, or cannot be true of one whose first token came after `ttft_ms`."""
        before, ended, owed = self._before, self._ended, self._owed
        self._before, self._ended = page, 0
        if before is None:
            return {}
        found = {key: _rise(key, page, before) for key in KEYS}
        counts = {rise[0] for rise in found.values() if rise is not None}
        counted = counts.pop() if len(counts) == 1 else -1
        if counted < 0:  # it has no such times, was restarted, or is one of several behind one address
            self.forget()
            return {}
        self._owed = owed + ended - counted
        if self._owed < 0:  # the server has other clients too
            self._owed = 0
            return {}
        times = {key: rise[1] for key, rise in found.items() if rise is not None}
        if (ended, owed, counted) != (1, 0, 1) or min(times.values()) < 0:
            return {}
        parts = times.get("queue_ms", 0.0) + times.get("prefill_ms", 0.0)
        return times if ttft_ms is not None and parts <= ttft_ms + ROUNDING_MS else {}


def tells(page: Page) -> bool:
    """Whether the page counts a time that a TTFT consists of."""
    engine = engine_of(page)
    times: Mapping[str, Any] = ENGINES[engine].times if engine else {}
    return any(f"{name}_count" in page for key in KEYS[:2] for name in times.get(key, ()))


def _rise(key: str, page: Page, before: Page) -> tuple[int, float] | None:
    """By how many the count of a time rose, and by how many ms its sum; None where the page has no such time."""
    engine = engine_of(page)
    names = ENGINES[engine] if engine else None
    for name in names.times.get(key, ()) if names else ():
        if f"{name}_count" in page and f"{name}_sum" in page:
            count, total = (
                sum(page[f"{name}_{end}"]) - sum(before.get(f"{name}_{end}", ())) for end in ("count", "sum")
            )
            assert names is not None
            return round(count), total * names.scale
    return None

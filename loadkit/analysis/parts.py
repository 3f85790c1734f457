"""What a TTFT consists of, where the server says how long a request waited in it and how long its prefill took.

What is left of the TTFT is the network both ways, HTTP, tokenising, and the first token's way to us; where a server
tells no queue time the wait in its queue is in there too.
"""

from array import array
from collections.abc import Mapping
from typing import Any

from loadkit.analysis.reading import number
from loadkit.analysis.spread import median


class Parts:
    """The answers of one cell whose records have server times."""

    def __init__(self) -> None:
        self._queue = array("d")  # ms
        self._prefill = array("d")
        self._rest = array("d")

    def add(self, record: Mapping[str, Any]) -> None:
        """A measured answer."""
        ttft, queue, prefill = (number(record, name) for name in ("ttft_ms", "server_queue_ms", "server_prefill_ms"))
        if ttft is None or (queue is None and prefill is None):
            return
        self._rest.append(ttft - (queue or 0.0) - (prefill or 0.0))
        for values, value in ((self._queue, queue), (self._prefill, prefill)):
            if value is not None:
                values.append(value)

    def summary(self) -> dict[str, Any] | None:
        """Medians in ms, which need not add up to that of the TTFT; n: the answers they are of. None where no answer
        has such times, and a part that not every one of them has is None."""
        n = len(self._rest)
        if not n:
            return None
        queue, prefill = (median(part) if len(part) == n else None for part in (self._queue, self._prefill))
        return {"queue_ms": queue, "prefill_ms": prefill, "rest_ms": median(self._rest), "n": n}

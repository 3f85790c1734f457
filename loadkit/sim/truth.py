"""What the server really did, request by request, on CLOCK_MONOTONIC nanoseconds (time.perf_counter_ns).

Memory is bounded: at most `keep` finished requests and `keep * EVENTS_PER_KEPT` events are held, the oldest leave
first; event times are held as one array of gaps per request.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from typing import Any

EVENTS_PER_KEPT = 256
_PREFIXES_PER_KEPT = 4
# Upper bounds of the lateness histogram, ns: 1 us to 8 s, four per octave.
_BOUNDS = [round(1000 * 2 ** (step / 4)) for step in range(93)]


@dataclass(slots=True)
class Record:
    """The truth of one request. A stamp is taken just before the write it belongs to; null = it never happened.

    seq: order of receipt. done: order of finishing. status: HTTP status answered.
    end: complete, error, cut, reset, stall, inband_error, client_gone.
    received_ns: last body byte read. granted_ns: a slot was free. head_ns: response head written.
    first_due_ns: when the law wanted the first token event; first_write_ns: when it left; event_ns: every event's
    write, equal stamps = one write. late_*_ms: stamp minus schedule. coalesced: events that shared a write only
    because they were overdue. blocked_writes: writes that the socket did not take at once (client too slow), whose
    stamps are therefore not times on the wire.
    """

    seq: int
    id: str
    request_id: str | None
    path: str
    received_ns: int
    body_bytes: int
    done: int = 0
    status: int | None = None
    end: str = ""
    stream: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefix_sha256: str | None = None
    output_tokens: int = 0
    granted_ns: int | None = None
    head_ns: int | None = None
    first_due_ns: int | None = None
    first_write_ns: int | None = None
    last_write_ns: int | None = None
    writes: int = 0
    coalesced: int = 0
    blocked_writes: int = 0
    sent_bytes: int = 0
    late_first_ms: float | None = None
    late_max_ms: float | None = None
    event_ns: list[int] = field(default_factory=list)
    gaps: array[int] | None = None

    def wrote(self, now_ns: int, due_ns: int, events: int, overdue: int) -> None:
        """One write of `events` events left at `now_ns`, `overdue` of them only because they were late."""
        late = (now_ns - due_ns) / 1e6
        if self.first_write_ns is None:
            self.first_write_ns = now_ns
            self.late_first_ms = late
        if self.late_max_ms is None or late > self.late_max_ms:
            self.late_max_ms = late
        self.last_write_ns = now_ns
        self.writes += 1
        self.coalesced += overdue
        self.event_ns += [now_ns] * events

    def pack(self) -> None:
        """Turn the event times into an array of gaps; four bytes each where no gap passes 4.29 s."""
        gaps = [b - a for a, b in zip(self.event_ns[:1] + self.event_ns, self.event_ns, strict=False)]
        self.gaps = array("I" if max(gaps, default=0) < 2**32 else "Q", gaps)
        self.event_ns = []

    def as_dict(self, events: bool) -> dict[str, Any]:
        """JSON values; with `events` the absolute event times too."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        if events:
            first = self.first_write_ns or 0
            plain["event_ns"] = list(accumulate(self.gaps or (), initial=first))[1:]
        return plain


_PLAIN = [name for name in Record.__slots__ if name not in ("event_ns", "gaps")]


class Truth:
    """Finished requests in the order in which they finished, by response id and client request id too, and counters
    since the last reset."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._next_seq = 1
        self._next_done = 1
        self.reset()

    def reset(self) -> None:
        """Forget finished requests and counters; sequence numbers go on, so no id is used twice."""
        self._records: dict[int, Record] = {}
        self._by_id: dict[str, list[int]] = {}
        self._events = 0
        self._prefixes: set[bytes] = set()
        self._lateness = [0] * (len(_BOUNDS) + 1)
        self._late_max = 0
        self._first_seq = self._next_seq
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()

    def received(self, path: str, request_id: str | None, now_ns: int, body_bytes: int) -> Record:
        """A request's last byte is here: give it its number and id."""
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        self.counts["received"] += 1
        return Record(seq, f"sim-{seq:x}", request_id, path, now_ns, body_bytes)

    def prefix(self, record: Record, head: bytes) -> None:
        """Note the first block of the prompt."""
        digest = sha256(head)
        record.prefix_sha256 = digest.hexdigest()
        if len(self._prefixes) < self._keep * _PREFIXES_PER_KEPT:
            self._prefixes.add(digest.digest()[:16])

    def late(self, late_ns: int) -> None:
        """One write left `late_ns` after its time."""
        self._lateness[bisect_left(_BOUNDS, late_ns)] += 1
        if late_ns > self._late_max:
            self._late_max = late_ns

    def finished(self, record: Record, status: int | None, end: str) -> None:
        """Keep `record`. One that was received before a reset is not of this count and is dropped."""
        if record.seq < self._first_seq:
            return
        record.status, record.end = status, end
        record.done, self._next_done = self._next_done, self._next_done + 1
        record.pack()
        self.statuses[str(status) if status else "none"] += 1
        self.ends[end] += 1
        for name in ("writes", "coalesced", "blocked_writes"):
            self.counts[name] += getattr(record, name)
        self.counts["events"] += len(record.gaps or ())
        self._records[record.done] = record
        self._events += len(record.gaps or ())
        for key in {record.id, record.request_id} - {None}:
            self._by_id.setdefault(str(key), []).append(record.done)
        while len(self._records) > self._keep or self._events > self._keep * EVENTS_PER_KEPT:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        record = self._records.pop(next(iter(self._records)))
        self._events -= len(record.gaps or ())
        self.counts["forgotten"] += 1
        for key in {record.id, record.request_id} - {None}:
            known = self._by_id[str(key)]
            known.remove(record.done)
            if not known:
                del self._by_id[str(key)]

    def find(self, key: str) -> list[Record]:
        """The finished requests with this response id or client request id, as they finished."""
        return [self._records[done] for done in self._by_id.get(key, [])]

    def since(self, done: int) -> Iterator[Record]:
        """Finished requests from the `done`-th on, as they finished; safe while more of them finish."""
        for key in [key for key in self._records if key >= done]:
            record = self._records.get(key)
            if record is not None:
                yield record

    @property
    def next_done(self) -> int:
        """The `done` number of the request that finishes next: the `since` of a later look."""
        return self._next_done

    def stats(self) -> dict[str, Any]:
        """Counters since the last reset. Lateness quantiles are upper bucket bounds (19 % wide)."""
        known = ("received", "writes", "events", "coalesced", "blocked_writes", "forgotten")
        late = {f"p{100 * q:g}": self._late_quantile(q) for q in (0.5, 0.9, 0.99, 0.999)}
        return {
            **{name: self.counts[name] for name in known},
            "by_status": dict(self.statuses),
            "by_end": dict(self.ends),
            "distinct_prefixes": len(self._prefixes),
            "distinct_prefixes_full": len(self._prefixes) >= self._keep * _PREFIXES_PER_KEPT,
            "late_ms": late | {"max": self._late_max / 1e6},
            "kept": len(self._records),
            "next": self._next_done,
            "cpu_s": time.process_time(),
        }

    def _late_quantile(self, q: float) -> float | None:
        total = sum(self._lateness)
        rank, seen = q * total, 0
        for bound, count in zip([*_BOUNDS, self._late_max], self._lateness, strict=True):
            seen += count
            if count and seen >= rank:
                return min(bound, self._late_max) / 1e6
        return None

"""The children of the metrics and their lines of text, which are kept until a value changes.

A scrape joins what is kept: only the cells that were loaded since the last one are written again. prometheus_client's
own writer takes 183 ms for a large registry, in which no read could be stamped.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from loadkit.live.labels import RUN
from loadkit.live.table import Metric
from loadkit.measure.histogram import Histogram

Labels = tuple[str, ...]
USUAL_MS = 1e6  # whole nanoseconds up to here can be summed in 64 bits, however many there are in an answer
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exemplar(NamedTuple):
    """One value of a bucket: the request it came from, the value in seconds, and its Unix time."""

    request_id: str
    value: float
    at: float


class Scalars:
    """Counters, gauges or infos with the same place in the plan: one value per set of labels."""

    def __init__(self, metric: Metric, run: str) -> None:
        self._metric = metric
        self._run = run
        self.values: dict[Labels, float] = {}
        self._heads: dict[Labels, str] = {}
        self._changes = 0  # counted, so that one that comes while the text is written is not taken to be in it
        self._text = 0, b""

    def put(self, labels: Labels, value: float) -> None:
        """Set the value."""
        self.values[labels] = value
        self._changes += 1

    def drop(self, labels: Labels) -> None:
        """Forget the value: a series that is not there is better than one that lies."""
        if self.values.pop(labels, None) is not None:
            self._changes += 1

    @property
    def series(self) -> int:
        """How many there are."""
        return len(self.values)

    def text(self, _: bool) -> bytes:
        """The lines of all values."""
        changes = self._changes
        at, text = self._text
        if at != changes:
            lines = [f"{self._head(labels)}{number(value)}\n" for labels, value in list(self.values.items())]
            text = "".join(lines).encode()
            self._text = changes, text
        return text

    def _head(self, labels: Labels) -> str:
        if (head := self._heads.get(labels)) is None:
            head = f"{self._metric.name}{braces(self._run, self._metric.labels, labels)} "
            self._heads[labels] = head
        return head


class Buckets:
    """One histogram with its exemplars, the last value of each bucket."""

    def __init__(self, metric: Metric, run: str, labels: Labels) -> None:
        self.histogram = Histogram(metric.bounds)
        self._bounds = np.array(metric.bounds)
        self.exemplars: list[Exemplar | None] = [None] * (len(metric.bounds) + 1)
        self._of = metric, run, labels
        self._heads: list[str] = []  # of each bucket, the sum and the count; written when they are first asked for
        self._changes = 0
        self._texts: dict[bool, tuple[int, bytes]] = {}
        self.series = metric.lines

    def observe(self, value_ms: float | None, exemplar: Exemplar | None = None) -> bool:
        """Count a value in ms; False where it is none that can be counted."""
        if not self.histogram.add(value_ms):
            return False
        if exemplar is not None:
            self.exemplars[bisect_left(self.histogram.bounds, exemplar.value)] = exemplar
        self._changes += 1
        return True

    def observe_all(self, values_ms: Sequence[float | None]) -> int:
        """Count many values in ms; returns how many of them could not be counted."""
        self._changes += 1
        times = np.array(values_ms, dtype=float)  # None becomes NaN
        if not ((times >= 0) & (times < USUAL_MS)).all():
            return sum(not self.histogram.add(value) for value in values_ms)
        counts = np.bincount(np.searchsorted(self._bounds, times / 1e3))
        for bucket in counts.nonzero()[0].tolist():
            self.histogram.counts[bucket] += int(counts[bucket])
        self.histogram.sum_ns += int(np.rint(times * 1e6).astype(np.int64).sum())
        return 0

    def text(self, exemplars: bool) -> bytes:
        """The lines of the histogram, with exemplars where the format has them."""
        changes = self._changes
        at, text = self._texts.get(exemplars, (-1, b""))
        if at != changes:
            text = "".join(self._lines(exemplars)).encode()
            self._texts[exemplars] = changes, text
        return text

    def _lines(self, exemplars: bool) -> list[str]:
        if not self._heads:
            self._heads = _heads(*self._of)
        *heads, total, whole = self._heads
        counts = list(accumulate(self.histogram.counts))
        ends = [f" # {_shown(one)}\n" if exemplars and one else "\n" for one in self.exemplars]
        lines = [f"{head}{count}{end}" for head, count, end in zip(heads, counts, ends, strict=True)]
        return [*lines, f"{total}{number(self.histogram.sum_s)}\n", f"{whole}{counts[-1]}\n"]


class Family:
    """All children of one metric, in blocks: a block is written again as a whole when one of its values changes."""

    def __init__(self, metric: Metric, run: str) -> None:
        self.metric = metric
        self.run = run
        self._scalars: dict[Labels, Scalars] = {}
        self._buckets: dict[Labels, Buckets] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Raise a counter; by 0 it is there from now on."""
        block = self._block(labels)
        block.put(labels, block.values.get(labels, 0) + amount)

    def set(self, labels: Labels, value: float | None) -> None:
        """Set a gauge or an info; without a value there is no series."""
        if value is None:
            self._block(labels).drop(labels)
        else:
            self._block(labels).put(labels, value)

    def drop_where(self, label: str, value: str) -> None:
        """Forget every value with this label."""
        index = self.metric.labels.index(label)
        for block in self._scalars.values():
            for labels in [labels for labels in block.values if labels[index] == value]:
                block.drop(labels)

    def buckets(self, labels: Labels) -> Buckets:
        """The histogram of these labels, made at the first call."""
        if (found := self._buckets.get(labels)) is None:
            found = self._buckets[labels] = Buckets(self.metric, self.run, labels)
        return found

    def value(self, labels: Labels) -> float | None:
        """A counter's or gauge's value; None where there is none."""
        return self._block(labels).values.get(labels)

    def scalars(self) -> Iterator[tuple[Labels, float]]:
        """Every set of labels with its value."""
        for block in list(self._scalars.values()):
            yield from list(block.values.items())

    def histograms(self) -> Iterable[tuple[Labels, Buckets]]:
        """Every set of labels with its histogram."""
        return list(self._buckets.items())

    def blocks(self) -> list[Scalars | Buckets]:
        """Everything that has text."""
        return [*self._scalars.values(), *self._buckets.values()]

    @property
    def series(self) -> int:
        """How many series it has now."""
        return sum(block.series for block in self.blocks())

    def _block(self, labels: Labels) -> Scalars:
        place = labels[: self.metric.place]
        if (found := self._scalars.get(place)) is None:
            found = self._scalars[place] = Scalars(self.metric, self.run)
        return found


def braces(run: str, names: Iterable[str], values: Iterable[str]) -> str:
    """The labels of a sample, `run` first."""
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)]
    return "{" + ",".join([f'{RUN}="{run}"', *pairs]) + "}"


def number(value: float) -> str:
    """A value as both formats write it."""
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _heads(metric: Metric, run: str, labels: Labels) -> list[str]:
    """What comes before the numbers of a histogram."""
    names, own = (*metric.labels, "le"), braces(run, metric.labels, labels)
    bounds = (*map(number, metric.bounds), "+Inf")
    buckets = [f"{metric.name}_bucket{braces(run, names, (*labels, le))} " for le in bounds]
    return [*buckets, f"{metric.name}_sum{own} ", f"{metric.name}_count{own} "]


def _shown(exemplar: Exemplar) -> str:
    return f'{{request_id="{exemplar.request_id.translate(_ESCAPES)}"}} {number(exemplar.value)} {exemplar.at:.3f}'

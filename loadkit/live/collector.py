"""The live metrics as prometheus_client sees them: a collector for a registry of its own.

The page is written by `render`, because the library's writer would hold the loop; everything else that takes a
registry of prometheus_client works on this one.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.core import Metric as Collected

from loadkit.live.labels import RUN

if TYPE_CHECKING:
    from loadkit.live.families import Family


class Collector:
    """Reads the families at every collection; nothing is counted twice."""

    def __init__(self, families: Mapping[str, "Family"]) -> None:
        self._families = families

    def collect(self) -> Iterator[Collected]:
        """Every family that has a series."""
        for family in self._families.values():
            if family.series:
                yield _histogram(family) if family.metric.kind == "histogram" else _scalar(family)


def _scalar(family: "Family") -> Collected:
    metric = family.metric
    labels = (RUN, *metric.labels)
    if metric.kind == "info":
        info = InfoMetricFamily(metric.base, metric.help)
        for values, _ in family.scalars():
            info.add_metric([], dict(zip(labels, (family.run, *values), strict=True)))
        return info
    found = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}[metric.kind](
        metric.base, metric.help, labels=labels
    )
    for values, value in family.scalars():
        found.add_metric((family.run, *values), value)
    return found


def _histogram(family: "Family") -> Collected:
    metric = family.metric
    found = HistogramMetricFamily(metric.name, metric.help, labels=(RUN, *metric.labels))
    bounds = (*map(str, metric.bounds), "+Inf")
    for labels, buckets in family.histograms():
        counts = accumulate(buckets.histogram.counts)
        pairs = list(zip(bounds, map(float, counts), strict=True))
        found.add_metric((family.run, *labels), pairs, buckets.histogram.sum_s)
    return found

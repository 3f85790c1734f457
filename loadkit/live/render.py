"""The page that is scraped: OpenMetrics with exemplars, or Prometheus text 0.0.4.

It comes in pieces of one cell and metric each, kept from the last scrape where nothing changed, so that whoever writes
it may let others run in between.
"""

from collections.abc import Iterator

from loadkit.live.registry import Registry
from loadkit.live.table import Metric

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"


def wants_openmetrics(accept: str) -> bool:
    """Whether an Accept header asks for OpenMetrics."""
    return "application/openmetrics-text" in accept.lower()


def pieces(registry: Registry, openmetrics: bool) -> Iterator[bytes]:
    """The page, each piece at most a few hundred lines."""
    for family in registry.families.values():
        blocks = family.blocks()
        if any(block.series for block in blocks):
            yield head(family.metric, openmetrics)
            for block in blocks:
                yield block.text(openmetrics)
    if openmetrics:
        yield b"# EOF\n"


def head(metric: Metric, openmetrics: bool) -> bytes:
    """The lines before a family; text 0.0.4 knows no info, and names a counter as its samples."""
    name = metric.base if openmetrics else metric.name
    kind = "gauge" if metric.kind == "info" and not openmetrics else metric.kind
    return f"# HELP {name} {metric.help}\n# TYPE {name} {kind}\n".encode()

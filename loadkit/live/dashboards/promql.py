"""Expressions for the panels, with selectors made from the metric table and the dashboard's variables."""

import re

from loadkit.live.labels import PLACE, RUN
from loadkit.live.table import BY_NAME

ONE_RUN = f'{RUN}="$run"'
RUNS = f'{RUN}=~"$run"'
STEP = "$__rate_interval"  # at least four scrapes, by the datasource's timeInterval
WINDOW = "$window"  # for what happens too seldom for that: a prompt of a million tokens takes minutes
RANGE = "$__range"  # all that is shown
SUFFIXES = ("_bucket", "_count", "_sum")


def of(name: str, *matchers: str, run: str = ONE_RUN) -> str:
    """The series of a metric that the variables choose, narrowed by `matchers` such as 'direction="output"'.

    Raises KeyError for a name that is not in the table, ValueError for a label that the metric has not.
    """
    metric = BY_NAME[name] if name in BY_NAME else BY_NAME[base(name)]
    own = {*metric.labels, *(("le",) if metric.kind == "histogram" else ())}
    if unknown := {re.split(r"[=!]", matcher)[0] for matcher in matchers} - own:
        raise ValueError(f"{name} has no label {', '.join(sorted(unknown))}")
    narrowed = [matcher.split("=")[0] for matcher in matchers]
    chosen = [f'{label}=~"${label}"' for label in PLACE if label in metric.labels and label not in narrowed]
    return f"{name}{{{', '.join([run, *chosen, *matchers])}}}"


def base(name: str) -> str:
    """The family of a series of a histogram."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def metrics_in(expr: str) -> list[str]:
    """The metrics of the table that an expression reads, in its order."""
    names = re.findall(r"loadkit_[a-z0-9_]+", expr)
    return list(dict.fromkeys(name if name in BY_NAME else base(name) for name in names))


def by(labels: str, inner: str, how: str = "sum") -> str:
    """An aggregation that keeps `labels`; over everything where there are none."""
    return f"{how} by ({labels}) ({inner})" if labels else f"{how}({inner})"


def rate(name: str, *matchers: str, window: str = STEP, run: str = ONE_RUN) -> str:
    """What a counter rises by in a second."""
    return f"rate({of(name, *matchers, run=run)}[{window}])"


def last(name: str, *matchers: str, run: str = ONE_RUN) -> str:
    """The last value in what is shown, also of a run that is over: its series ended with it."""
    return f"last_over_time({of(name, *matchers, run=run)}[{RANGE}])"


def quantile(q: float, name: str, labels: str) -> str:
    """A quantile from buckets; a time in which nothing ended has none, instead of NaN."""
    return f"histogram_quantile({q}, {by(f'le, {labels}', rate(f'{name}_bucket', window=WINDOW))}) >= 0"


def share(part: str, whole: str) -> str:
    """One sum over another; nothing where the other is zero, instead of NaN."""
    return f"{part} / ({whole} > 0)"


def total(name: str, *matchers: str, window: str = STEP) -> str:
    """The rate of a counter over all its series."""
    return by("", rate(name, *matchers, window=window))

"""Service level objectives: `ttft=2s,itl.p99=50ms,error_rate=1%`.

list    = item ("," item)*
item    = metric [("." | "_") quantile] "=" limit
metric  = ttft | itl | tpot | e2e, limit in us, ms, s or m | error_rate or errors, limit in %
quantile = p50 | p90 | p95 | p99 | mean | max; p95 when left out; error_rate has none
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadkit.measure.quantile import LEVELS, nearest_rank

TIMES = ("ttft", "itl", "tpot", "e2e")
ERROR_RATE = "error_rate"
QUANTILES = (*LEVELS, "mean", "max")
DEFAULT_QUANTILE = "p95"
MS_PER_UNIT = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}

_SPELLED = re.compile(rf"({'|'.join(TIMES)})_({'|'.join(QUANTILES)})", re.ASCII)  # ttft_p95 is ttft.p95
_LIMIT = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([a-z%]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective. `limit` is in ms, for error_rate a share of 1; `quantile` is None for error_rate."""

    metric: str
    quantile: str | None
    limit: float

    @property
    def name(self) -> str:
        """Short name, such as ttft.p95: a label of the live metrics and a column of the report."""
        return self.metric if self.quantile is None else f"{self.metric}.{self.quantile}"

    def value(self, cell: Mapping[str, Any]) -> float | None:
        """What a cell of summary.json has for the objective, in the unit of `limit`; None without such a number."""
        if self.quantile is None:
            n, ok = cell.get("n"), cell.get("ok")
            return (n - ok) / n if n and ok is not None else None
        return (cell.get(f"{self.metric}_ms") or {}).get(self.quantile)

    def holds(self, cell: Mapping[str, Any]) -> bool | None:
        """Whether a cell of summary.json meets the objective; None when the cell does not have the number."""
        value = self.value(cell)
        return None if value is None else value <= self.limit

    def met_by(self, record: Mapping[str, Any]) -> bool | None:
        """Whether one request met the objective, for goodput: a failed one did not. None where it says nothing.

        The quantile of itl is taken over the gaps of the request; error_rate says nothing about one request.
        """
        if self.quantile is None:
            return None
        if record.get("outcome") != "ok":
            return False
        value = record.get(f"{self.metric}_ms")
        if isinstance(value, list):
            value = _of_gaps(value, self.quantile)
        return None if value is None else value <= self.limit


def parse(text: str) -> list[Slo]:
    """The objectives in the text, in order. Raises ValueError, one line, naming the part that is wrong."""
    slos: list[Slo] = []
    for part in text.split(","):
        slo = _item(part.strip().lower())
        if slo.name in [other.name for other in slos]:
            raise ValueError(f"SLO '{part.strip()}': {slo.name} is given twice")
        slos.append(slo)
    return slos


def _item(part: str) -> Slo:
    left, equals, right = (piece.strip() for piece in part.partition("="))
    if not equals:
        raise ValueError(f"SLO '{part}': expected METRIC=LIMIT, such as ttft=2s")
    left = ERROR_RATE if left == "errors" else _SPELLED.sub(r"\1.\2", left)
    metric, dot, quantile = left.partition(".")
    if metric not in (*TIMES, ERROR_RATE):
        raise ValueError(f"SLO '{part}': unknown metric '{metric}'; one of {', '.join((*TIMES, ERROR_RATE))}")
    if metric == ERROR_RATE:
        if dot:
            raise ValueError(f"SLO '{part}': error_rate takes no quantile, but has '{quantile}'")
        return Slo(metric, None, _share(part, right))
    if dot and quantile not in QUANTILES:
        raise ValueError(f"SLO '{part}': unknown quantile '{quantile}'; one of {', '.join(QUANTILES)}")
    return Slo(metric, quantile or DEFAULT_QUANTILE, _time_ms(part, right))


def _time_ms(part: str, limit: str) -> float:
    match = _LIMIT.fullmatch(limit)
    if match is None or match[2] not in MS_PER_UNIT:
        raise ValueError(f"SLO '{part}': limit '{limit}' is not a time; a number with us, ms, s or m, such as 50ms")
    value = float(match[1]) * MS_PER_UNIT[match[2]]
    if value == 0:
        raise ValueError(f"SLO '{part}': limit '{limit}' must be above 0")
    return value


def _share(part: str, limit: str) -> float:
    match = _LIMIT.fullmatch(limit)
    if match is None or match[2] != "%" or float(match[1]) > 100:
        raise ValueError(f"SLO '{part}': limit '{limit}' is not a share from 0% to 100%, such as 1%")
    return float(match[1]) / 100


def _of_gaps(gaps: list[float], quantile: str) -> float | None:
    if not gaps:
        return None
    return sum(gaps) / len(gaps) if quantile == "mean" else nearest_rank(gaps, LEVELS.get(quantile, 1.0))

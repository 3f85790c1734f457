"""The raw values of one cell, so that its quantiles are exact ones while the run goes on."""

from array import array
from collections.abc import Mapping
from typing import Any

from loadkit.live.labels import TIMES
from loadkit.measure.quantile import Summary, summary
from loadkit.record.names import Flag

WITHHOLDING = frozenset({Flag.BURSTY.value, Flag.TOKENS_PER_EVENT_GT_1.value})


class Samples:
    """Times (ms) of the measured answers of one cell; eight bytes each."""

    def __init__(self) -> None:
        self._values = {name: array("d") for name in TIMES}
        self._withheld = False

    def add(self, record: Mapping[str, Any]) -> None:
        """A successful request of phase measure."""
        self._withheld |= not WITHHOLDING.isdisjoint(record["flags"])
        for name, values in self._values.items():
            value = record[f"{name}_ms"]
            if isinstance(value, list):
                values.extend(value)
            elif value is not None:
                values.append(value)

    def summaries(self) -> dict[str, Summary | None]:
        """Name -> nearest-rank quantiles in ms; of gaps none where they are not gaps between tokens."""
        return {
            name: None if name == "itl" and self._withheld else summary(values) for name, values in self._values.items()
        }

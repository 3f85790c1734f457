"""summary.csv: one row per cell, the keys of the summary joined by dots, numbers with all their digits."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from loadkit.report.escape import plain

_FORMULA = ("=", "+", "-", "@")


def render(summary: dict[str, Any]) -> str:
    """The cells as CSV text with a header row; absent values are empty.

    Columns are those of any cell, in the order of the summary: an outcome that a cell did not have is empty there.
    """
    rows = [{key: inert(value) for key, value in flat(cell)} for cell in summary["cells"]]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    order = [key.split(".")[0] for key in columns]
    columns.sort(key=lambda key: order.index(key.split(".")[0]))
    # A distribution absent in one cell is None there; where another cell has its statistics, those are the columns.
    columns = [key for key in columns if not any(other.startswith(key + ".") for other in columns)]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def inert(value: Any) -> Any:
    """The value as a spreadsheet may have it: a text that would be taken for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return value
    text = plain(value, limit=1200)
    return f"'{text}" if text.startswith(_FORMULA) else text


def flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested dicts as ('ttft_ms.p50', value); a pair of numbers becomes .low and .high, other lists text."""
    for key, item in value.items():
        name = prefix + plain(key)
        if isinstance(item, Mapping):
            yield from flat(item, name + ".")
        elif key == "ci":
            low, high = item or ("", "")
            yield from ((name + ".low", low), (name + ".high", high))
        elif isinstance(item, list):
            yield name, "; ".join(str(part) for part in item)
        else:
            yield name, "" if item is None else item

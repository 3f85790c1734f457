"""Values out of a record that may come from anywhere: a number is a number, or it is absent."""

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

_LARGEST = 1e15  # beyond it a value is damage, and sums of it would overflow
_LEAST = 1e-15  # nearer to zero than this a value is damage, and quotients by it would overflow
_NUMBERS = (int, float)  # by type: true is no number


def number(row: Mapping[str, Any], name: str) -> float | None:
    """The number under the name; None when it is absent or is anything else (text, true, NaN, absurdly large or
    small)."""
    value: Any = row.get(name)
    if type(value) not in _NUMBERS or not -_LARGEST < value < _LARGEST:
        return None
    return value if not -_LEAST < value < _LEAST or value == 0 else None


def whole(row: Mapping[str, Any], name: str) -> int | None:
    """The number under the name as a whole one; None where there is none."""
    value = number(row, name)
    return None if value is None else int(value)


def numbers(row: Mapping[str, Any], name: str) -> array:
    """The list of numbers under the name; empty when it is absent or holds anything else."""
    value = row.get(name)
    try:
        found = array("d", value if isinstance(value, list) else [])
    except (TypeError, OverflowError):
        return array("d")
    sizes = np.abs(np.frombuffer(found)) if found else np.zeros(1)
    sound = sizes.max() < _LARGEST and not ((sizes > 0) & (sizes < _LEAST)).any()
    return found if sound else array("d")


def names(row: Mapping[str, Any], name: str) -> list[str]:
    """The list of strings under the name; what is not a string is left out."""
    value = row.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def rows(row: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The list of objects under the name; what is not an object is left out."""
    value = row.get(name)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def attempts(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The attempts of a request, first to last; empty when they were not recorded."""
    return rows(row, "attempts")

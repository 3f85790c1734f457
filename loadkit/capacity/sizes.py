"""Sizes as people write them: 80GB, 74.5GiB, 600MB; a bare number has the unit that is asked for."""

import math
import re

from loadkit.capacity.errors import CardError

UNITS = {
    "b": 1.0,
    "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
    "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40,
}  # fmt: skip
SIZE = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([kmgt]?i?b)?(?:/s)?")


def size(text: str, unit: str = "gb") -> float:
    """Bytes (or bytes per second) of a text. CardError for what is no positive size."""
    match = SIZE.fullmatch(text.strip().casefold())
    value = float(match[1]) * UNITS.get(match[2] or unit, math.nan) if match else math.nan
    if not 0 < value < math.inf:
        raise CardError(f"{text.strip()[:40]!r} is no size above 0; write it as 80GB, 74.5GiB or 600MB")
    return value

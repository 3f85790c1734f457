"""The price of one model over that of another, at equal real length on the same machine in the same file."""

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any


def ratios(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """{a, b, tokens, ratio}: price of b over price of a for each length both were measured at, one stream each.

    Only groups that differ in nothing but the model are put beside each other; lengths are prompt - BOS - cached.
    """
    found = []
    for a, b in combinations(groups, 2):
        if _apart(a["group"], b["group"]) != {"model"}:
            continue
        first, second = _prices(a), _prices(b)
        names = str(a["group"]["model"]), str(b["group"]["model"])
        found += [
            {"a": names[0], "b": names[1], "tokens": tokens, "ratio": second[tokens] / first[tokens]}
            for tokens in sorted(first.keys() & second.keys())
        ]
    return found


def _apart(a: Mapping[str, Any], b: Mapping[str, Any]) -> set[str]:
    return {name for name in a if a[name] != b[name]}


def _prices(group: Mapping[str, Any]) -> dict[int, float]:
    cells = (cell for cell in group["summary"]["cells"] if cell["concurrency"] == 1 and cell["unit_price_ms"])
    return {round(cell["prefilled_tokens"]): cell["unit_price_ms"] for cell in cells if cell["prefilled_tokens"]}

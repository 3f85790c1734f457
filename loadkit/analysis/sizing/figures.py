"""A number that can be argued with: its unit, its interval, its formula and what went into it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MEASURED = "measured"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of the answer. `low` and `high` are its 90 % interval where the bootstrap gives one; `value` None
    says that there is no such number, and `note` why. `inputs` are names with values and units, as printed."""

    key: str
    label: str
    value: float | None
    unit: str
    formula: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Builtin values only."""
        return {**asdict(self), "inputs": dict(self.inputs)}


def said(value: float | None, unit: str = "") -> str:
    """A number as an input of another: digits enough to work the formula out again."""
    text = "-" if value is None else f"{value:.6g}"
    return f"{text} {unit}".rstrip()

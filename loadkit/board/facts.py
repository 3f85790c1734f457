"""One fact about a board: its value, and who says so."""

from dataclasses import asdict, dataclass, field
from typing import Any

CLIP = 300


@dataclass(frozen=True, slots=True)
class Fact:
    """`source`: the file, program or description it is from. `value` is as `unit` says; text from boards is clipped."""

    group: str
    name: str
    value: str | int | float | tuple[str, ...] | tuple[int, ...]
    source: str
    unit: str = ""
    note: str = ""

    def line(self) -> str:
        """For people: big frequencies in MHz, bandwidth in GB/s."""
        note = f"; {self.note}" if self.note else ""
        return f"  {self.name}: {_text(self.value, self.unit)}  [{self.source}{note}]"


@dataclass(frozen=True, slots=True)
class Findings:
    """What a probe found. `missing`: one line for each thing that stands in the way of a clean run."""

    host: str
    board: str
    title: str
    facts: tuple[Fact, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    def value(self, group: str, name: str) -> Any:
        """The value of a fact; None where it was not found."""
        return next((fact.value for fact in self.facts if (fact.group, fact.name) == (group, name)), None)

    def as_json(self) -> dict[str, Any]:
        """For a file or a manifest."""
        return asdict(self)

    def lines(self) -> list[str]:
        """For a terminal."""
        lines = [f"{self.host}: {self.board} ({self.title})"]
        group = ""
        for fact in self.facts:
            if fact.group != group:
                group = fact.group
                lines.append(f"{group}:")
            lines.append(fact.line())
        lines += [f"Note: {note}" for note in self.notes]
        if not self.missing:
            return [*lines, "Nothing is missing for a clean run."]
        return [*lines, "Missing for a clean run:", *(f"  - {text}" for text in self.missing)]


def clipped(text: str) -> str:
    """Text of a board on one line, at most 300 characters of it."""
    return " ".join(text.replace("\0", " ").split())[:CLIP]


def _text(value: Any, unit: str) -> str:
    if isinstance(value, tuple):
        return ", ".join(_text(item, unit) for item in value) or "none"
    if unit == "Hz":
        return f"{value / 1e6:g} MHz"
    if unit == "bytes/s":
        return f"{value / 1e9:.1f} GB/s"
    if unit == "bytes":
        return f"{value / 2**30:.1f} GiB"
    return f"{value:g} {unit}".rstrip() if isinstance(value, float) else f"{value} {unit}".rstrip()

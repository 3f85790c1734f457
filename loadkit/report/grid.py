"""Tables on a terminal: laid out by us, so that rich never shrinks one and no number is cut."""

from collections.abc import Iterable, Sequence
from typing import IO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_UNBOUNDED = 10_000  # columns


def unbounded(stream: IO[str] | None = None) -> Console:
    """A console that writes lines of any length as they are."""
    return Console(file=stream, width=_UNBOUNDED, highlight=False, markup=False, emoji=False, soft_wrap=True)


def empty(headers: Iterable[tuple[str, bool]]) -> Table:
    """A table without rows; of each column the header and whether it stands to the right."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header, right in headers:
        table.add_column(header, justify="right" if right else "left", no_wrap=True)
    return table


def grid(headers: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """A table of text, so many columns to the left, the others to the right."""
    table = empty((header, i >= left) for i, header in enumerate(headers))
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def width_of(table: Table) -> int:
    """Columns the table takes."""
    console = unbounded()
    return Measurement.get(console, console.options, table).maximum

"""Anyone's table as curves for the knee locator: a CSV file with one line of column names.

Lines that begin with # are passed over, but `# axis: length` or `# axis: concurrency` is read. The first column is x
and the names of the others tell what they are, unless options say so. Repeats are rows of the same x, or several
columns of one metric. Nothing is guessed: what cannot be told is an error of one line that names the option to give.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadkit.analysis.bends import Point
from loadkit.plan.errors import ConfigError
from loadkit.record.errors import reason

AXES = ("length", "concurrency")
METRICS = ("ttft", "latency", "throughput")
LARGEST = 64 * 1024 * 1024  # bytes
DELIMITERS = (",", ";", "\t")

# The first that is in a column's name, in lower case, says what the column is.
_METRIC_NAMES = (
    ("throughput", r"throughput|/s\b|_per_s|per_sec|tps|rps|qps|tok_s|toks"),
    ("ttft", r"ttft|first_token|prefill"),
    ("latency", r"latency|e2e|elapsed|duration|time|_(s|ms|us)\b"),
)
_AXIS_NAMES = (
    ("concurrency", r"concurren|users?\b|streams?\b|clients?\b|batch|parallel|sessions?\b"),
    ("length", r"tokens?\b|length|prompt|context|ctx|input|isl\b"),
)
_REPEAT = re.compile(r"(?:run|rep|repeat|round|trial|take|sample|r)?\d*")
_NUMBERED = re.compile(r"^(?!p\d)(.*?\D)\d+$")  # ttft2, and not p99
_AXIS_LINE = re.compile(r"#\s*axis\s*:\s*(\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Curve:
    """What a table has of one metric: the columns it comes from, its points, and the entries that are no number."""

    axis: str
    metric: str
    columns: list[str]
    points: list[Point]
    dropped: list[dict[str, str | float]]


@dataclass(frozen=True, slots=True)
class Table:
    """Column names, rows as (line number, fields), and the axis a comment names."""

    columns: list[str]
    rows: list[tuple[int, list[str]]]
    axis: str | None


def read(
    path: Path, *, x: str | None = None, y: Sequence[str] = (), axis: str | None = None, metric: str | None = None
) -> list[Curve]:
    """The curves of a file, one per metric and kind of column. ConfigError, one line, for what gives none."""
    table = _table(_text(path), path.name)
    place = _column(table, x, path.name) if x else 0
    chosen = _chosen(table, place, y, metric, path.name)
    named = axis or table.axis or _told(table.columns[place], _AXIS_NAMES)
    if named not in AXES:
        raise ConfigError(f"{path.name}: column {table.columns[place][:40]!r} does not say what it is: give --axis")
    return [_curve(table, place, columns, named, kind, path.name) for kind, columns in chosen]


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)  # a device has no size, and no end
        if len(data) > LARGEST:
            raise ConfigError(f"{path}: larger than {LARGEST >> 20} MB, which is no table of a ladder")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason(error)}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path.name}: is not a text file in UTF-8") from None


def _table(text: str, name: str) -> Table:
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    found = [match[1].lower() for _, line in lines if (match := _AXIS_LINE.match(line))]
    lines = [(number, line) for number, line in lines if not line.startswith("#")]
    if not lines:
        raise ConfigError(f"{name}: is empty")
    delimiter = max(DELIMITERS, key=lines[0][1].count)
    (_, columns), *rows = [(number, _fields(line, delimiter, name, number)) for number, line in lines]
    if len(columns) < 2 or all(_number(field) is not None for field in columns):
        raise ConfigError(f"{name}: has no line of column names, such as tokens,ttft_ms, before its numbers")
    for number, fields in rows:
        if len(fields) > len(columns):
            raise ConfigError(f"{name}: line {number} has {len(fields)} fields and the header {len(columns)}")
    if not rows:
        raise ConfigError(f"{name}: has column names and no rows")
    return Table(columns, rows, next((axis for axis in found if axis in AXES), None))


def _fields(line: str, delimiter: str, name: str, number: int) -> list[str]:
    try:
        return [field.strip() for field in next(csv.reader(io.StringIO(line), delimiter=delimiter), [])]
    except csv.Error as error:
        raise ConfigError(f"{name}: line {number} cannot be read: {error}") from None


def _column(table: Table, wanted: str, name: str) -> int:
    if wanted not in table.columns:
        raise ConfigError(f"{name}: no column {wanted[:40]!r}; it has {', '.join(table.columns)[:200]}")
    return table.columns.index(wanted)


def _chosen(table: Table, x: int, y: Sequence[str], metric: str | None, name: str) -> list[tuple[str, list[int]]]:
    """The metrics with columns that are repeats of one another: those the user named together, else by their names."""
    places = [_column(table, column, name) for column in y]
    others = places or [place for place in range(len(table.columns)) if place != x]
    told = {place: _told(table.columns[place], _METRIC_NAMES) for place in others}
    if metric is not None:
        mine = [place for place in others if told[place] == metric]
        return [(metric, places)] if places else [(metric, alike) for alike in _alike(table, mine or others)]
    chosen: dict[str, list[int]] = {}
    for place, kind in told.items():
        if kind is not None:
            chosen.setdefault(kind, []).append(place)
    unknown = next((table.columns[place] for place in places if told[place] is None), None)
    if unknown is not None or not chosen:
        which = f"column {unknown[:40]!r} does not say" if unknown else "no column says"
        raise ConfigError(f"{name}: {which} what it measures: give --metric {', '.join(METRICS)}")
    return [(kind, alike) for kind, mine in chosen.items() for alike in ([mine] if places else _alike(table, mine))]


def _alike(table: Table, places: Sequence[int]) -> list[list[int]]:
    """The columns whose names differ in nothing but the number of a repeat: ttft_1 and ttft_2, not ttft_p50 and
    ttft_p99, ttft_s and ttft_ms, or tpot_ms and e2e_ms."""
    found: dict[tuple[str, ...], list[int]] = {}
    for place in places:
        words = [word for word in re.split(r"[\W_]+", table.columns[place].lower()) if not _REPEAT.fullmatch(word)]
        found.setdefault(tuple(_NUMBERED.sub(r"\1", word) for word in words), []).append(place)
    return list(found.values())


def _told(column: str, names: Sequence[tuple[str, str]]) -> str | None:
    text = re.sub(r"[\s-]+", "_", column.lower())
    return next((kind for kind, pattern in names if re.search(pattern, text)), None)


def _curve(table: Table, x: int, columns: list[int], axis: str, metric: str, name: str) -> Curve:
    repeats: dict[float, list[float]] = {}
    dropped: list[dict[str, str | float]] = []
    for number, fields in table.rows:
        place = _number(fields[x]) if x < len(fields) else None
        if place is None or place <= 0:
            shown = fields[x][:40] if x < len(fields) else ""
            raise ConfigError(f"{name}: line {number}: {shown!r} in column {table.columns[x][:40]!r} is no number > 0")
        for value, text in _values(fields, columns):
            if value is not None and value > 0:
                repeats.setdefault(place, []).append(value)
            elif text:
                dropped.append({"x": place, "reason": f"{text[:40]!r} is no number above 0"})
    if not repeats:
        commas = "; a decimal sign is a point" if any("," in str(row["reason"]) for row in dropped) else ""
        raise ConfigError(f"{name}: no number above 0 in column {table.columns[columns[0]][:40]!r}{commas}")
    points = [Point(place, repeats[place], suspect=False) for place in sorted(repeats)]
    return Curve(axis, metric, [table.columns[column] for column in columns], points, dropped)


def _values(fields: list[str], columns: list[int]) -> Iterator[tuple[float | None, str]]:
    """(number or None, text) of each of the columns; a short row has no text."""
    for column in columns:
        text = fields[column] if column < len(fields) else ""
        yield _number(text), text


def _number(text: str) -> float | None:
    try:
        value = float(text.replace("_", "x"))
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None

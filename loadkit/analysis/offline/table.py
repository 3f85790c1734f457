"""Rows out of another tool's file: JSON of any nesting, JSON lines, or CSV.

A row is a flat dict. Scalars of the objects around a row belong to it (a file may say the model once); the name under
which a group of rows stands is their model where nothing else says it.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadkit.analysis.offline.columns import TIMES, field_of
from loadkit.plan.errors import ConfigError
from loadkit.record.errors import FolderError, reason

Row = dict[str, Any]
_CONTAINERS = {"rows", "results", "records", "data", "tiers", "runs", "measurements", "requests", "items", "benchmarks"}
_SEPARATORS = (",", ";", "\t")
_LARGEST_BYTES = 512 * 1024 * 1024


def read(path: Path, times: frozenset[str] = frozenset()) -> list[Row]:
    """The rows of the file, in order. `times`: columns that hold a TTFT by the user's own mapping.

    Raises ConfigError when it holds none, FolderError when it cannot be read.
    """
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise ConfigError(f"{path} is larger than 512 MiB: cut it into one file per model")
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise FolderError(f"cannot read {path}: {reason(error)}") from error
    separated = path.suffix.lower() in (".csv", ".tsv")
    rows = _csv(text) if separated else list(_json(text, times))
    if not rows:
        kind = (
            "CSV with a header line and rows" if separated else "JSON, or JSON lines, with a row for each measurement"
        )
        raise ConfigError(f"{path} holds no row: expected {kind}")
    return rows


def _csv(text: str) -> list[Row]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    header = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=header.count)
    try:
        return [_cells(row) for row in csv.DictReader(io.StringIO(text), delimiter=separator)]
    except csv.Error as error:
        raise ConfigError(f"the CSV cannot be read: {error}") from None


def _cells(row: Mapping[Any, Any]) -> Row:
    return {str(name): _cell(value) for name, value in row.items() if name is not None}


def _cell(value: Any) -> Any:
    """A cell as a number where it is one; an empty one is absent."""
    if not isinstance(value, str):
        return None
    text = value.strip()
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"": None, "true": True, "false": False}.get(text.lower(), text)


def _json(text: str, times: frozenset[str]) -> Iterator[Row]:
    """Rows of one JSON value, else of one value a line; lines that are not JSON are passed over."""
    try:
        yield from _walk(_loads(text), {}, times)
    except (ValueError, RecursionError):
        for line in text.splitlines():
            try:
                yield from _walk(_loads(line), {}, times)
            except (ValueError, RecursionError):
                continue


def _loads(text: str) -> Any:
    return json.loads(text, parse_constant=lambda name: None)


def _walk(value: Any, around: Row, times: frozenset[str]) -> Iterator[Row]:
    if isinstance(value, list):
        for item in value:
            yield from _walk(item, around, times)
    elif isinstance(value, dict):
        scalars = {name: item for name, item in value.items() if not isinstance(item, (list, dict))}
        nested = {name: item for name, item in value.items() if isinstance(item, (list, dict))}
        if not nested or any(name in times or field_of(name) in TIMES for name in scalars):
            yield {**around, **scalars}
            return
        for name, item in nested.items():
            inside = {**around, **scalars}
            known = any(field_of(column) == "model" for column in inside)
            named = {} if known or name.lower() in _CONTAINERS else {"model": name}
            yield from _walk(item, {**inside, **named}, times)

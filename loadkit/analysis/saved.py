"""A run folder read back: what it holds of manifest, records and telemetry, and the summary of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from loadkit.analysis.reading import number
from loadkit.analysis.repeats import repeated
from loadkit.analysis.summary import summarise
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import SCHEMA, Rows

Watch = Callable[[Iterable[Mapping[str, Any]]], Iterable[Mapping[str, Any]]]


def manifest_of(run: RunFolder) -> dict[str, Any]:
    """The manifest, or nothing where the run was cut before it wrote one."""
    try:
        return run.read_manifest()
    except FolderError:
        return {}


def lines(path: Path) -> Rows:
    """The rows of a file of the folder, read as they are asked for; a run may not have written it."""
    return Rows(path if path.exists() else None)


def summary_of(run: RunFolder, watch: Watch = lambda rows: rows) -> dict[str, Any]:
    """The summary, from the records as they are now; `watch` sees the records as they pass, so that they are read once.

    Those of visits that were repeated pass it by, because they are in no cell. Raises FolderError when a file cannot
    be read, or says that its records are of another schema.
    """
    rows, manifest = lines(run.records_path), manifest_of(run)
    summary = summarise(_watched(rows, watch, repeated(manifest)), manifest, lines(run.telemetry_path))
    schema = (rows.header or {}).get("schema")
    if schema not in (None, SCHEMA):
        raise FolderError(f"{run.records_path} has the schema {str(schema)[:60]!r}; this version reads {SCHEMA}")
    return summary | {"damaged_lines": rows.damaged}


def _watched(rows: Rows, watch: Watch, left_out: frozenset[float]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        if number(row, "visit") in left_out:
            yield row
        else:
            yield from watch((row,))

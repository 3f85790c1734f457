"""A run folder read back: what it holds of manifest, records and telemetry, and the summary of them."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from loadkit.analysis.summary import summarise
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import Rows


def manifest_of(run: RunFolder) -> dict[str, Any]:
    """The manifest, or nothing where the run was cut before it wrote one."""
    try:
        return run.read_manifest()
    except FolderError:
        return {}


def lines(path: Path) -> Rows:
    """The rows of a file of the folder, read as they are asked for; a run may not have written it."""
    return Rows(path if path.exists() else None)


def summary_of(
    run: RunFolder, watch: Callable[[Iterable[Mapping[str, Any]]], Iterable[Mapping[str, Any]]] = lambda rows: rows
) -> dict[str, Any]:
    """The summary, from the records as they are now; `watch` sees the records as they pass, so that they are read once.

    Raises FolderError when a file cannot be read.
    """
    rows = lines(run.records_path)
    summary = summarise(watch(rows), manifest_of(run), lines(run.telemetry_path))
    return summary | {"damaged_lines": rows.damaged}

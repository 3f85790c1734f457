"""Complete a run folder from the spools of its workers: what their master did not live to write."""

import shutil
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadkit.record import jsonl
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.spool import SUFFIX, Spooled


@dataclass(slots=True)
class Merged:
    """What a merge did: rows added, rows that were there already, and lines of the spools that cannot be read.

    live: workers that have not ended; what they have in flight is for another merge.
    """

    records: int = 0
    telemetry: int = 0
    known: int = 0
    damaged: int = 0
    live: int = 0


def spools_of(folder: RunFolder) -> list[Path]:
    """The spools that workers on the master's machine left in the run folder."""
    return sorted(folder.spools_path.glob(f"*{SUFFIX}"))


def merge(folder: RunFolder, spools: Iterable[Path]) -> Merged:
    """Add to the run what its spools hold and its files do not; a second merge adds nothing.

    A request is known by its request_id, a sample by its worker and time. Raises FolderError, before anything is
    written, for a spool of another run and while a run writes into the folder; rows of another run inside a spool, and
    requests without an id, are left out and counted as damaged.
    """
    found = [Spooled(path) for path in spools]
    run_id = folder.read_manifest().get("run_id")
    for spool, path in zip(found, spools, strict=True):
        if spool.run_id != run_id:
            raise FolderError(f"{path} belongs to run {spool.run_id} and {folder.path} holds run {run_id}")
    merged = Merged(live=sum(spool.live for spool in found))
    with jsonl.Writer(folder.records_path) as records, jsonl.Writer(folder.telemetry_path) as telemetry:
        records.lock()  # a master would write the same rows once more
        seen_records, seen_telemetry = _keys(folder.records_path, _request), _keys(folder.telemetry_path, _sample)
        records.header(jsonl.header())
        for spool in found:
            for row in spool:
                if row.get("run_id", run_id) != run_id or (row["kind"] == "request" and not _named(row)):
                    merged.damaged += 1
                elif row["kind"] == "request":
                    merged.records += _add(records, row, _request(row), seen_records, merged)
                else:
                    merged.telemetry += _add(telemetry, row, _sample(row), seen_telemetry, merged)
            merged.damaged += spool.damaged
    return merged


def adopt(folder: RunFolder, *, remove: bool) -> Merged:
    """Merge the spools that workers left in the run folder.

    remove: the spools go, because nobody lives that might go on writing into them. Raises FolderError.
    """
    left = spools_of(folder)
    found = merge(folder, left) if left else Merged()
    if remove or not left:
        shutil.rmtree(folder.spools_path, ignore_errors=True)
    return found


def _add(writer: jsonl.Writer, row: dict[str, Any], key: Hashable, seen: set[Hashable], merged: Merged) -> bool:
    """Write the row unless it is known; true when it was written."""
    if key in seen:
        merged.known += 1
        return False
    writer.write(row)
    seen.add(key)
    return True


def _keys(path: Path, key: Callable[[dict[str, Any]], Hashable]) -> set[Hashable]:
    return {key(row) for row in jsonl.Rows(path)} if path.exists() else set()


def _request(row: dict[str, Any]) -> Hashable:
    return str(row.get("request_id"))


def _named(row: dict[str, Any]) -> bool:
    return isinstance(row.get("request_id"), str)


def _sample(row: dict[str, Any]) -> Hashable:
    return str(row.get("worker")), str(row.get("at_ms"))

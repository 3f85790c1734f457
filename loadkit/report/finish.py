"""The end of a run, and of every later look at it: read the folder, write the reports, print them."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from loadkit.analysis.strata import Stratum
from loadkit.analysis.summary import examine
from loadkit.record import jsonl
from loadkit.record.errors import FolderError, reason
from loadkit.record.folder import RunFolder
from loadkit.report import csvfile, markdown, terminal
from loadkit.report.html import page


def finish(folder: Path, *, stream: IO[str] = sys.stdout) -> dict[str, Any]:
    """Summarise the run in the folder, write summary.json, summary.csv, report.md and report.html, print the report.

    Works on whatever is there: a file that is missing, cut short or damaged gives a report of the rest. Returns
    the summary. Raises FolderError when there is no such folder or it cannot be written; the records are never touched.
    """
    run = _folder(folder)
    manifest = _manifest(run)
    summary, strata = _examined(run, manifest)
    write(run.summary_path, json.dumps(summary, indent=2, allow_nan=False) + "\n")
    write(run.summary_csv_path, csvfile.render(summary))
    write(run.report_md_path, markdown.render(summary, manifest))
    terminal.show(summary, stream=stream)
    write(run.report_html_path, page.render(summary, manifest, strata, _lines(run.telemetry_path)))
    print(terminal.encodable(f"Run folder: {folder}", stream), file=stream, flush=True)
    return summary


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of the run in the folder, as `finish` makes it, with nothing written. Raises FolderError."""
    run = _folder(folder)
    return _examined(run, _manifest(run))[0]


def _folder(folder: Path) -> RunFolder:
    run = RunFolder(folder.resolve())
    if not run.path.is_dir():
        raise FolderError(f"no run folder at {folder}; give the folder of a run, such as runs/latest")
    return run


def _examined(run: RunFolder, manifest: dict[str, Any]) -> tuple[dict[str, Any], list[Stratum]]:
    return examine(_lines(run.records_path), manifest, _lines(run.telemetry_path))


def write(path: Path, text: str) -> None:
    """Replace a file of the run folder in one step: a reader sees the old one or the new one, never half of one.

    Raises FolderError when it cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()  # on a full disk half a file is in the way
        raise FolderError(f"cannot write {path}: {reason(error)}") from error


def _manifest(run: RunFolder) -> dict[str, Any]:
    """The manifest, or nothing where the run was cut before it wrote one."""
    try:
        return run.read_manifest()
    except FolderError:
        return {}


def _lines(path: Path) -> jsonl.Rows:
    """The rows of the file, read as they are asked for; a run may not have written it."""
    return jsonl.Rows(path if path.exists() else None)

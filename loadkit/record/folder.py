"""The run folder: one directory per run, complete without the program, never overwritten."""

import json
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadkit.record.errors import FolderError, reason, regular
from loadkit.record.jsonl import finite

LATEST = "latest"
SHORT_ID = 8  # characters of the run id in the folder's name


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The paths of one run, and its manifest."""

    path: Path

    @classmethod
    def create(cls, out: Path, now: datetime, run_id: str) -> "RunFolder":
        """Make `<out>/<UTC time>-<short id>/` and point `<out>/latest` at it.

        A name already taken gets a number, so two runs never share a folder. Raises FolderError when `out` cannot be
        written.
        """
        short = re.sub(r"[^a-z0-9]+", "", run_id.lower())[:SHORT_ID] or "run"
        name = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}-{short}"
        try:
            out.mkdir(parents=True, exist_ok=True)
            folder = cls(_make_new(out, name))
            _point_latest(out, folder.path.name)
        except OSError as error:
            raise FolderError(f"cannot make a run folder in {out}: {reason(error)}; choose another --out") from error
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run at path: a run folder or a link to one, such as runs/latest. Raises FolderError otherwise."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise FolderError(f"no run folder at {path}; give the folder of a run, such as runs/latest") from error
        folder = cls(real)
        if folder.manifest_path.is_file() or folder.records_path.is_file():
            return folder
        hint = f"; did you mean {path / LATEST}?" if (real / LATEST).is_dir() else ""
        raise FolderError(f"{path} is not a run folder: it has no manifest.json and no records.jsonl{hint}")

    @property
    def manifest_path(self) -> Path:
        """Plan, endpoint, target facts, versions, times and the state of every visit."""
        return self.path / "manifest.json"

    @property
    def records_path(self) -> Path:
        """A header line, then one line per request."""
        return self.path / "records.jsonl"

    @property
    def telemetry_path(self) -> Path:
        """One line per second and worker."""
        return self.path / "telemetry.jsonl"

    @property
    def spools_path(self) -> Path:
        """Folder of the spools of workers on this machine, while a run goes on or where its master died."""
        return self.path / "spools"

    @property
    def summary_path(self) -> Path:
        """What the report prints, as data."""
        return self.path / "summary.json"

    @property
    def summary_csv_path(self) -> Path:
        """The cells of the summary as a table."""
        return self.path / "summary.csv"

    @property
    def report_md_path(self) -> Path:
        """The report for people, as Markdown."""
        return self.path / "report.md"

    @property
    def report_html_path(self) -> Path:
        """The report for people, with charts."""
        return self.path / "report.html"

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest in one step: after a crash it is the old one or the new one, never half of one."""
        text = json.dumps(finite(manifest), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        part = self.manifest_path.with_suffix(".json.part")
        try:
            with part.open("wb") as file:
                file.write(text.encode("utf-8", "backslashreplace"))
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.manifest_path)
        except OSError as error:
            raise FolderError(f"cannot write {self.manifest_path}: {reason(error)}") from error

    def read_manifest(self) -> dict[str, Any]:
        """The manifest. Raises FolderError when it is missing or is not a JSON object."""
        try:
            manifest = json.loads(regular(self.manifest_path).read_bytes(), parse_constant=lambda name: None)
        except OSError as error:
            raise FolderError(f"cannot read {self.manifest_path}: {reason(error)}") from error
        except (ValueError, RecursionError) as error:
            raise FolderError(f"{self.manifest_path} is not valid JSON: {error}") from error
        if not isinstance(manifest, dict):
            raise FolderError(f"{self.manifest_path} does not hold a JSON object")
        return manifest


def _make_new(out: Path, name: str) -> Path:
    """A directory nobody had before: the name, or the name with the first free number."""
    path, number = out / name, 1
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
            path = out / f"{name}-{number}"
        else:
            return path


def _point_latest(out: Path, name: str) -> None:
    """Point out/latest at the sibling `name`, relative so that the whole directory may be moved.

    A file system without symbolic links gets no `latest`, and the run goes on; but a `latest` that would stay at an
    older run is an error, because a report would then show the wrong run.
    """
    latest, new = out / LATEST, out / f".{LATEST}-{name}"
    try:
        new.symlink_to(name)
        new.replace(latest)
    except OSError:
        new.unlink(missing_ok=True)
        if os.path.lexists(latest):
            raise

"""What a run writes into its folder while it goes on, and what becomes of it when the disk takes no more."""

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from loadkit.measure.validity import Validity
from loadkit.plan.ladder import Visit
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import Writer, header
from loadkit.swarm.manifest import Manifest

RESERVE_BYTES = 3 * 1024 * 1024  # manifest, summary and reports, of which the page has a megabyte of script
STREAM_BYTES = 16 * 1024  # the record of a request in flight
RESERVE_SHARE = 4  # of what is free, the most that is kept back is one part in so many


class Reserve:
    """Room on the disk that is taken at the start and given back when the disk is full.

    Requests are in flight then, and their records, the manifest and the report would have nowhere to go. A file of
    random bytes, best effort: where it cannot be made there is none.
    """

    def __init__(self, folder: Path, streams: int) -> None:
        """Keep back what `streams` requests in flight and the end of the run may need."""
        self._path = folder / ".reserve"
        self._held = False
        with contextlib.suppress(OSError):
            disk = os.statvfs(folder)
            size = min(RESERVE_BYTES + streams * STREAM_BYTES, disk.f_bavail * disk.f_frsize // RESERVE_SHARE)
            self._path.write_bytes(os.urandom(size))
            self._held = True

    def release(self) -> bool:
        """Give the room back; false when there was none left to give."""
        held, self._held = self._held, False
        with contextlib.suppress(OSError):
            self._path.unlink()
        return held


class Store:
    """Records, telemetry and manifest of one run. Nothing here raises: what cannot be written is told to `on_full`."""

    def __init__(self, folder: RunFolder, manifest: Manifest, streams: int, on_full: Callable[[str], None]) -> None:
        """Opens the files, which may raise FolderError. `on_full` is called with one line, at each failed write."""
        self._manifest = manifest
        self._on_full = on_full
        self._path = folder.records_path
        self._records = Writer(folder.records_path)
        self._records.lock()
        self._telemetry = Writer(folder.telemetry_path)
        self._reserve = Reserve(folder.path, streams)
        self._unwritten: list[dict[str, Any]] = []

    def begin(self) -> None:
        """The run begins now."""
        self._keep(lambda: self._records.header(header()))
        self._keep(self._manifest.started)

    def on_record(self, *, record: dict[str, Any], **_: object) -> None:
        """Keep a record; one that the disk does not take is tried again at the end."""
        if not self._keep(lambda: self._records.write(record)):
            self._unwritten.append(record)

    def telemetry(self, row: dict[str, Any]) -> None:
        """Keep a sample."""
        self._keep(lambda: self._telemetry.write(row))

    def begun(self, labels: dict[str, Any]) -> None:
        """A request is about to be sent: nothing to keep, only the end of this process could hide how it ends."""

    def tried(self, request_id: str | None, attempts: list[dict[str, Any]]) -> None:
        """It is about to be sent again: nothing to keep either."""

    def check(self) -> None:
        """Once a second: a folder that somebody deleted or moved ends the run, which would measure for nothing."""
        if not self._records.in_place():
            self._on_full(f"{self._path} was deleted or moved while the run went on: its records are lost")

    def visit(self, visit: Visit, state: str, why: str | None = None, measured: int | None = None) -> None:
        """A visit is open, done, ended, stopped or dropped; `why` for what was not planned."""
        self._keep(lambda: self._manifest.visit(visit, state, why, measured))

    def limited(self, why: str) -> None:
        """A budget is used up; see the manifest."""
        self._keep(lambda: self._manifest.limited(why))

    def arrivals(self, visit: Visit, counts: dict[str, int]) -> None:
        """What became of the arrivals of an open loop's visit."""
        self._keep(lambda: self._manifest.arrivals(visit, counts))

    @property
    def visit_count(self) -> int:
        """Visits in the manifest; the index of the next one that is added."""
        return self._manifest.visit_count

    def add_visit(self, visit: Visit, why: str, prompts: list[dict[str, Any]]) -> None:
        """One more visit than planned; `prompts` are facts of texts that were built for it."""
        self._keep(lambda: self._manifest.add_visit(visit, why, prompts))

    def invalid(self, visit: Visit, verdict: Validity | None, again: Visit | None) -> None:
        """A visit may not stand; see the manifest."""
        self._keep(lambda: self._manifest.invalid(visit, verdict, again))

    def describe(self, name: str, value: Any) -> None:
        """One more thing about the run as a whole, into the manifest."""
        self._keep(lambda: self._manifest.describe(name, value))

    @property
    def unwritten(self) -> bool:
        """Whether there are records that the disk has not taken yet."""
        return bool(self._unwritten)

    def close_records(self) -> int:
        """No more of them will come; returns how many the disk did not take."""
        lost = [row for row in self._unwritten if not self._keep(partial(self._records.write, row))]
        self._records.close()
        self._telemetry.close()
        return len(lost)

    def end(self, stopped_by: str | None, fault: str | None) -> None:
        """The run is over; see the manifest. The report finds the room that was kept back."""
        self._reserve.release()
        self._keep(lambda: self._manifest.ended(stopped_by, fault))

    def _keep(self, write: Callable[[], None]) -> bool:
        """Write; when the disk is full, once more with the room that was kept back. False when it took nothing."""
        try:
            write()
        except FolderError as error:
            self._on_full(str(error))
            return self._reserve.release() and self._keep(write)
        return True

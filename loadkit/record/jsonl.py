"""records.jsonl and telemetry.jsonl: one JSON object per line, written as it happens, read with patience.

A line goes to the operating system in one call, so a killed process loses only the line it was writing. The reader
counts lines it cannot use and goes on. Lines are plain ASCII: no splitter can cut them at U+2028 or U+0085.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson

from loadkit.record.errors import FolderError, reason, regular
from loadkit.record.record import FIELDS, Record

SCHEMA = "loadkit-records/1"
_KEYS = frozenset(FIELDS)
_BUFFER = 1 << 20  # bytes read at once: a line is a few KiB

RULES = {
    "clock": "monotonic; times are ms after t0, stamped just before the first byte of the request head is handed over",
    "absent": "null means not measured; it is never written as 0 or NaN",
    "token_event": "an event with a non-empty generated channel, timed when the read that completed it returned",
    "ttft": "first token event of any channel; role-only deltas, empty content, keep-alives and usage never count",
    "tpot": "(last_token_ms - ttft_ms) / (output_tokens - tokens of the first event); null below two tokens",
    "itl": "gaps between token events; percentiles are withheld under the flags bursty, tokens_per_event_gt_1 and "
    "events_are_characters",
    "unit_price": "ttft_ms / (prompt_tokens - bos_tokens - cached_tokens)",
    "prefix_cache_hit": "cached_tokens above overhead_tokens + 16: more than template, BOS and the 16 tokens in which "
    "prompts differ; any cached token where overhead_tokens is null; a cell has it too where a TTFT lies below half of "
    "what its other repeats and the other tiers allow",
    "output_tokens": "the last usage of the server, else the tokenizer, else token events; never the value asked for",
    "success": "HTTP 200, at least one token event, and finish_reason, [DONE], message_stop or done:true",
    "repeated": "records of a visit that manifest.json gives a repeated_as were sent and are in no number of a cell",
    "percentiles": "nearest-rank over outcome ok and phase measure, per cell; failures stand beside them",
}


def header() -> dict[str, Any]:
    """The first line of records.jsonl: every field with its unit and meaning, and the rules behind the numbers."""
    described = {f.name: {"unit": f.metadata["unit"], "doc": f.metadata["doc"]} for f in fields(Record)}
    return {"kind": "header", "schema": SCHEMA, "fields": described, "rules": RULES}


class Writer:
    """Appends lines to one file. One writer per file; a file left by a killed process is continued safely.

    Raises FolderError when the disk is full or the file cannot be written. Earlier lines stay whole then, and a later
    write may succeed: it starts on a line of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            size = os.fstat(self._fd).st_size
            self._mid_line = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"
        except OSError as error:
            raise self._failed(error) from error
        self._empty = size == 0

    def lock(self) -> None:
        """Be the only process that does so, until the file is closed. FolderError where another one is.

        A file system without locks lets everybody.
        """
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderError(f"another process is writing {self._path}: wait for its end, or end it first") from None
        except OSError:
            return

    def header(self, row: dict[str, Any]) -> None:
        """Write the header line; a file that already has lines (a resumed run) keeps the one it has."""
        if self._empty:
            self.write(row)

    def write(self, record: Record | dict[str, Any]) -> None:
        """Write one line and hand it to the operating system before returning. NaN and infinity become null."""
        row = record.to_json() if isinstance(record, Record) else record
        self.write_line(_encode(row) + b"\n")

    def write_line(self, line: bytes) -> None:
        """Write a line that is encoded already, as `write` does; it ends with a line feed and has no other."""
        data = b"\n" + line if self._mid_line else line
        try:
            while data:
                written = os.write(self._fd, data)
                data = data[written:]
                self._mid_line = bool(data)
        except OSError as error:
            raise self._failed(error) from error
        self._empty = False

    def in_place(self) -> bool:
        """Whether the file is still found under its path: lines written to a deleted or moved file are lost."""
        try:
            named, held = os.stat(self._path), os.fstat(self._fd)
        except OSError:
            return False
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _failed(self, error: OSError) -> FolderError:
        return FolderError(
            f"cannot write {self._path}: {reason(error)}; what was written before is safe: "
            "make room or choose another --out, then go on with --resume"
        )


def locked(path: Path) -> bool:
    """Whether a process holds the file with `Writer.lock`; false where that cannot be known, as without locks."""
    try:
        with regular(path).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class Rows:
    """The usable rows of a file, one at a time and as written: a run of any length is read in little memory.

    Iterate once, in the order of the file; the header is not among the rows. `header` is the first one met, `damaged`
    counts the lines met that are not a JSON object with a kind (blank lines count as nothing): both are final when the
    iteration ends. A path that is None or holds nothing gives no rows. Raises FolderError when the file cannot be read.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.header: dict[str, Any] | None = None
        self.damaged = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._path is None:
            return
        try:
            with regular(self._path).open("rb", buffering=_BUFFER) as lines:
                for line in lines:
                    row = _decode(line)
                    if row is None:
                        self.damaged += bool(line.strip())
                    elif row["kind"] == "header":
                        self.header = self.header or row
                    else:
                        yield row
        except OSError as error:
            raise FolderError(f"cannot read {self._path}: {reason(error)}") from error


@dataclass(slots=True)
class Reading:
    """What a file held, all of it at once; `damaged` as in `Rows`."""

    header: dict[str, Any] | None = None
    records: list[dict[str, Any]] = field(default_factory=list)  # kind request
    telemetry: list[dict[str, Any]] = field(default_factory=list)  # every other kind, as written
    damaged: int = 0


def read(path: Path) -> Reading:
    """Everything usable in the file, in order, in memory: for a run of unknown length take `Rows`.

    Records have every key of the schema (None, or an empty list for attempts and flags, where the line has none) and
    keep keys this version does not know. Raises FolderError only when the file itself cannot be read.
    """
    rows, reading = Rows(path), Reading()
    for row in rows:
        if row["kind"] == "request":
            reading.records.append(row if row.keys() >= _KEYS else {**Record().to_json(), **row})
        else:
            reading.telemetry.append(row)
    reading.header, reading.damaged = rows.header, rows.damaged
    return reading


def finite(value: Any) -> Any:
    """The value with every NaN and infinity as None: JSON has no such numbers, and a lost record is worse."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _encode(row: dict[str, Any]) -> bytes:
    """One line without its end. orjson is ten times as fast and writes NaN as null, but only the library escapes."""
    try:
        if (line := orjson.dumps(row)).isascii():
            return line
    except TypeError:  # an integer beyond 64 bits, a lone surrogate, a key that is no string
        pass
    try:
        text = json.dumps(row, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(finite(row), separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _decode(line: bytes) -> dict[str, Any] | None:
    """The row of a line, or None for one that was cut or is not ours.

    orjson is five times as fast and stricter: what it refuses (NaN, half a surrogate) the standard library may read.
    """
    try:
        row = orjson.loads(line)
    except ValueError:
        try:
            row = json.loads(line, parse_constant=lambda name: None)
        except (ValueError, RecursionError):
            return None
    return row if isinstance(row, dict) and isinstance(row.get("kind"), str) else None

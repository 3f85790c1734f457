"""The spool of one worker: every row it produced, in its own file and in order, before anything else is done with it.

Line 1 is `{"kind":"spool", "schema", "run_id", "worker"}`; then rows as they go into records.jsonl and telemetry.jsonl,
each with `seq`, from 1, by which the master knows what it has. Before a request is sent a row of kind `begun` says so,
and before it is tried again one of kind `tried`: what a killed worker had in flight is known by them. A run is
completed from spools where its master or a worker died.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from loadkit.record import jsonl
from loadkit.record.errors import FolderError
from loadkit.record.names import Outcome
from loadkit.record.record import Record

SCHEMA = "loadkit-spool/1"
SUFFIX = ".spool.jsonl"


class Spool:
    """Appends the rows of one worker to its file. Raises FolderError when the file cannot be opened or written."""

    def __init__(self, folder: Path, run_id: str, worker: str) -> None:
        """The file is `<folder>/<run_id>-<worker>.spool.jsonl`; a file that is there already is continued."""
        self.path = folder / f"{_name(run_id)}-{_name(worker)}{SUFFIX}"
        self._writer = jsonl.Writer(self.path)
        self._writer.lock()  # who merges it knows by this that the worker lives
        self._writer.header({"kind": "spool", "schema": SCHEMA, "run_id": run_id, "worker": worker})
        self.last = 0
        self.line = b""

    def append(self, row: dict[str, Any]) -> bytes:
        """Give the row the next number and write it; returns the line as it stands in the file.

        The number is used up, and the line returned by `line`, also where the disk does not take it.
        """
        self.last += 1
        self.line = encode({**row, "seq": self.last})
        self._writer.write_line(self.line)
        return self.line

    def begun(self, labels: dict[str, Any]) -> None:
        """A request is about to be sent; `labels` are what its record will say of the plan."""
        self._writer.write_line(encode({**labels, "kind": "begun"}))

    def tried(self, request_id: str, attempts: list[dict[str, Any]]) -> None:
        """A request that was begun is about to be sent again, after these attempts."""
        self._writer.write_line(encode({"kind": "tried", "request_id": request_id, "attempts": attempts}))

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._writer.close()

    def remove(self) -> None:
        """Close and delete the file: all of it is in the run folder."""
        self.close()
        self.path.unlink(missing_ok=True)


class Spooled:
    """The rows of a spool file, one at a time, without their numbers; a line that was cut is counted and passed over.
    Last come the requests that were begun and never ended, as records `aborted`: their worker was killed. One that
    lives may still end them, so of it there are none.

    `run_id`, `worker` and `live` are known at once; `damaged` is final when the iteration ends. Raises FolderError when
    the file cannot be read or is no spool.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged = 0
        head = next((row for row in jsonl.Rows(path) if row["kind"] == "spool"), {})
        if head.get("schema") != SCHEMA or not isinstance(head.get("run_id"), str):
            raise FolderError(f"{path} is not the spool of a loadkit worker")
        self.live = jsonl.locked(path)  # its worker still writes; asked before the rows are read
        self.run_id: str = head["run_id"]
        self.worker = str(head.get("worker"))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows, begun = jsonl.Rows(self._path), {}
        for row in rows:
            if row["kind"] == "begun":
                begun[str(row.get("request_id"))] = row
            elif row["kind"] == "tried":
                if (labels := begun.get(str(row.get("request_id")))) is not None:
                    labels["attempts"] = row.get("attempts")
            elif row["kind"] != "spool":
                begun.pop(str(row.get("request_id")), None)
                row.pop("seq", None)
                yield row
        self.damaged = rows.damaged
        if not self.live:
            yield from map(_cut_off, begun.values())


def encode(row: dict[str, Any]) -> bytes:
    """One line of JSON. Numbers of other libraries become Python's, what JSON has no form for becomes null or text."""
    try:
        return orjson.dumps(row, default=_builtin) + b"\n"
    except TypeError:  # half a surrogate, or an integer beyond 64 bits
        plain = json.loads(json.dumps(row, default=_builtin), parse_constant=lambda name: None)
        return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def _builtin(value: Any) -> Any:
    """The builtin form of a value JSON does not know: NumPy's scalars and arrays have `tolist`."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _cut_off(begun: dict[str, Any]) -> dict[str, Any]:
    """The record of a request whose worker was killed."""
    attempt = {"outcome": Outcome.ABORTED, "http_status": None, "start_ms": 0.0, "end_ms": None, "wait_ms": None}
    known = Record.from_json({**begun, "kind": "request"})
    before = [each for each in known.attempts if isinstance(each, dict)] if isinstance(known.attempts, list) else []
    known.outcome, known.error_message = Outcome.ABORTED, "its worker was killed"
    known.attempts = [*before, {**attempt, "start_ms": None} if before else attempt]
    return known.to_json()


def _name(text: str) -> str:
    """The text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:100]

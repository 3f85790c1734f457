"""What a worker does in place of a `Store`: every row goes to its spool first, then into the channel."""

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from loadkit.plan.ladder import Visit
from loadkit.record.errors import FolderError
from loadkit.record.spool import Spool
from loadkit.swarm.channel import Outbox


class Spooling:
    """Takes records and telemetry. A full disk ends the run; what is in flight still goes to the master."""

    def __init__(self, spool: Spool, outbox: Outbox) -> None:
        self._spool = spool
        self._outbox = outbox
        self.on_full: Callable[[str], None] = lambda line: None

    def begin(self) -> None:
        """Nothing to do: the spool has its header."""

    def on_record(self, *, record: dict[str, Any], **_: object) -> None:
        """Keep a record."""
        self.telemetry(record)

    def telemetry(self, row: dict[str, Any]) -> None:
        """Keep a row."""
        try:
            self._spool.append(row)
        except FolderError as error:
            self.on_full(str(error))
        self._outbox.put(self._spool.line)

    def begun(self, labels: dict[str, Any]) -> None:
        """A request is about to be sent."""
        stamps = {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds")}
        with suppress(FolderError):  # the record will say that the disk is full
            self._spool.begun({**labels, **stamps, "start_ms": time.perf_counter_ns() / 1e6})

    def tried(self, request_id: str | None, attempts: list[dict[str, Any]]) -> None:
        """It is about to be sent again."""
        with suppress(FolderError):
            self._spool.tried(str(request_id), attempts)

    def check(self) -> None:
        """The master watches over the run folder."""

    def visit(self, visit: Visit, state: str, why: str | None = None, measured: int | None = None) -> None:
        """The master keeps the manifest."""

    def arrivals(self, visit: Visit, counts: dict[str, int]) -> None:
        """The master keeps the manifest."""

    def close_records(self) -> int:
        """None is lost here: what the spool did not take is still shipped."""
        return 0

    def end(self, stopped_by: str | None, fault: str | None) -> None:
        """The master ends the run."""

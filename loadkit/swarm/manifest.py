"""manifest.json while a run goes on: what was planned, on what, and how far it came."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from loadkit import __version__
from loadkit.plan.ladder import Plan, Visit
from loadkit.record.folder import RunFolder

SCHEMA = "loadkit-manifest/1"
LIBRARIES = ("locust", "gevent", "httpx", "numpy", "prometheus-client", "tokenizers")


class Manifest:
    """Keeps the manifest of one run and writes it whole after every change. It holds names of keys, never keys."""

    def __init__(self, folder: RunFolder, run_id: str, plan: Plan, about: dict[str, Any]) -> None:
        """`about`: endpoint, target facts, prompts, command line, whatever describes the run and is JSON."""
        self._folder = folder
        self._data: dict[str, Any] = {
            "schema": SCHEMA,
            "run_id": run_id,
            "plan": plan.to_json(),
            **about,
            "versions": {"loadkit": __version__, "python": platform.python_version()}
            | {name: version(name) for name in LIBRARIES},
            "host": {
                "system": platform.platform(),
                "machine": platform.machine(),
                "cpus": os.cpu_count(),
                "python": sys.implementation.name,
            },
            "visits": [
                {"visit": visit.index, "cell": visit.cell.id, "round": visit.round, "state": "planned"}
                for visit in plan.visits()
            ],
            "started_at": None,
            "ended_at": None,
            "stopped_by": None,
            "fault": None,
        }

    def without_visits(self) -> None:
        """A run whose users choose for themselves has no visits to do."""
        self._data["visits"] = []

    def started(self) -> None:
        """The run begins now."""
        self._data["started_at"] = _now()
        self._save()

    def visit(self, visit: Visit, state: str) -> None:
        """A visit is open, done or stopped."""
        row = self._data["visits"][visit.index]
        row["state"] = state
        row["opened_at" if state == "open" else "closed_at"] = _now()
        self._save()

    def ended(self, stopped_by: str | None, fault: str | None) -> None:
        """The run is over; `stopped_by` names the signal that asked for it, `fault` why it could not go on."""
        self._data |= {"ended_at": _now(), "stopped_by": stopped_by, "fault": fault}
        self._save()

    def _save(self) -> None:
        self._folder.write_manifest(self._data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

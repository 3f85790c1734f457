"""manifest.json while a run goes on: what was planned, on what, and how far it came."""

import os
import platform
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from loadkit import __version__
from loadkit.measure.validity import Validity
from loadkit.plan.ladder import Plan, Visit
from loadkit.plan.resume import Resumed
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
            "limit": None,
        }

    def resume(self, run: Resumed, plan: Plan) -> None:
        """Go on with what another start of the run left: its content is taken over, and visits it left are repeated."""
        before = {name: run.manifest.get(name) for name in ("ended_at", "stopped_by", "fault", "limit")}
        again = [item for item in run.todo if item.instead is not None]
        entry = {
            "resumed_at": _now(),
            "before": before,
            "repeated": [item.instead.index for item in again if item.instead is not None],
            "damaged_lines": run.past.damaged,
        }
        resumes = [*(run.manifest.get("resumes") or ()), entry]
        self._data = {**run.manifest, "plan": plan.to_json(), **dict.fromkeys(before), "resumes": resumes}
        for item in again:
            assert item.instead is not None
            self._repeat(item.instead, Validity("invalid", [item.why]), item.visit)
        self._save()

    def without_visits(self) -> None:
        """A run whose users choose for themselves has no visits to do."""
        self._data["visits"] = []

    def started(self) -> None:
        """The run begins now."""
        self._data["started_at"] = self._data["started_at"] or _now()
        self._save()

    def visit(self, visit: Visit, state: str, why: str | None = None, measured: int | None = None) -> None:
        """A visit is open, done, ended (before its time), stopped (with the run) or dropped (never opened).

        measured: the measured requests of one that is closed.
        """
        row = self._data["visits"][visit.index]
        row["state"] = state
        if state != "dropped":
            row["opened_at" if state == "open" else "closed_at"] = _now()
        if why is not None:
            row["why"] = why
        if measured is not None:
            row["measured"] = measured
        self._save()

    def arrivals(self, visit: Visit, counts: dict[str, int]) -> None:
        """Of the arrivals of an open loop's visit so many were planned, came due (`offered`), and were dropped."""
        self._data["visits"][visit.index]["arrivals"] = counts
        self._save()

    @property
    def visits(self) -> list[dict[str, Any]]:
        """How every visit went so far, by its index."""
        return self._data["visits"]

    @property
    def visit_count(self) -> int:
        """Visits planned and added."""
        return len(self._data["visits"])

    def add_visit(self, visit: Visit, why: str, prompts: list[dict[str, Any]]) -> None:
        """A visit that was not planned, with its cell, which the plan does not have."""
        if visit.index == self.visit_count:  # not where a full disk makes us write it again
            about = {"visit": visit.index, "cell": visit.cell.id, "round": visit.round, "state": "planned"}
            self._data["visits"].append({**about, "why": why, "added": asdict(visit.cell)})
            if prompts:
                self._data["prompts"]["tiers"] += prompts
        self._save()

    def invalid(self, visit: Visit, verdict: Validity | None, again: Visit | None) -> None:
        """A visit may not stand; one with `repeated_as` is left out of every number, its repeat stands in its place."""
        self._repeat(visit, verdict, again)
        self._save()

    def limited(self, why: str) -> None:
        """A budget is used up: the run ends before its time, and can be gone on with."""
        self._data["limit"] = why
        self._save()

    def _repeat(self, visit: Visit, verdict: Validity | None, again: Visit | None) -> None:
        row = self._data["visits"][visit.index]
        if verdict is not None:
            row["validity"] = {"status": verdict.status, "reasons": list(verdict.reasons)}
        if again is not None:
            row["repeated_as"] = again.index
            if again.index == self.visit_count:  # not where a full disk makes us write it again
                about = {"visit": again.index, "cell": again.cell.id, "round": again.round, "state": "planned"}
                added = {name: row[name] for name in ("added", "why") if "added" in row and name in row}
                self._data["visits"].append({**about, "repeats": visit.index, **added})

    def describe(self, name: str, value: Any) -> None:
        """One more thing about the run as a whole; JSON."""
        self._data[name] = value
        self._save()

    def ended(self, stopped_by: str | None, fault: str | None) -> None:
        """The run is over; `stopped_by` names the signal that asked for it, `fault` why it could not go on."""
        self._data |= {"ended_at": _now(), "stopped_by": stopped_by, "fault": fault}
        self._save()

    def _save(self) -> None:
        self._folder.write_manifest(self._data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")

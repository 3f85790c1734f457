"""`loadkit merge`: its own errors, and what it says. What it merges is tested with runs whose master was killed."""

import json

from loadkit.record.record import Record
from loadkit.record.spool import Spool

RUN = "abcd-20260304T120005"


def folder_of(tmp_path):
    folder = tmp_path / "run"
    (folder / "spools").mkdir(parents=True)
    plan = {"rounds": 1, "cells": [{"tier_tokens": 32, "concurrency": 1}]}
    visits = [{"visit": 0, "cell": "32x1", "round": 1, "state": "open"}]
    (folder / "manifest.json").write_text(json.dumps({"run_id": RUN, "plan": plan, "visits": visits}))
    return folder


def spool(where, run_id=RUN):
    made = Spool(where, run_id, "w")
    row = Record(run_id=run_id, request_id="1", worker="w", cell="32x1", tier_tokens=32, concurrency=1, visit=0)
    row.phase, row.outcome, row.ttft_ms, row.start_ms = "measure", "ok", 5.0, 1.0
    made.append(row.to_json())
    made.close()
    return made.path


def test_without_spools_it_says_where_it_looked(tmp_path, loadkit):
    """Exit code 2 and one line; the folder is not touched."""
    folder = folder_of(tmp_path)
    done = loadkit("merge", str(folder))
    assert done.returncode == 2
    assert done.stderr.startswith("loadkit: ")
    assert "holds no spools" in done.stderr
    assert not (folder / "records.jsonl").exists()


def test_a_foreign_spool_is_refused(tmp_path, loadkit):
    """Exit code 2, the run it belongs to is named, nothing is written."""
    folder = folder_of(tmp_path)
    done = loadkit("merge", str(folder), str(spool(tmp_path, "other")))
    assert done.returncode == 2
    assert "belongs to run other" in done.stderr
    assert not (folder / "records.jsonl").exists()


def test_spools_from_anywhere_complete_the_run(tmp_path, loadkit):
    """Files of other machines are named; the report is made again; a run without an end is incomplete, exit code 3."""
    folder = folder_of(tmp_path)
    done = loadkit("merge", str(folder), str(spool(tmp_path)))
    assert done.returncode == 3, done.stderr
    assert "merged 1 spools: 1 requests and 0 samples added" in done.stderr
    summary = json.loads((folder / "summary.json").read_text())
    assert [(cell["cell"], cell["n"]) for cell in summary["cells"]] == [("32x1", 1)]
    assert summary["exit_code"] == 3


def test_the_number_of_workers_is_checked_first(loadkit):
    """Exit code 2 and one line, before anything is started."""
    for bad in ("0", "two", "-1", "9999", "٣"):
        done = loadkit("run", "http://127.0.0.1:9", f"--workers={bad}", "--no-check")
        assert done.returncode == 2
        assert "--workers" in done.stderr
        assert done.stderr.count("\n") == 1

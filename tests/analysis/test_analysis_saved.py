"""A run folder read back."""

import json

from loadkit.analysis.saved import summary_of
from loadkit.record.folder import RunFolder
from loadkit.record.record import Record


def test_who_watches_the_records_sees_those_that_count(tmp_path):
    """A visit that another one repeats is sent work, and part of the totals, and in no cell and before no watcher."""
    rows = [
        Record(request_id=f"r{visit}", visit=visit, cell="128x1", tier_tokens=128, concurrency=1).to_json()
        | {"kind": "request", "phase": "measure", "outcome": "ok", "ttft_ms": 10.0}
        for visit in (0, 1)
    ]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    visits = [
        {"visit": 0, "cell": "128x1", "state": "done", "repeated_as": 1},
        {"visit": 1, "cell": "128x1", "state": "done"},
    ]
    (tmp_path / "manifest.json").write_text(json.dumps({"run_id": "r", "visits": visits}))
    seen = []

    def watch(records):
        for record in records:
            seen.append(record["request_id"])
            yield record

    summary = summary_of(RunFolder(tmp_path), watch)
    assert (seen, summary["totals"]["requests"], summary["cells"][0]["n"]) == (["r1"], 2, 1)

"""A visit that may not stand and was repeated: its requests were sent, and are in no number."""

from loadkit.analysis.repeats import repeated, repeats, standing
from loadkit.analysis.summary import summarise
from loadkit.record.record import Record

PLAN = {
    "rounds": 2,
    "cells": [{"tier_tokens": 32, "concurrency": 1, "target_tokens": 32}],
}
LOST = {"status": "invalid", "reasons": ["a worker was lost: w said nothing for 4 s"]}


def manifest(*visits):
    rows = [{"visit": i, "cell": "32x1", "round": 0, **visit} for i, visit in enumerate(visits)]
    return {"run_id": "r", "plan": PLAN, "visits": rows, "ended_at": "2026-03-04T00:00:00+00:00"}


def record(visit, ttft_ms):
    return Record(
        run_id="r",
        request_id=f"{visit}-{ttft_ms}",
        worker="w",
        cell="32x1",
        tier_tokens=32,
        concurrency=1,
        visit=visit,
        round=1,
        phase="measure",
        outcome="ok",
        start_ms=1000.0 * ttft_ms,
        prompt_tokens=32,
        ttft_ms=ttft_ms,
        done_ms=ttft_ms + 5,
    ).to_json()


def summary(*visits, records):
    return summarise(records, manifest(*visits))


def test_only_the_repeat_counts():
    """Numbers come from the visit that stands; the totals have all requests; the run is complete."""
    records = [record(0, 900.0), record(1, 10.0), record(1, 12.0)]
    told = summary({"state": "stopped", "validity": LOST, "repeated_as": 1}, {"state": "done"}, records=records)
    (cell,) = told["cells"]
    assert (cell["n"], cell["ttft_ms"]["max"]) == (2, 12.0)
    assert cell["validity"]["status"] != "invalid"
    assert told["totals"]["requests"] == 3
    assert told["course"]["repeated"] == [{"cell": "32x1", "reasons": LOST["reasons"]}]
    assert (told["course"]["visits"], told["course"]["visits_done"], told["course"]["missing"]) == (1, 1, [])
    assert told["exit_code"] == 0


def test_a_visit_that_was_lost_and_never_repeated_is_invalid():
    """With its reason, and the run is not complete."""
    told = summary({"state": "stopped", "validity": LOST}, records=[record(0, 10.0), record(0, 11.0)])
    (cell,) = told["cells"]
    assert cell["validity"] == LOST
    assert told["exit_code"] == 3


def test_a_repeat_that_never_came_leaves_the_run_incomplete():
    """The visit that may not stand does not come back in the place of its repeat."""
    told = summary(
        {"state": "done", "validity": LOST, "repeated_as": 1}, {"state": "planned"}, records=[record(0, 10.0)]
    )
    assert told["cells"] == []
    assert told["exit_code"] == 3


def test_a_damaged_manifest_repeats_nothing():
    """Anything that is not an index is passed over."""
    odd = {"visits": [{"visit": "x", "repeated_as": 1}, {"visit": 0, "repeated_as": "1"}, 7]}
    assert repeated(odd) == frozenset()
    assert [visit["visit"] for visit in standing(odd)] == [0]
    assert repeats({"visits": [{"visit": 0, "cell": "a", "repeated_as": 1, "validity": 5}]}) == [
        {"cell": "a", "reasons": []}
    ]

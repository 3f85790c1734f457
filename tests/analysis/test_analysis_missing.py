"""Planned requests against the records that are there."""

import pytest

from loadkit.analysis.missing import missing
from loadkit.analysis.summary import summarise
from loadkit.report import words

CELLS = [{"tier_tokens": 100, "concurrency": 1}, {"tier_tokens": 100, "concurrency": 2}]
VISITS = [
    {"cell": "100x1", "round": 1, "state": "done"},
    {"cell": "100x1", "round": 2, "state": "done"},
    {"cell": "100x2", "round": 0, "state": "done"},
]
MANIFEST = {"ended_at": "2026-01-01T00:00:00Z", "plan": {"rounds": 2, "cells": CELLS}, "visits": VISITS}


@pytest.fixture
def run_of(request_of):
    """A summary of a run with so many measured records of 100x1 and of 100x2, and a manifest."""

    def build(single, double, manifest=MANIFEST):
        rows = [request_of(100, 1, at=i, ttft=50, visit=i) for i in range(single)]
        rows += [request_of(100, 2, at=50 + i // 2, ttft=50, visit=9) for i in range(double)]
        return summarise(rows, manifest)

    return build


def test_all_planned_records_make_a_complete_run(run_of):
    """Rounds x concurrency of each cell: 2 and 4."""
    summary = run_of(2, 4)
    assert summary["course"]["missing"] == []
    assert summary["exit_code"] == 0


def test_lost_records_are_named_and_the_run_is_incomplete(run_of):
    """Exit code 3, and the report says how many of how many are there."""
    summary = run_of(2, 3)
    assert summary["exit_code"] == 3
    assert words.course(summary) == ["100 x 2: 3 of 4 measured requests are in the records."]


def test_a_cell_without_any_record_is_named(run_of):
    """Nothing in the tables shows it, so a sentence must."""
    summary = run_of(2, 0)
    assert summary["exit_code"] == 3
    assert "100 x 2: 0 of 4 measured requests are in the records." in words.course(summary)


def test_a_stopped_run_owes_only_what_its_done_visits_took(run_of):
    """One of two rounds is done: one record of the cell is all of it."""
    visits = [VISITS[0], VISITS[1] | {"state": "stopped"}, VISITS[2]]
    assert run_of(1, 4, MANIFEST | {"visits": visits})["course"]["missing"] == []


def test_what_was_left_out_or_ended_on_purpose_is_not_missing(run_of):
    """Dropped without any record, or ended with some: the run is complete, and the report says what was changed."""
    dropped = [*VISITS[:2], VISITS[2] | {"state": "dropped", "why": "beyond the knee"}]
    summary = run_of(2, 0, MANIFEST | {"visits": dropped})
    assert (summary["course"]["missing"], summary["exit_code"]) == ([], 0)
    assert (summary["course"]["visits"], summary["course"]["visits_done"]) == (2, 2)
    assert words.course(summary) == ["Cell 100x2 was dropped: beyond the knee."]
    ended = [*VISITS[:2], VISITS[2] | {"state": "ended", "why": "429"}]
    for measured in (0, 1):
        summary = run_of(2, measured, MANIFEST | {"visits": ended})
        assert (summary["course"]["missing"], summary["exit_code"]) == ([], 0)
        assert words.course(summary) == ["Cell 100x2 was ended: 429."]


def test_a_cell_that_was_added_owes_its_own_visit(run_of):
    """It is not in the plan, so its cell stands with the visit; it took all rounds."""
    cell = {"tier_tokens": 100, "concurrency": 2, "target_tokens": 100}
    added = {"cell": "100x2", "round": 0, "state": "done", "why": "refine: narrower", "added": cell}
    manifest = MANIFEST | {"plan": {"rounds": 2, "cells": CELLS[:1]}, "visits": [*VISITS[:2], added]}
    assert words.course(run_of(2, 4, manifest)) == ["Cell 100x2 was added: refine: narrower."]
    short = run_of(2, 3, manifest)
    assert short["exit_code"] == 3
    assert "100 x 2: 3 of 4 measured requests are in the records." in words.course(short)


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        MANIFEST | {"visits": []},
        MANIFEST | {"plan": 7},
        MANIFEST | {"plan": {"rounds": "x", "cells": [{"tier_tokens": []}, 3, {}]}},
    ],
)
def test_nothing_is_held_against_a_run_without_a_ladder_or_a_readable_plan(manifest):
    """A locustfile of one's own plans no requests; a damaged manifest raises nothing."""
    assert missing(manifest, []) == []

"""The exit code of a run, from its manifest and cells."""

import pytest

from loadkit.analysis.ending import course, ending, objectives

DONE = {"ended_at": "2026-01-01T00:00:00Z", "visits": [{"state": "done"}], "plan": {"slo": "ttft.p50=100ms"}}


def cell(status="valid", ttft=50.0, **outcomes):
    """A cell as the summary has it."""
    return {
        "cell": "128x1",
        "n": 3,
        "outcomes": outcomes or {"ok": 3},
        "validity": {"status": status, "reasons": []},
        "ttft_ms": {"p50": ttft},
    }


@pytest.mark.parametrize(
    ("manifest", "cells", "saturated", "code"),
    [
        (DONE, [cell()], False, 0),
        (DONE, [cell(rate_limited=3)], False, 0),
        (DONE, [cell(ttft=101.0)], False, 4),
        (DONE, [cell("invalid", ttft=101.0)], False, 3),
        (DONE | {"visits": [{"state": "done"}, {"state": "planned"}]}, [cell()], False, 3),
        (DONE | {"visits": [{"state": "stopped"}]}, [cell(ttft=101.0)], False, 3),
        (DONE | {"fault": "disk full"}, [cell()], False, 3),
        (DONE, [cell("invalid")], True, 6),
        (DONE | {"stopped_by": "SIGTERM", "visits": [{"state": "stopped"}]}, [cell("invalid")], True, 7),
        (DONE | {"stopped_by": "SIGTERM"}, [cell(auth=3)], False, 5),
        (DONE, [cell(connect_error=2, dns_error=1), cell(connect_error=3)], False, 5),
        (DONE, [cell(connect_error=3), cell(ok=1, connect_error=2)], False, 0),
        ({"run_id": "cut", "visits": [{"state": "done"}]}, [cell()], False, 3),
        ({}, [cell()], False, None),
    ],
)
def test_the_first_that_applies_in_the_documented_order(manifest, cells, saturated, code):
    """5 target, 7 signal, 6 saturated, 3 incomplete, 4 objective, 0 complete; nothing without a manifest."""
    assert ending(manifest, cells, saturated=saturated) == code


def test_an_invalid_cell_fails_no_objective():
    """A number that may not be used cannot break a promise."""
    cells = [cell("invalid", ttft=500.0), cell("suspect", ttft=200.0)]
    missed = {"cell": "128x1", "name": "ttft.p50", "limit": 100.0, "value": 200.0, "met": False}
    assert objectives(DONE, cells) == [missed]


def test_the_course_of_a_run_says_how_far_it_came():
    """Visits done of visits planned, and what stopped it; nothing where no manifest is left."""
    visits = [{"state": "done"}, {"state": "open"}, {"state": "planned"}, "damaged"]
    assert course({"visits": visits, "stopped_by": "SIGTERM", "ended_at": "now"}) == {
        "ended": True,
        "stopped_by": "SIGTERM",
        "fault": None,
        "limit": None,
        "resumes": [],
        "visits": 3,
        "visits_done": 1,
        "changes": [],
        "refine": None,
        "repeated": [],
        "missing": [],
        "slo_readable": True,
    }
    assert course({"run_id": "cut", "visits": visits})["ended"] is False
    assert course({}) is None


@pytest.mark.parametrize("wanted", [0, None, True, "3"])
def test_a_run_that_was_not_to_be_refined_says_nothing_of_it(wanted):
    """Only a number of tiers above zero is a wish; damage is none."""
    assert course({"plan": {"refine": wanted}, "visits": []})["refine"] is None


def test_refining_that_added_nothing_is_counted():
    """Tiers that were added because of it, by their reason; those that a 429 added are no part of it."""
    visits = [{"cell": "64x1", "state": "done"}, {"cell": "32x2", "state": "done", "why": "429: half of 32x4"}]
    assert course({"plan": {"refine": 3}, "visits": visits})["refine"] == {"wanted": 3, "added": 0}
    visits.append({"cell": "91x1", "state": "done", "why": "refine: halves the gap 64 to 128"})
    assert course({"plan": {"refine": 3}, "visits": visits})["refine"] == {"wanted": 3, "added": 1}


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00", 5, ["ttft=2s"], "ttft=", True])
def test_objectives_that_cannot_be_read_are_none_and_are_said(text):
    """A damaged manifest raises nothing; the course says that no objective is judged."""
    manifest = DONE | {"plan": {"slo": text}}
    assert objectives(manifest, [cell()]) == []
    assert ending(manifest, [cell()], saturated=False) == 0
    assert course(manifest)["slo_readable"] is False


def test_a_damaged_line_is_a_record_lost():
    """Whatever the line held, the run is not complete."""
    assert ending(DONE, [cell()], saturated=False, damaged_lines=1) == 3


@pytest.mark.parametrize("damage", [["done"], {}, 5, None])
def test_a_state_or_a_reason_of_a_wrong_type_is_no_state(damage):
    """A damaged visit is not done, whatever stands there, and its reasons are none."""
    visits = [{"state": damage, "cell": "128x1"}, {"state": "done", "repeated_as": 3, "validity": {"reasons": damage}}]
    manifest = DONE | {"visits": visits}
    assert ending(manifest, [cell()], saturated=False) == 3
    found = course(manifest)
    assert found["visits_done"] == 0
    assert [row["reasons"] for row in found["repeated"]] == [damage if isinstance(damage, list) else []]

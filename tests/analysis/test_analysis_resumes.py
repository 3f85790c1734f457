"""What a report says of a run that stopped at a budget, was resumed, or let its streams pause."""

import pytest

from loadkit.analysis.summary import summarise
from loadkit.report import brief, words

CELLS = [{"tier_tokens": 100, "concurrency": 1}]
DONE = {"cell": "100x1", "round": 1, "state": "done", "visit": 0}
CUT = {"ended_at": None, "stopped_by": None, "fault": None, "limit": None}


@pytest.fixture
def summary_of(request_of):
    """summary_of(visits, n, damaged_lines, **manifest): n measured requests of visit 0 and these visits."""

    def build(visits, n=1, damaged_lines=0, **more):
        rows = [request_of(100, 1, at=i, ttft=50, visit=0) for i in range(n)]
        plan = {"rounds": 1, "cells": CELLS, **more.pop("plan", {})}
        manifest = {"ended_at": "2026-01-01T00:00:00Z", "plan": plan, "visits": visits, **more}
        return summarise(rows, manifest, damaged_lines=damaged_lines)

    return build


def test_a_budget_that_stopped_the_run_makes_it_incomplete(summary_of):
    """Exit code 3, and a sentence that says how far it came."""
    found = summary_of([DONE, {**DONE, "visit": 1, "state": "planned"}], limit="the budget of 10 tokens is used up")
    assert found["exit_code"] == 3
    assert words.course(found) == [
        "Stopped in the middle: the budget of 10 tokens is used up; 1 of 2 visits are done. "
        "`loadkit run --resume` goes on."
    ]


def test_a_budget_that_cut_nothing_off_does_not(summary_of):
    """All that was planned is measured; users without a plan always had more to do."""
    assert summary_of([DONE], limit="the budget")["exit_code"] == 0
    assert words.course(summary_of([DONE], limit="the budget")) == []
    assert summary_of([], limit="the budget")["exit_code"] == 3


@pytest.mark.parametrize(
    ("resumes", "sentence"),
    [
        ([(CUT, [7])], "Resumed once, after a cut: visit 7 was repeated; what was in flight at a cut is not in the"),
        ([({**CUT, "stopped_by": "SIGTERM", "ended_at": "x"}, [])], "Resumed once, after SIGTERM: no visit had to be"),
        (
            [({**CUT, "limit": "the budget of 5", "ended_at": "x"}, [7]), ({**CUT, "fault": "full"}, [9, 10])],
            "Resumed twice, after a budget, a fault: visits 7, 9 and 10 were repeated.",
        ),
        ([(CUT, []), (CUT, []), (CUT, [1])], "Resumed 3 times, after a cut, a cut, a cut: visit 1 was repeated;"),
        ([(None, "x")], "Resumed once, after a cut: no visit had to be repeated;"),
    ],
)
def test_the_report_says_how_often_it_was_resumed(summary_of, resumes, sentence):
    """After what, and which visits were measured again; a damaged manifest says less."""
    entries = [{"before": before, "repeated": repeated} for before, repeated in resumes]
    (line,) = words.course(summary_of([DONE], resumes=entries))
    assert line.startswith(sentence)


def test_a_line_that_a_resume_knew_of_is_no_loss(summary_of):
    """What it held was measured again; a further one is a loss, as are records that are missing."""
    resumes = [{"before": CUT, "repeated": [], "damaged_lines": 1}]
    assert summary_of([DONE], damaged_lines=1)["exit_code"] == 3
    assert summary_of([DONE], damaged_lines=1, resumes=resumes)["exit_code"] == 0
    assert summary_of([DONE], damaged_lines=2, resumes=resumes)["exit_code"] == 3
    assert summary_of([DONE], n=0, damaged_lines=1, resumes=resumes)["exit_code"] == 3


def test_a_visit_that_counted_its_requests_is_held_against_them(summary_of):
    """One that was measured for a time has no number of rounds."""
    done = {**DONE, "measured": 5}
    assert summary_of([done], n=5)["exit_code"] == 0
    found = summary_of([done], n=4)
    assert found["exit_code"] == 3
    assert words.course(found) == ["100 x 1: 4 of 5 measured requests are in the records."]


def test_pauses_count_as_streams_by_littles_law(request_of):
    """Two streams that answer in 1 s and pause for 1 s: one is in flight on average, and that is the planned load."""

    def reasons(every, think, **changed):
        rows = [request_of(100, 2, at=every * (i // 2), ttft=960.0, tpot=10.0, **changed) for i in range(40)]
        manifest = {"plan": {"think_s": think}}
        return summarise(rows, manifest)["cells"][0]["validity"]["reasons"]

    assert reasons(2.0, [1.0, 1.0]) == []
    assert reasons(2.0, [0.5, 1.5]) == []
    assert "Little's law" in reasons(2.0, [0.0, 0.0])[0]
    own = [request_of(100, 2, at=2.0 * (i // 2), ttft=960.0, tpot=10.0) for i in range(40)]
    assert summarise(own, {"visits": []})["cells"][0]["validity"]["reasons"] == []  # users who pause as they like
    (found,) = reasons(4.0, [1.0, 1.0])
    assert found.startswith("0.52 streams in flight and 0.52 pausing on average are fewer than the 2 planned")


def test_streams_that_pause_need_not_meet(request_of):
    """A peak below the planned streams is what pauses do; one above is still wrong."""
    rows = [request_of(100, 2, at=2.0 * i, ttft=960.0, tpot=10.0) for i in range(6)]
    manifest = {"plan": {"think_s": [1.0, 1.0]}}
    assert summarise(rows, manifest)["cells"][0]["validity"]["reasons"] == []
    assert "at most 1 streams" in summarise(rows)["cells"][0]["validity"]["reasons"][0]
    rows = [request_of(100, 2, at=0.1 * i, ttft=960.0, tpot=10.0) for i in range(6)]
    assert "6 streams were in flight at once" in summarise(rows, manifest)["cells"][0]["validity"]["reasons"][0]


def test_the_brief_end_is_a_verdict(summary_of):
    """One line, and what stands against it."""
    assert list(brief.lines(summary_of([DONE]))) == ["complete: 1 cell, 1 of 1 requests ok"]
    found = list(brief.lines(summary_of([DONE], n=0)))
    assert found[0] == "incomplete: 0 cells, 0 of 0 requests ok"
    assert found[1] == "100 x 1: 0 of 1 measured requests are in the records."
    missed = list(brief.lines(summary_of([DONE], plan={"slo": "ttft=1ms,e2e=9m"})))
    assert missed[0].startswith("an objective is missed: ")
    assert [line.split()[1] for line in missed[1:]] == ["ttft.p95"]

"""What of a run that was cut stands, what is to do, and what options may say beside --resume."""

import argparse
import json
from datetime import UTC, datetime
from threading import Timer

import pytest

from loadkit.plan import resume
from loadkit.plan.budget import Spent
from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError
from loadkit.plan.flags import add_options
from loadkit.plan.ladder import Cell, Plan, fit_cells
from loadkit.plan.options import resolve
from loadkit.plan.resume import outstanding
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.jsonl import Writer, header
from loadkit.record.spool import Spool

PLAN = Plan("grid", fit_cells([(128, 1), (128, 2)], None, 16), seed=7, rounds=3, max_tokens=16)


def rows(*states):
    """The visits of PLAN in these states."""
    return [
        {"visit": visit.index, "cell": visit.cell.id, "round": visit.round, "state": state}
        for visit, state in zip(PLAN.visits(), states, strict=True)
    ]


def todo(visits, **measured):
    """(index, cell, round, first, attempt, the index it repeats, why) of what is to do."""
    counts = {int(name[1:]): n for name, n in measured.items()}
    return [
        (v.index, v.cell.id, v.round, v.first, v.attempt, item.instead and item.instead.index, item.why)
        for item in outstanding(PLAN, visits, counts)
        for v in [item.visit]
    ]


def test_finished_visits_stand_and_partial_ones_are_repeated():
    """Settled ones are kept; an open one comes again under a new index, in its old place and with a warm-up."""
    assert todo(rows("done", "open", "planned", "planned"), v0=1, v1=0) == [
        (4, "128x1", 2, True, 1, 1, "the run was cut in the middle of it"),
        (2, "128x1", 3, False, 0, None, ""),
        (3, "128x2", 0, True, 0, None, ""),
    ]
    assert todo(rows("done", "ended", "dropped", "stopped"), v0=1) == [
        (4, "128x2", 0, True, 1, 3, "the run was stopped in the middle of it")
    ]
    assert todo(rows("done", "done", "done", "done"), v0=1, v1=1, v2=1, v3=6) == []


def test_a_visit_whose_records_are_not_all_there_is_repeated():
    """A machine that lost its power may have kept the manifest and not the last records."""
    assert todo(rows("done", "done", "done", "done"), v0=1, v1=1, v2=1, v3=5) == [
        (4, "128x2", 0, True, 1, 3, "5 of its 6 measured requests are in the records")
    ]
    counted = rows("done", "done", "done", "done")
    counted[3]["measured"] = 5
    assert todo(counted, v0=1, v1=1, v2=1, v3=5) == []


def test_a_repeat_that_was_cut_is_repeated_again():
    """Its tries are counted, so that prompts are new; what it stands for is out of the way."""
    visits = rows("done", "open", "done", "done")
    visits[1]["repeated_as"] = 4
    visits.append({"visit": 4, "cell": "128x1", "round": 2, "state": "open", "repeats": 1})
    found = todo(visits, v0=1, v2=1, v3=6)
    assert found == [(5, "128x1", 2, True, 2, 4, "the run was cut in the middle of it")]


def test_cells_that_were_added_come_back():
    """They are not in the plan: their row holds them."""
    visits = rows("done", "done", "done", "done")
    added = {"tier_tokens": 96, "concurrency": 1, "target_tokens": 90, "rate": None}
    visits.append({"visit": 4, "cell": "96x1", "round": 0, "state": "open", "why": "a knee", "added": added})
    (item,) = outstanding(PLAN, visits, {0: 1, 1: 1, 2: 1, 3: 6})
    assert item.visit.cell == Cell(96, 1, 90)
    assert item.visit.index == 5


@pytest.fixture
def cut(tmp_path):
    """cut(*states, **manifest): the folder of a run that was cut, with two records and half a line."""

    def make(*states, **more):
        folder = RunFolder.create(tmp_path / "runs", datetime.now(UTC), "abcdef12-run")
        manifest = {
            "run_id": "abcdef12-run",
            "plan": PLAN.to_json(),
            "endpoint": Endpoint("lab", "http://h:1/v1", "m", key_env="LAB_KEY").to_json(),
            "target": {"kind": "endpoint"},
            "check": {"pings": []},
            "visits": rows(*states),
            "ended_at": None,
        }
        folder.write_manifest(manifest | more)
        with Writer(folder.records_path) as writer:
            writer.header(header())
            for visit in (0, 1):
                writer.write(
                    {
                        "kind": "request", "visit": visit, "phase": "measure", "outcome": "ok", "cell": "128x1",
                        "tier_tokens": 128, "concurrency": 1, "target_tokens": 128, "prompt_tokens": 128,
                        "output_tokens": 16, "ttft_ms": 5.0 + visit, "e2e_ms": 9.0,
                        "attempts": [{"outcome": "ok", "http_status": 200}],
                    }
                )  # fmt: skip
        with folder.records_path.open("ab") as file:
            file.write(b'{"kind":"request","vi')
        return folder

    return make


@pytest.fixture
def ask(tmp_path):
    """ask(*words): the request that `--resume latest` and these words make, with the key in the environment."""

    def request(*words, environ={"LAB_KEY": "k"}):  # noqa: B006 - not changed
        parser = argparse.ArgumentParser()
        add_options(parser)
        options = parser.parse_args(["--resume", "runs/latest", *words])
        return resolve(options, environ, tmp_path)

    return request


def test_everything_comes_from_the_folder(cut, ask):
    """Plan, endpoint and seed; the key from the environment; what was spent and seen from the records."""
    folder = cut("done", "open", "planned", "planned")
    request = ask()
    run = request.resumed
    assert request.plan == PLAN
    assert not request.check  # nor was the run
    assert request.endpoint.base_url == "http://h:1/v1"
    assert request.endpoint.key({"LAB_KEY": "k"}) == "k"
    assert (run.folder.path, run.number) == (folder.path.resolve(), 1)
    assert [item.visit.index for item in run.todo] == [4, 2, 3]
    assert run.past.spent == Spent(256, 32)
    assert run.past.damaged == 1
    # The one of the visit that is repeated is not counted into what decides about further cells.
    assert {name: list(seen.ttft_ms) for name, seen in run.tally().cells.items()} == {"128x1": [5.0]}


def test_a_missing_key_is_one_line(cut, ask):
    """As for a new run."""
    cut("done", "open", "planned", "planned")
    with pytest.raises(ConfigError, match="LAB_KEY"):
        ask(environ={})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--url", "http://other:1/v1"), "--url http://other:1/v1 contradicts the run, which has http://h:1/v1"),
        (("--model", "n"), "--model n contradicts the run, which has m"),
        (("--tiers", "128,256"), "--tiers 128,256 contradicts the run, which has 128"),
        (("--concurrency", "1,4"), "contradicts the run, which has 1,2"),
        (("--concurrency", "many"), "contradicts the run, which has 1,2"),
        (("--seed", "8"), "contradicts the run, which has 7"),
        (("--rounds", "4"), "contradicts the run, which has 3"),
        (("--full-grid",), "--full-grid cannot go with --resume"),
        (("--header", "a=b"), "--header cannot go with --resume"),
        (("--slo", "ttft=1s"), "--slo cannot go with --resume"),
    ],
)
def test_what_contradicts_the_run_is_refused(cut, ask, words, why):
    """In one line that names the option."""
    cut("done", "open", "planned", "planned")
    with pytest.raises(ConfigError) as found:
        ask(*words)
    assert why in str(found.value)
    assert "\n" not in str(found.value)


def test_what_agrees_with_the_run_may_be_said(cut, ask):
    """Also in another form."""
    cut("done", "open", "planned", "planned")
    request = ask("--url", "http://h:1/v1/", "--tiers", "128", "--concurrency", "2,1", "--seed", "7", "--model", "m")
    assert request.plan == PLAN


def test_budgets_stay_in_force_until_they_are_raised(cut, ask):
    """Those of tokens and money go for the run, the time for each start."""
    plan = PLAN.to_json() | {"budget_tokens": 1000, "max_duration_s": 5.0}
    cut("done", "open", "planned", "planned", plan=plan)
    assert (ask().plan.budget_tokens, ask().plan.max_duration_s) == (1000, None)
    raised = ask("--budget-tokens", "2000", "--max-duration", "1m").plan
    assert (raised.budget_tokens, raised.max_duration_s) == (2000, 60.0)


def test_workers_that_outlived_their_master_are_waited_for(cut, ask, monkeypatch):
    """What they have in flight would disturb what comes: the run goes on when they have ended, or says who has not."""
    folder = cut("done", "open", "planned", "planned")
    folder.spools_path.mkdir()
    spool = Spool(folder.spools_path, "abcdef12-run", "w")
    monkeypatch.setattr(resume, "WORKERS_END_S", 0.0)
    with pytest.raises(ConfigError, match="1 workers of this run have not ended, and write"):
        ask()
    monkeypatch.setattr(resume, "WORKERS_END_S", 60.0)
    Timer(0.3, spool.close).start()
    assert ask().resumed.todo


def test_a_run_that_still_goes_on_is_left_alone(cut, ask):
    """Its writer holds a lock; the refusal is one line."""
    folder = cut("done", "open", "planned", "planned")
    with Writer(folder.records_path) as writer:
        writer.lock()
        with pytest.raises(FolderError, match="another process is writing"):
            ask()
    assert ask().resumed.todo


@pytest.mark.parametrize(
    "more", [{"visits": []}, {"plan": {}}, {"endpoint": None}, {"visits": [{"state": "open"}]}, {"visits": [7]}]
)
def test_a_manifest_that_cannot_be_gone_on_with_is_one_line(cut, ask, more):
    """Damaged, of another version, or of users who chose for themselves."""
    cut("done", "open", "planned", "planned", **more)
    with pytest.raises(ConfigError) as found:
        ask()
    assert "\n" not in str(found.value)


def test_a_run_cut_before_its_report_gets_its_end(cut, ask):
    """All visits are there; only the end was not written."""
    folder = cut("done", "done", "ended", "dropped")
    run = ask().resumed
    assert run.todo == ()
    resume.nothing_left(run, datetime(2026, 1, 2, tzinfo=UTC))
    assert json.loads(folder.manifest_path.read_text())["ended_at"].startswith("2026-01-02")

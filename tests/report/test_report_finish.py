"""The end of a run: files written, report printed, whatever is in the folder."""

import csv
import io
import json
import os

import pytest

from loadkit.analysis.summary import summarise
from loadkit.record.errors import FolderError
from loadkit.report.finish import finish


def finished(path, **options):
    stream = io.StringIO()
    return finish(path, stream=stream, **options), stream.getvalue()


def test_everything_is_written_and_the_folder_is_named_last(run_folder, records):
    """summary.json is what was returned and what the records give; CSV and Markdown are there; the path ends it."""
    path = run_folder()
    summary, text = finished(path)
    assert json.loads((path / "summary.json").read_text()) == summary
    assert summary == summarise(records)
    assert len(list(csv.DictReader((path / "summary.csv").open()))) == 5
    assert (path / "report.md").read_text().startswith("# Run run-7\n")
    assert text.splitlines()[-1] == f"Run folder: {path}"
    assert (path / "report.html").read_text().startswith("<!doctype html>\n")
    made = {"summary.json", "summary.csv", "report.md", "report.html"}
    assert {p.name for p in path.iterdir()} == {"records.jsonl", *made}


def test_finishing_again_gives_the_same(run_folder):
    """A second look replaces the files with equal ones and leaves the records alone."""
    path = run_folder(manifest={"run_id": "r"})
    before = (path / "records.jsonl").read_bytes()
    first, second = finished(path), finished(path)
    assert first == second
    assert first[0]["exit_code"] == 3
    assert (path / "records.jsonl").read_bytes() == before


def test_telemetry_and_manifest_are_heard(run_folder):
    """A saturated second inside a cell makes it invalid; a verdict of the manifest stands."""
    path = run_folder(manifest={"visits": [{"cell": "128x1", "validity": {"status": "suspect", "reasons": ["warm"]}}]})
    row = {"kind": "telemetry", "timestamp": "2026-01-01T00:16:41Z", "worker": "w", "hub_lag_p99_ms": 0.1, "cpu": 0.99}
    (path / "telemetry.jsonl").write_text(json.dumps(row) + "\n")
    cells = {cell["cell"]: cell["validity"]["status"] for cell in finished(path)[0]["cells"]}
    assert (cells["128x1"], cells["512x2"], cells["512x1"]) == ("suspect", "invalid", "valid")


def test_a_truncated_file_is_reported_as_far_as_it_goes(run_folder, records):
    """A cut last line is counted, said, and costs nothing else."""
    summary, text = finished(run_folder(tail=json.dumps(records[0])[:200]))
    assert (summary["damaged_lines"], summary["totals"]["requests"]) == (1, 20)
    assert "1 line(s) of records.jsonl could not be read and are left out." in text


@pytest.mark.parametrize("content", ["", "\x00\xff garbage\n[1]\n", '{"kind":"header"}\n', '{"kind":"request"}\n'])
def test_a_folder_with_nothing_to_measure_is_reported(tmp_path, content):
    """Empty, damaged, header only, or a record of no cell: a report that says so."""
    (tmp_path / "records.jsonl").write_text(content, encoding="utf-8")
    (tmp_path / "manifest.json").write_text("{cut")
    summary, text = finished(tmp_path)
    assert summary["cells"] == []
    assert "No request of any cell was recorded." in text


def test_a_folder_without_files_is_reported(tmp_path):
    """A run that was stopped before its first record."""
    assert finished(tmp_path)[0]["totals"]["requests"] == 0


def test_a_run_of_errors_is_reported(run_folder, request_of):
    """Every request failed: counts, the server's words, no numbers."""
    summary, text = finished(run_folder([request_of(128, 1, i, round=i) for i in range(3)]))
    assert summary["cells"][0]["outcomes"] == {"rate_limited": 3}
    assert "No verdict on how TTFT grows: no tier usable at concurrency 1 and 1 left out" in text


def test_a_run_of_one_tier_is_reported(run_folder, request_of):
    """Numbers for the tier, and no verdict on anything that needs several."""
    summary, text = finished(run_folder([request_of(128, 1, i, 800.0, round=1 + i) for i in range(3)]))
    assert summary["cells"][0]["ttft_ms"]["p50"] == 800.0
    assert [summary[name]["verdict"] for name in ("growth", "price", "tpot_across_tiers")] == [None] * 3
    assert "No verdict on how TTFT grows: one tier usable" in text


def test_a_foreign_schema_is_reported_with_a_warning(tmp_path, request_of):
    """The header names another schema: what can be read is reported, and the name is said."""
    rows = [{"kind": "header", "schema": "loadkit-records/9"}, request_of(128, 1, 0, 800.0)]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary, text = finished(tmp_path)
    assert (summary["records_schema"], summary["totals"]["ok"]) == ("loadkit-records/9", 1)
    assert "records.jsonl says it is loadkit-records/9; this version reads loadkit-records/1" in " ".join(text.split())


def test_foreign_lines_are_counted_and_said(tmp_path):
    """JSON lines of another program have no kind: none is taken for a request, all are counted."""
    (tmp_path / "records.jsonl").write_text('{"model": "m", "ttft": 0.5}\n' * 3)
    summary, text = finished(tmp_path)
    assert (summary["cells"], summary["damaged_lines"]) == ([], 3)
    assert "3 line(s) of records.jsonl could not be read" in text


def test_lone_surrogates_do_not_stop_the_report(run_folder, request_of):
    """Half a character in a server's message is no character, and is left out."""
    path = run_folder([request_of(128, 1, 0, error_message="bad \ud800 text")])
    assert "bad text" in finished(path)[1]
    assert "bad text" in (path / "report.md").read_text()


def test_no_folder_is_one_clear_line(tmp_path):
    """A path that is no folder is named."""
    with pytest.raises(FolderError, match=r"no run folder at .*nowhere"):
        finish(tmp_path / "nowhere", stream=io.StringIO())


def test_a_folder_that_cannot_be_written_is_one_clear_line(run_folder):
    """A summary that cannot be replaced is an error for people."""
    path = run_folder()
    (path / "summary.json").mkdir()
    with pytest.raises(FolderError, match=r"cannot write .*summary\.json"):
        finished(path)


MANIFEST = {
    "run_id": "run-7",
    "ended_at": "2026-01-01T00:00:00+00:00",
    "visits": [{"cell": "128x1", "state": "done"}, {"cell": "128x1", "state": "stopped"}, {"state": "planned"}],
}


def test_a_stopped_run_says_so(run_folder):
    """Whatever the tables look like: who stopped it, and how much of the plan is there."""
    summary, text = finished(run_folder(manifest=MANIFEST | {"stopped_by": "SIGTERM"}))
    assert "Stopped by SIGTERM: 1 of 3 visits are done." in text
    assert summary["exit_code"] == 7


def test_a_cut_run_says_so(run_folder):
    """A manifest without an end was left by a killed process."""
    path = run_folder(manifest=MANIFEST | {"ended_at": None})
    summary, text = finished(path)
    assert "The run was cut before its end: 1 of 3 visits are done." in text
    assert "cut before its end" in (path / "report.md").read_text()
    assert summary["exit_code"] == 3


def test_objectives_are_told_with_what_was_measured(run_folder, records):
    """A missed objective names its cells and their values; one that is met says that."""
    done = [{"cell": "x", "state": "done"}]
    manifest = MANIFEST | {"visits": done, "plan": {"slo": "ttft.p50=1us,error_rate=100%"}}
    summary, text = finished(run_folder(manifest=manifest))
    flat = " ".join(text.split())
    assert "Objective ttft.p50 0.001 ms: missed in 128 x 1 (804 ms), " in flat
    assert "Objective error_rate 100.0%: met." in flat
    assert summary["exit_code"] == 4


def test_half_a_file_is_not_left_where_there_is_no_room(run_folder):
    """What could not be put in place is taken away again: on a full disk it would be in the way."""
    path = run_folder()
    (path / "summary.json").mkdir()
    with pytest.raises(FolderError):
        finished(path)
    assert not list(path.glob("*.part"))


@pytest.mark.parametrize("name", ["records.jsonl", "telemetry.jsonl"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(run_folder, name):
    """Nobody writes into it: without the check the report would wait for ever."""
    path = run_folder()
    (path / name).unlink(missing_ok=True)
    os.mkfifo(path / name)
    with pytest.raises(FolderError, match=f"cannot read .*{name}: it is a pipe"):
        finished(path)


def test_a_pipe_in_place_of_the_manifest_is_no_manifest(run_folder):
    """The report says that there is none, and the rest is there."""
    path = run_folder()
    (path / "manifest.json").unlink(missing_ok=True)
    os.mkfifo(path / "manifest.json")
    summary, text = finished(path)
    assert (summary["course"], summary["totals"]["requests"]) == (None, 20)
    assert "There is no manifest" in text

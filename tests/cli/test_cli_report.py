"""`loadkit report FOLDER`: whatever the folder holds, a report of it or one line."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from loadkit.record.names import ExitCode

FILES = ("summary.json", "summary.csv", "report.md", "report.html")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of four requests against the simulator, and what it printed."""
    folder = tmp_path_factory.mktemp("finished")
    words = ["--target", "sim", "--tiers", "64", "--concurrency", "1", "--rounds", "3", "--max-tokens", "4"]
    command = [sys.executable, "-m", "loadkit.cli.main", "run", *words]
    environ = {**os.environ, "COLUMNS": "300", "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder, env=environ)
    assert done.returncode in (ExitCode.COMPLETE, ExitCode.SATURATED), done.stderr
    return folder / "runs", done


@pytest.fixture
def runs(finished, tmp_path):
    """A copy of the finished run, to be spoiled."""
    shutil.copytree(finished[0], tmp_path / "runs", symlinks=True)
    return tmp_path / "runs"


def test_a_report_is_the_same_every_time(loadkit, finished, runs):
    """Printed and written again from the records: the same text, the same files; `runs/latest` is the default."""
    latest = runs / "latest"
    before = {name: (latest / name).read_bytes() for name in FILES}
    for name in FILES:
        (latest / name).unlink()
    done = loadkit("report")
    assert (done.returncode, done.stderr) == (ExitCode.COMPLETE, "")
    assert {name: (latest / name).read_bytes() for name in FILES} == before
    tables = [text[: text.index("Run folder:")] for text in (done.stdout, finished[1].stdout)]
    assert tables[0] == tables[1]


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("nowhere", "no run folder at nowhere"),
        ("empty", "empty is not a run folder"),
        ("runs", "did you mean runs/latest?"),
        ("a-file", "a-file"),
    ],
)
def test_what_is_no_run_folder_is_one_line(loadkit, runs, tmp_path, folder, says):
    """Missing, empty, the folder of folders, a file: exit code 2 and one line."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "a-file").write_text("")
    done = loadkit("report", folder)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert done.stderr.startswith("loadkit: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_records_alone_are_enough(loadkit, runs):
    """A run that was cut before anything else was written: its requests are all in the report."""
    latest = runs / "latest"
    for path in latest.iterdir():
        if path.name != "records.jsonl":
            path.unlink()
    assert loadkit("report", "runs/latest").returncode == ExitCode.COMPLETE
    summary = json.loads((latest / "summary.json").read_text())
    assert [(cell["cell"], cell["n"], cell["ok"]) for cell in summary["cells"]] == [("64x1", 3, 3)]


def test_a_manifest_alone_is_a_report_of_nothing(loadkit, runs):
    """A run that was cut before its first request says so."""
    latest = runs / "latest"
    for path in latest.iterdir():
        if path.name != "manifest.json":
            path.unlink()
    done = loadkit("report", "runs/latest")
    assert done.returncode == ExitCode.COMPLETE
    assert "No request" in done.stdout


def test_a_cut_line_loses_only_itself(loadkit, runs):
    """The last record cut in the middle: the others are reported, and the damage is counted."""
    path = runs / "latest" / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-200])
    assert loadkit("report").returncode == ExitCode.COMPLETE
    summary = json.loads((runs / "latest" / "summary.json").read_text())
    assert (summary["cells"][0]["n"], summary["damaged_lines"]) == (2, 1)

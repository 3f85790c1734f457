"""The run folder: unique, never overwritten, and found again."""

import json
import math
import shutil
from datetime import UTC, datetime, timedelta, timezone

import pytest

from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder

NOON = datetime(2026, 3, 4, 12, 0, 5, tzinfo=UTC)


def test_the_name_is_the_utc_time_and_a_short_id(tmp_path):
    """The time of another zone is turned into UTC; the id is cut to eight plain characters."""
    local = NOON.astimezone(timezone(timedelta(hours=8)))
    folder = RunFolder.create(tmp_path / "new" / "runs", local, "AB12-../cd34ef")
    assert folder.path == tmp_path / "new" / "runs" / "20260304T120005Z-ab12cd34"
    assert folder.path.is_dir()


def test_runs_of_the_same_second_do_not_collide(tmp_path):
    """Another id, the same id, or an id that differs only behind the cut: each run has its own folder."""
    ids = ["aaaaaaaa1", "aaaaaaaa2", "aaaaaaaa2", "bbbb", ""]
    names = [RunFolder.create(tmp_path, NOON, run_id).path.name for run_id in ids]
    base = "20260304T120005Z-"
    assert names == [base + end for end in ("aaaaaaaa", "aaaaaaaa-2", "aaaaaaaa-3", "bbbb", "run")]


def test_an_old_run_is_not_touched(tmp_path):
    """A folder whose name is taken keeps its files."""
    first = RunFolder.create(tmp_path, NOON, "same")
    first.write_manifest({"run": 1})
    second = RunFolder.create(tmp_path, NOON, "same")
    assert not second.manifest_path.exists()
    assert first.read_manifest() == {"run": 1}


def test_latest_is_the_newest_run_and_survives_a_move(tmp_path):
    """The link is relative, so a directory of runs copied to another place still knows its latest."""
    out = tmp_path / "runs"
    RunFolder.create(out, NOON, "old").write_manifest({"run": "old"})
    RunFolder.create(out, NOON + timedelta(seconds=1), "new").write_manifest({"run": "new"})
    shutil.move(out, tmp_path / "elsewhere")
    found = RunFolder.open(tmp_path / "elsewhere" / "latest")
    assert found.path == tmp_path / "elsewhere" / "20260304T120006Z-new"
    assert found.read_manifest() == {"run": "new"}
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == [
        "20260304T120005Z-old",
        "20260304T120006Z-new",
        "latest",
    ]


def test_an_opened_run_stays_when_latest_moves_on(tmp_path):
    """A report that takes its time reads one run, not the one that started meanwhile."""
    RunFolder.create(tmp_path, NOON, "one").write_manifest({"run": 1})
    opened = RunFolder.open(tmp_path / "latest")
    RunFolder.create(tmp_path, NOON, "two").write_manifest({"run": 2})
    assert opened.read_manifest() == {"run": 1}


def test_a_latest_that_cannot_move_is_an_error(tmp_path):
    """A directory of that name is not removed, and nobody is left to read the wrong run; no litter stays behind."""
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "mine.txt").write_text("keep")
    with pytest.raises(FolderError, match="choose another --out"):
        RunFolder.create(tmp_path, NOON, "id")
    assert (tmp_path / "latest" / "mine.txt").read_text() == "keep"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("below", [".", "deeper/still"])
def test_an_unwritable_out_is_one_clear_line(tmp_path, below):
    """The message names the directory and the way out."""
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    out = blocker / below
    with pytest.raises(FolderError) as caught:
        RunFolder.create(out, NOON, "id")
    message = str(caught.value)
    assert message.startswith(f"cannot make a run folder in {out}: ")
    assert message.endswith("; choose another --out")
    assert "\n" not in message
    assert "Errno" not in message


def test_open_says_what_is_missing(tmp_path):
    """Nothing there, a dangling link, no run inside, and the directory above the runs are told apart."""
    with pytest.raises(FolderError, match="no run folder at"):
        RunFolder.open(tmp_path / "none")
    (tmp_path / "dangling").symlink_to("gone")
    with pytest.raises(FolderError, match="no run folder at"):
        RunFolder.open(tmp_path / "dangling")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FolderError, match=r"no manifest\.json and no records\.jsonl$"):
        RunFolder.open(tmp_path / "empty")
    RunFolder.create(tmp_path / "runs", NOON, "id").records_path.touch()
    with pytest.raises(FolderError, match=r"did you mean .*runs/latest"):
        RunFolder.open(tmp_path / "runs")
    assert RunFolder.open(tmp_path / "runs" / "latest").records_path.exists()


def test_a_manifest_is_replaced_as_a_whole(tmp_path):
    """Non-ASCII text, lone surrogates and NaN are written as valid JSON; no part file stays."""
    folder = RunFolder.create(tmp_path, NOON, "id")
    folder.write_manifest({"a": 1})
    folder.write_manifest({"model": "千问", "odd": "\ud800", "nan": math.nan})
    assert folder.read_manifest() == {"model": "千问", "odd": "\ud800", "nan": None}
    assert "千问" in folder.manifest_path.read_text(encoding="utf-8")
    assert [path.name for path in folder.path.iterdir()] == ["manifest.json"]


def test_a_failed_replacement_keeps_the_old_manifest(tmp_path):
    """A manifest that cannot be written raises one line and leaves what was there."""
    folder = RunFolder.create(tmp_path, NOON, "id")
    folder.write_manifest({"a": 1})
    folder.manifest_path.with_suffix(".json.part").mkdir()
    with pytest.raises(FolderError, match=r"cannot write .*manifest\.json: Is a directory"):
        folder.write_manifest({"a": 2})
    assert json.loads(folder.manifest_path.read_bytes()) == {"a": 1}


def test_a_broken_manifest_is_named(tmp_path):
    """Missing, cut and foreign manifests are told apart."""
    folder = RunFolder.create(tmp_path, NOON, "id")
    with pytest.raises(FolderError, match="cannot read"):
        folder.read_manifest()
    folder.manifest_path.write_text('{"cut": ')
    with pytest.raises(FolderError, match="not valid JSON"):
        folder.read_manifest()
    folder.manifest_path.write_text("[]")
    with pytest.raises(FolderError, match="does not hold a JSON object"):
        folder.read_manifest()


def test_numbers_that_json_does_not_have_are_absent(tmp_path):
    """NaN of a foreign manifest equals nothing, not even itself: two runs would differ in it."""
    (tmp_path / "manifest.json").write_text('{"a": NaN, "b": [Infinity, 1]}')
    assert RunFolder(tmp_path).read_manifest() == {"a": None, "b": [None, 1]}

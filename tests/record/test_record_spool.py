"""Spools: every row of a worker, in order and on disk first; and the run folder completed from them."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.record import jsonl
from loadkit.record.errors import FolderError
from loadkit.record.folder import RunFolder
from loadkit.record.merge import merge, spools_of
from loadkit.record.record import Record
from loadkit.record.spool import Spool, Spooled, encode

RUN = "abcd-20260304T120005"


def request(number, run_id=RUN):
    return Record(run_id=run_id, request_id=f"{run_id}-0-{number:06d}", worker="w", outcome="ok").to_json()


def sample(at_ms, worker="w"):
    return {"kind": "telemetry", "worker": worker, "at_ms": at_ms, "cell": None}


@pytest.fixture
def folder(tmp_path):
    """A run folder with a manifest and nothing else."""
    made = RunFolder.create(tmp_path / "runs", datetime(2026, 3, 4, tzinfo=UTC), RUN)
    made.write_manifest({"run_id": RUN})
    made.spools_path.mkdir()
    return made


def spool(folder, worker, rows, run_id=RUN):
    made = Spool(folder.spools_path, run_id, worker)
    for row in rows:
        made.append(row)
    made.close()
    return made.path


def test_rows_are_numbered_and_come_back_in_order(tmp_path):
    """Every line has the next number; a reader gets the rows as they were, with run and worker of the file."""
    made = Spool(tmp_path, RUN, "host-1")
    lines = [made.append(row) for row in (request(1), sample(5.0), request(2))]
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]
    assert made.path.name == f"{RUN}-host-1.spool.jsonl"
    read = Spooled(made.path)
    assert (read.run_id, read.worker) == (RUN, "host-1")
    assert list(read) == [request(1), sample(5.0), request(2)]


def test_a_request_that_was_tried_again_has_all_its_attempts(tmp_path):
    """Of a killed worker: those that had ended as they ended, then the one that was cut: the server saw them all."""
    made = Spool(tmp_path, RUN, "w")
    for name in ("a", "b", "c"):
        made.begun({"request_id": name, "run_id": RUN, "cell": "64x1"})
    refused = {"outcome": "rate_limited", "http_status": 429, "start_ms": 0.0, "end_ms": 5.0, "wait_ms": 100.0}
    made.tried("a", [refused])
    made.tried("a", [refused, refused])
    made.tried("b", [refused])
    made.append({**request(9), "request_id": "b"})
    made.tried("nobody", [refused])
    made.close()
    ended, tried, cut = list(Spooled(made.path))
    assert ended["request_id"] == "b"
    outcomes = [[attempt["outcome"] for attempt in row["attempts"]] for row in (tried, cut)]
    assert outcomes == [["rate_limited", "rate_limited", "aborted"], ["aborted"]]
    assert tried["attempts"][:2] == [refused, refused]
    assert {row["outcome"] for row in (tried, cut)} == {"aborted"}


@pytest.mark.parametrize("damage", [None, 5, ["x"], {"outcome": "ok"}])
def test_attempts_that_cannot_be_read_are_none(tmp_path, damage):
    """A damaged row of an attempt leaves the one that was cut."""
    made = Spool(tmp_path, RUN, "w")
    made.begun({"request_id": "a", "run_id": RUN})
    made.tried("a", damage)
    made.close()
    (row,) = Spooled(made.path)
    assert [attempt["outcome"] for attempt in row["attempts"]] == ["aborted"]


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_spool_that_was_cut_gives_all_whole_lines(tmp_path, cut):
    """A killed process loses the line it was writing, no other; the loss is counted."""
    made = Spool(tmp_path, RUN, "w")
    path = made.path
    for number in range(3):
        made.append(request(number))
    made.close()
    data = path.read_bytes()
    path.write_bytes(data[:-cut])
    read = Spooled(path)
    rows = list(read)
    # A line without its line feed is whole all the same.
    assert len(rows) + read.damaged == 3
    assert rows == [request(0), request(1), request(2)][: len(rows)]
    assert read.damaged == (cut > 1)


def test_what_was_in_flight_when_a_worker_was_killed_is_known(tmp_path):
    """A request that was begun and never ended is a record `aborted`, after all others; one that ended is itself."""
    made = Spool(tmp_path, RUN, "w")
    for number in (1, 2):
        made.begun({"run_id": RUN, "request_id": request(number)["request_id"], "cell": "32x1", "phase": "measure"})
    made.append(request(2))
    made.close()
    rows = list(Spooled(made.path))
    assert rows[0] == request(2)
    assert [row["request_id"][-1] for row in rows] == ["2", "1"]
    assert (rows[1]["kind"], rows[1]["outcome"], rows[1]["cell"]) == ("request", "aborted", "32x1")
    assert len(rows[1]["attempts"]) == 1


def test_what_a_worker_that_lives_has_in_flight_is_left_for_another_merge(folder):
    """Its master is dead and it still ends its requests: a merge takes those that are ended and says that it lives; one
    after its end takes the rest as they came out, and not as aborted."""
    made = Spool(folder.spools_path, RUN, "w")
    for number in (1, 2, 3):
        made.begun({"run_id": RUN, "request_id": request(number)["request_id"]})
    made.append(request(1))
    early = merge(folder, spools_of(folder))
    made.append(request(2))
    made.close()
    late = merge(folder, spools_of(folder))
    assert (early.records, early.live, late.records, late.known, late.live) == (1, 1, 2, 1, 0)
    first, second, third = jsonl.read(folder.records_path).records
    assert (first["outcome"], second["outcome"], third["outcome"]) == ("ok", "ok", "aborted")


def test_a_folder_that_a_run_writes_into_is_not_merged_into(folder):
    """The master would write the same rows once more: one line, and nothing is added."""
    path = spool(folder, "w", [request(1)])
    with jsonl.Writer(folder.records_path) as records:
        records.lock()
        with pytest.raises(FolderError, match="another process is writing"):
            merge(folder, [path])
    assert jsonl.read(folder.records_path).records == []
    assert merge(folder, [path]).records == 1


def test_a_file_that_is_no_spool_is_refused(tmp_path):
    """Records, or anything else, are not taken for a spool."""
    path = tmp_path / "records.jsonl"
    path.write_bytes(encode(request(1)))
    with pytest.raises(FolderError, match="not the spool of a loadkit worker"):
        Spooled(path)


def test_values_of_other_libraries_become_builtins():
    """A NumPy number in a row must not stop the worker; NaN becomes null."""
    import numpy as np

    row = {
        "kind": "x",
        "a": np.int64(3),
        "b": np.float64(0.5),
        "c": np.arange(2),
        "d": float("nan"),
        "e": np.float32(2),
    }
    assert json.loads(encode(row)) == {"kind": "x", "a": 3, "b": 0.5, "c": [0, 1], "d": None, "e": 2.0}
    assert encode(row).count(b"\n") == 1
    odd = {"kind": "x", "text": "half \ud83d, line\u2028end", "long": 2**70, "nan": float("inf")}
    assert json.loads(encode(odd)) == {**odd, "nan": None}
    assert len(encode(odd).splitlines()) == 1


def test_a_merge_adds_what_is_missing_once(folder):
    """Rows the master wrote are known; the rest is added; a second merge adds nothing."""
    with jsonl.Writer(folder.records_path) as records:
        records.header(jsonl.header())
        records.write(request(1))
    spool(folder, "w", [request(1), sample(1.0), request(2)])
    spool(folder, "v", [sample(1.0, "v"), request(3)])
    merged = merge(folder, spools_of(folder))
    assert (merged.records, merged.telemetry, merged.known, merged.damaged) == (2, 2, 1, 0)
    again = merge(folder, spools_of(folder))
    assert (again.records, again.telemetry, again.known) == (0, 0, 5)
    read = jsonl.read(folder.records_path)
    assert [row["request_id"][-1] for row in read.records] == ["1", "3", "2"]
    assert read.header["schema"] == jsonl.SCHEMA
    assert "seq" not in read.records[-1]


def test_a_master_that_wrote_nothing_is_completed_with_the_header(folder):
    """The records file made by a merge begins with the header, as any other does."""
    merge(folder, [spool(folder, "w", [request(1)])])
    first = json.loads(folder.records_path.read_text().splitlines()[0])
    assert first["kind"] == "header"


def test_a_spool_of_another_run_is_refused_before_anything_is_written(folder):
    """One foreign spool among several: nothing of any is merged."""
    good = spool(folder, "w", [request(1)])
    foreign = spool(folder, "w", [request(1, "other")], run_id="other")
    with pytest.raises(FolderError, match="belongs to run other"):
        merge(folder, [good, foreign])
    assert not folder.records_path.exists()


def test_a_row_of_another_run_is_left_out(folder):
    """What does not carry the run's id, or an id of its own, is counted as damaged, not merged."""
    odd = [request(1) | {"request_id": name} for name in (["x"], None, 5)]
    path = spool(folder, "w", [request(1), request(2, "other"), *odd, sample({"a": 1}, ["w"])])
    merged = merge(folder, [path])
    assert (merged.records, merged.telemetry, merged.damaged) == (1, 1, 4)


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
def test_a_merge_is_the_union(tmp_path_factory, written, first, second):
    """Whatever the master wrote and however spools overlap, every request is in the run once."""
    base = tmp_path_factory.mktemp("merge")
    made = RunFolder.create(base, datetime(2026, 3, 4, tzinfo=UTC), RUN)
    made.write_manifest({"run_id": RUN})
    made.spools_path.mkdir()
    with jsonl.Writer(made.records_path) as records:
        for number in dict.fromkeys(written):
            records.write(request(number))
    merge(made, [spool(made, "a", map(request, first)), spool(made, "b", map(request, second))])
    ids = [row["request_id"] for row in jsonl.read(made.records_path).records]
    assert sorted(ids) == sorted({request(n)["request_id"] for n in (*written, *first, *second)})

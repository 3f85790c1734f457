"""records.jsonl: what was written is there, whatever happened to the process or to the disk."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.record.errors import FolderError
from loadkit.record.jsonl import Rows, Writer, header, read
from loadkit.record.record import FIELDS, Record

ENDLESS = """
import sys
from pathlib import Path
from loadkit.record.jsonl import Writer, header
from loadkit.record.record import Record
writer = Writer(Path(sys.argv[1]))
writer.header(header())
number = 0
while True:
    writer.write(Record(request_id=str(number), itl_ms=[1.5] * 200))
    print(number, flush=True)
    number += 1
"""

UNTIL_FULL = """
import resource, sys
from pathlib import Path
from loadkit.record.jsonl import FolderError, Writer, read
path = Path(sys.argv[1])
writer = Writer(path)
writer.write({"kind": "request", "request_id": "before"})
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
try:
    writer.write({"kind": "request", "request_id": "cut"})
except FolderError as error:
    print(error)
assert path.stat().st_size == size + 10, "the write was not cut short"
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.write({"kind": "request", "request_id": "after"})
"""


def test_a_file_reads_back(tmp_path):
    """Header, records and other rows come back as written, sorted by kind, in order."""
    path = tmp_path / "records.jsonl"
    with Writer(path) as writer:
        writer.header(header())
        writer.write(Record(request_id="a", ttft_ms=1.25, flags=["cold"]))
        writer.write({"kind": "hub", "lag_ms": 0.5})
        writer.write(Record(request_id="b"))
    reading = read(path)
    assert reading.header == header()
    assert reading.records == [
        Record(request_id="a", ttft_ms=1.25, flags=["cold"]).to_json(),
        Record(request_id="b").to_json(),
    ]
    assert reading.telemetry == [{"kind": "hub", "lag_ms": 0.5}]
    assert reading.damaged == 0


def test_each_line_is_in_the_file_before_write_returns(tmp_path):
    """Nothing waits in a buffer of the process."""
    path = tmp_path / "records.jsonl"
    writer = Writer(path)
    for number in range(3):
        writer.write({"kind": "request", "request_id": number})
        assert path.read_bytes().count(b"\n") == number + 1
    writer.close()
    writer.close()


def test_kill_9_loses_at_most_the_line_being_written(tmp_path):
    """Every record whose write returned is whole in the file."""
    path = tmp_path / "records.jsonl"
    command = [sys.executable, "-c", ENDLESS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = [int(process.stdout.readline()) for _ in range(50)]
        process.kill()
        told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    reading = read(path)
    ids = [int(record["request_id"]) for record in reading.records]
    assert ids == list(range(len(ids)))
    assert len(ids) >= len(told)
    assert reading.damaged <= 1


def test_a_killed_file_is_continued_on_a_new_line(tmp_path):
    """A resumed run does not glue its first record to half of the last one, and writes no second header."""
    path = tmp_path / "records.jsonl"
    with Writer(path) as writer:
        writer.header({"kind": "header", "schema": "first"})
        writer.write({"kind": "request", "request_id": "whole"})
    with path.open("ab") as file:
        file.write(b'{"kind":"request","request_id":"hal')
    with Writer(path) as writer:
        writer.header({"kind": "header", "schema": "second"})
        writer.write({"kind": "request", "request_id": "next"})
    reading = read(path)
    assert [record["request_id"] for record in reading.records] == ["whole", "next"]
    assert reading.header["schema"] == "first"
    assert reading.damaged == 1


def test_a_full_disk_is_one_clear_error():
    """The message names the file, the reason and what to do, on one line."""
    with Writer(Path("/dev/full")) as writer, pytest.raises(FolderError) as caught:
        writer.write(Record())
    message = str(caught.value)
    assert message.startswith("cannot write /dev/full: No space left on device")
    assert "--resume" in message
    assert "\n" not in message


def test_a_write_cut_short_by_the_disk_spoils_no_other_line(tmp_path):
    """Lines before the full disk stay whole; once there is room again, lines are whole again."""
    path = tmp_path / "records.jsonl"
    done = subprocess.run([sys.executable, "-c", UNTIL_FULL, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cannot write") == 1
    reading = read(path)
    assert [record["request_id"] for record in reading.records] == ["before", "after"]
    assert reading.damaged == 1


def test_a_file_that_cannot_be_opened_is_a_folder_error(tmp_path):
    """Writer and reader speak to people, not in tracebacks."""
    with pytest.raises(FolderError, match="No such file or directory"):
        Writer(tmp_path / "missing" / "records.jsonl")
    with pytest.raises(FolderError, match=r"cannot read .*No such file or directory"):
        read(tmp_path / "missing.jsonl")


def test_damage_is_counted_and_skipped(tmp_path):
    """Garbage, foreign JSON, broken UTF-8, absurd nesting and a cut last line cost themselves only."""
    path = tmp_path / "records.jsonl"
    lines = [
        b"garbage",
        b"[1, 2]",
        b'{"no": "kind"}',
        b'{"kind": 7}',
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b"",
        b'{"kind":"request","request_id":"good"}',
        b'{"kind":"request","request_id":"cu',
    ]
    path.write_bytes(b"\n".join(lines))
    reading = read(path)
    assert [record["request_id"] for record in reading.records] == ["good"]
    assert reading.damaged == 7


def test_records_of_other_versions_can_be_read(tmp_path):
    """Unknown keys are kept, missing keys are absent; lists stay lists and are not shared between records."""
    path = tmp_path / "records.jsonl"
    path.write_text('{"kind":"request","ttft_ms":5,"new_key":[1]}\n{"kind":"request"}\n')
    first, second = read(path).records
    assert first["new_key"] == [1]
    assert first["ttft_ms"] == 5
    assert set(FIELDS) <= set(second)
    assert second["ttft_ms"] is None
    first["flags"].append("cold")
    assert second["flags"] == []


def test_numbers_json_does_not_have_become_null(tmp_path):
    """A NaN or an infinity neither loses the record nor makes the file invalid JSON; nor does one found in a file."""
    path = tmp_path / "records.jsonl"
    with Writer(path) as writer:
        writer.write(Record(ttft_ms=math.nan, itl_ms=[1.0, math.inf], attempts=[{"wait_ms": -math.inf}]))
    with path.open("a") as file:
        file.write('{"kind":"request","ttft_ms":NaN}\n')
    assert b"NaN" not in path.read_bytes().splitlines()[0]
    first, second = read(path).records
    assert (first["ttft_ms"], first["itl_ms"], first["attempts"]) == (None, [1.0, None], [{"wait_ms": None}])
    assert second["ttft_ms"] is None


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_of_a_server_fits_on_one_ascii_line(tmp_path_factory, text):
    """Line separators of any alphabet, NUL and lone surrogates survive, and no other splitter sees a line end."""
    path = tmp_path_factory.mktemp("any") / "records.jsonl"
    with Writer(path) as writer:
        writer.write(Record(error_message=text))
    data = path.read_bytes()
    assert data.isascii()
    assert len(data.decode("ascii").splitlines()) == 1
    assert json.loads(data)["error_message"] == text
    assert read(path).records[0]["error_message"] == text


def test_rows_come_one_at_a_time(tmp_path):
    """The first row is there before the file has been read; header and damage are known when it has."""
    path = tmp_path / "records.jsonl"
    with Writer(path) as writer:
        writer.header(header())
        writer.write({"kind": "request", "request_id": "a"})
        writer.write({"kind": "load", "cpu": 0.5})
    with path.open("ab") as file:
        file.write(b"garbage\n\n  \n" + b'{"kind":"request","cut')
    rows = Rows(path)
    taken = iter(rows)
    assert next(taken) == {"kind": "request", "request_id": "a"}
    assert rows.damaged == 0
    assert list(taken) == [{"kind": "load", "cpu": 0.5}]
    assert (rows.header, rows.damaged) == (header(), 2)


def test_no_file_gives_no_rows_and_an_unreadable_one_an_error(tmp_path):
    """A run may not have written the file; one that cannot be read is an error for people."""
    assert list(Rows(None)) == []
    with pytest.raises(FolderError, match="cannot read"):
        list(Rows(tmp_path))


in_64_bits = st.integers(-(2**63), 2**64 - 1)
scalars = st.none() | st.booleans() | st.floats() | in_64_bits | st.text(st.characters(exclude_categories=()))
trees = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(trees)
def test_lines_are_read_as_the_standard_library_reads_them(tmp_path_factory, value):
    """Whatever a JSON writer can put into a line comes out as json.loads gives it, NaN and infinity as None."""
    path = tmp_path_factory.mktemp("any") / "records.jsonl"
    line = json.dumps({"kind": "other", "value": value})
    path.write_text(line + "\n")
    (row,) = read(path).telemetry
    assert row == json.loads(line, parse_constant=lambda name: None)


@pytest.mark.parametrize("value", ["\u2028é", 2**70, float("nan"), "\ud800", [float("inf"), 1.5]])
def test_a_line_is_ascii_and_reads_back_whatever_it_holds(tmp_path, value):
    """Text beyond ASCII, half a surrogate and great integers take the slow way and come back; NaN is null."""
    path = tmp_path / "records.jsonl"
    with Writer(path) as writer:
        writer.write({"kind": "request", "error_message": value})
    line = path.read_bytes()
    assert line.isascii()
    (row,) = read(path).records
    expected = [None, 1.5] if isinstance(value, list) else None if value != value else value
    assert row["error_message"] == expected

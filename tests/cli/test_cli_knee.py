"""`loadkit knee`: of a run, and of anyone's table."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from loadkit.record.names import ExitCode

TIERS = (128, 256, 512, 1024, 1536, 2048, 3072)
LEVELS = (2, 4, 8, 16)
START = datetime(2026, 1, 1, tzinfo=UTC)
# Published averages of a 70B model on two accelerators, 5000 tokens in and 500 out, TTFT in s and output tokens per s.
PUBLISHED = """# title: 70B, 5000 in and 500 out
# axis: concurrency
x,ttft_s,throughput
1,0.40677,51.67
5,0.5467,218.48
25,0.68869,623.4
50,0.83451,814.37
100,7.99625,917.26
150,34.79422,920.9
200,61.68022,920.54
250,88.5,921
"""


def record(tier, level, turn, ttft, at):
    return {
        "kind": "request", "run_id": "r", "phase": "measure", "outcome": "ok", "cell": f"{tier}x{level}",
        "tier_tokens": tier, "concurrency": level, "round": turn, "visit": 0, "prompt_tokens": tier,
        "output_tokens": 10, "ttft_ms": ttft, "done_ms": ttft + 90, "e2e_ms": ttft + 90, "tpot_ms": 10.0,
        "itl_ms": [10.0] * 9, "timestamp": (START + timedelta(seconds=at)).isoformat(), "hub_lag_max_ms": 0.1,
    }  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A run folder: a ladder bent at 1000 tokens, and 512 tokens at four concurrencies with an objective."""
    rows = [
        record(tier, 1, turn, (20 + 0.1 * tier + 0.4 * max(0, tier - 1000)) * (1 + 0.01 * (turn % 3)), 100 * turn + i)
        for turn in range(1, 6)
        for i, tier in enumerate(TIERS)
    ]
    rows += [
        record(512, level, turn, 70.0 + 30 * max(0, level - 4), 10_000 * level + turn)
        for level in LEVELS
        for turn in range(1, 6)
        for _ in range(level)
    ]
    path = tmp_path / "run"
    path.mkdir()
    (path / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [{"kind": "header"}, *rows]))
    (path / "manifest.json").write_text(json.dumps({"plan": {"slo": "ttft=100ms"}}))
    return path


def test_a_run_gives_knees_map_and_frontier(loadkit, folder):
    """All three tables and the sentences, in 80 columns, and nothing is written into the folder."""
    before = sorted(folder.iterdir())
    done = loadkit("knee", str(folder), COLUMNS="80")
    assert (done.returncode, done.stderr) == (ExitCode.COMPLETE, "")
    assert sorted(folder.iterdir()) == before
    assert max(map(len, done.stdout.splitlines())) <= 80
    text = " ".join(done.stdout.split())
    assert "1 stream TTFT hinge" in text
    assert "512 tokens throughput" in text
    assert "TTFT bends at " in text
    assert "Where the objectives hold: " in text
    assert "at 512 up to 4 streams (ttft.p95 is missed at 8)" in text
    assert [line.count(" x") for line in done.stdout.splitlines() if line.startswith("512 ")][-2:-1] == [2]


def test_one_axis_is_printed_alone(loadkit, folder):
    """--axis length leaves concurrency out, and the other way round."""
    length = loadkit("knee", str(folder), "--axis", "length").stdout
    other = loadkit("knee", str(folder), "--axis", "concurrency").stdout
    assert "1 stream" in length
    assert "throughput" not in length
    assert "throughput" in other
    assert "1 stream  TTFT" not in other


def test_json_is_the_knee_of_the_summary(loadkit, folder):
    """The same numbers as summary.json has, or one axis of them."""
    whole = json.loads(loadkit("knee", str(folder), "--json").stdout)
    assert loadkit("report", str(folder)).returncode == ExitCode.COMPLETE
    assert whole == json.loads((folder / "summary.json").read_text())["knee"]
    assert (whole["length"]["kind"], whole["length"]["ci"][0] < 1000 < whole["length"]["ci"][1]) == ("hinge", True)
    assert "concurrency" not in json.loads(loadkit("knee", str(folder), "--json", "--axis", "length").stdout)


def test_the_reports_of_a_run_have_its_sentence(loadkit, folder):
    """Terminal and report.md end on the same sentence, the growth before it."""
    done = loadkit("report", str(folder), COLUMNS="80")
    knee = json.loads((folder / "summary.json").read_text())["knee"]
    text = " ".join(done.stdout.split())
    assert text.index("TTFT grows with the prompt") < text.index(knee["sentence"])
    assert "TTFT bends at" in (folder / "report.md").read_text()


def test_a_table_needs_no_options_where_it_names_its_columns(loadkit, tmp_path):
    """Two metrics over concurrency: the queue of slots near 86 and N90 between 50 and 75."""
    (tmp_path / "table.csv").write_text(PUBLISHED)
    done = loadkit("knee", "--csv", "table.csv", COLUMNS="80")
    assert (done.returncode, done.stderr) == (ExitCode.COMPLETE, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "TTFT bends at " in done.stdout
    waits, rates = json.loads(loadkit("knee", "--csv", "table.csv", "--json").stdout)["curves"]
    assert (waits["metric"], waits["kind"], rates["metric"], rates["kind"]) == (
        "ttft", "hinge", "throughput", "saturation",
    )  # fmt: skip
    assert 50 < waits["knee"] <= 100
    assert 50 < rates["knee"] < 75


def test_options_name_what_a_table_does_not(loadkit, tmp_path):
    """Columns, axis and metric by hand; the header of a column is text of a stranger and is printed inert."""
    rows = "".join(f"{n},{40 + 0.1 * n},{41 + 0.1 * n}\n" for n in TIERS)
    (tmp_path / "t.csv").write_text(f"n,a\x1b[31m,b\n{rows}")
    words = ["--x", "n", "--y", "a\x1b[31m", "--y", "b", "--axis", "length", "--metric", "ttft"]
    done = loadkit("knee", "--csv", "t.csv", *words)
    assert "No knee between 128 and 3072 tokens" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-run"], "no-such-run"),
        (["--csv", "none.csv"], "cannot read none.csv"),
        (["--csv", "bad.csv"], "has no line of column names"),
        (["--csv", "plain.csv"], "give --axis"),
        (["run", "--csv", "plain.csv"], "keep one"),
        (["run", "--x", "n"], "go with --csv"),
        (["--csv", "plain.csv", "--axis", "width"], "--axis"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_2(loadkit, tmp_path, words, said):
    """Bad input of every kind says in one line what to change."""
    (tmp_path / "bad.csv").write_bytes(b"\x00\x01\x02 not a table")
    (tmp_path / "plain.csv").write_text("x,ttft\n1,2\n")
    done = loadkit("knee", *words)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr


def test_an_empty_run_says_so(loadkit, tmp_path):
    """A folder without records is a run of nothing."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "records.jsonl").write_text(json.dumps({"kind": "header"}) + "\n")
    done = loadkit("knee", "run")
    assert done.returncode == ExitCode.COMPLETE
    assert "No knee was looked for" in done.stdout


def test_records_of_another_schema_are_said_to_be(loadkit, folder):
    """The knee of what can be read, and a line that a field may mean something else."""
    path = folder / "records.jsonl"
    path.write_text(json.dumps({"kind": "header", "schema": "loadkit-records/9"}) + "\n" + path.read_text())
    done = loadkit("knee", str(folder))
    assert done.returncode == ExitCode.COMPLETE
    assert "records.jsonl says it is loadkit-records/9" in done.stdout

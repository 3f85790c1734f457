"""analyze, diff and compare-definitions: verbs that read what was measured and measure nothing."""

import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loadkit.cli import main as entry
from loadkit.record import jsonl
from loadkit.record.names import ExitCode
from loadkit.record.record import Record

GOLDEN = Path(__file__).parents[1] / "analysis" / "golden" / "eng_ctxscale.json"
START = datetime(2026, 1, 1, tzinfo=UTC)


def manifest(**plan):
    """What a manifest says of a small run."""
    cells = [{"tier_tokens": 128, "concurrency": 1}]
    settings = {"cells": cells, "seed": 7, "max_tokens": 5, "temperature": 0.0, "filler": "en", "ignore_eos": False}
    return {
        "run_id": "run-1",
        "plan": settings | plan,
        "endpoint": {"base_url": "http://h/v1", "model": "m"},
        "host": {"machine": "x86_64", "cpus": 2},
        "visits": [],
    }


def record(i, ttft):
    """One measured answer of five tokens, 10 ms apart."""
    last = ttft + 40
    return Record(
        run_id="run-1",
        request_id=f"r{i}",
        model="m",
        endpoint="e",
        cell="128x1",
        tier_tokens=128,
        target_tokens=128,
        concurrency=1,
        round=i + 1,
        visit=i,
        phase="measure",
        timestamp=(START + timedelta(seconds=i)).isoformat(),
        outcome="ok",
        hub_lag_max_ms=0.1,
        prompt_tokens=128,
        prompt_tokens_source="usage",
        bos_tokens=1,
        output_tokens=5,
        ttft_ms=ttft,
        ttft_content_ms=ttft,
        last_token_ms=last,
        finish_ms=last,
        usage_ms=last + 20,
        done_ms=last + 20,
        e2e_ms=last,
        decode_ms=40.0,
        tpot_ms=10.0,
        itl_ms=[10.0] * 4,
        decode_tokens_per_s=100.0,
        prefill_tokens_per_s=128000 / ttft,
        unit_price_ms=ttft / 127,
    )


@pytest.fixture
def run_of(tmp_path):
    """Makes a run folder: run_of(name, [ttft, ...], **plan) -> path."""

    def make(name, times, **plan):
        folder = tmp_path / name
        folder.mkdir()
        with jsonl.Writer(folder / "records.jsonl") as writer:
            writer.header(jsonl.header())
            for i, ttft in enumerate(times):
                writer.write(record(i, ttft))
        (folder / "manifest.json").write_text(json.dumps(manifest(**plan)))
        return str(folder)

    return make


@pytest.fixture
def said(capsys, monkeypatch):
    """Runs a verb in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        code = entry.main(list(words))
        sys.stdout.flush()
        return code, *capsys.readouterr()

    return run


SLOW = [200.0 + n for n in range(6)]
FAST = [100.0 + n for n in range(6)]


def test_the_reference_rows_are_printed(said):
    """`loadkit analyze eng_ctxscale.json --bos 1`: the eight prices, within 80 columns, warned of target lengths."""
    code, out, err = said("analyze", str(GOLDEN), "--bos", "1")
    assert (code, err) == (ExitCode.COMPLETE, "")
    for price in ("65.53", "66.63", "68.66", "68.36", "70.92", "71.26", "169.3", "184.6"):
        assert f" {price} " in out
    assert "80.6 instead of 65.53 ms per token in 100x1 (+23.0 %)" in " ".join(out.split())
    assert " 80.6 " not in next(line for line in out.splitlines() if "100 ?" in line)
    assert max(map(len, out.splitlines())) <= 80


def test_bos_is_asked_for(said):
    """Without --bos: exit code 2 and one line with the option."""
    code, out, err = said("analyze", str(GOLDEN))
    assert (code, out, err.count("\n")) == (ExitCode.USAGE, "", 1)
    assert "--bos N" in err


def test_explain_prints_formula_and_inputs(said):
    """Every number on a line of its own, with what it was made of and the row it came from."""
    _, out, _ = said("analyze", str(GOLDEN), "--bos", "1", "--explain")
    line = "ttft_ms / (prompt_tokens - bos_tokens - cached_tokens); ttft_ms 8060, prompt_tokens 124, bos_tokens 1"
    assert f"100x1 unit_price_ms p50 = 65.5285: {line}" in out
    assert "[row 1]" in out


def test_a_run_is_analysed_as_reported(said, run_of):
    """A run folder and its JSON: the summary with prices, warnings and the trace, valid JSON throughout."""
    folder = run_of("a", FAST)
    code, out, _ = said("analyze", folder, "--json", "--explain")
    found = json.loads(out)
    (group,) = found["groups"]
    assert (code, found["kind"], group["group"]["model"]) == (ExitCode.COMPLETE, "ours", "m")
    assert group["summary"]["cells"][0]["ttft_ms"]["p50"] == 102
    assert {row["request"] for row in group["trace"] if row["statistic"] == "p50"} >= {"r2"}
    _, text, _ = said("analyze", folder)
    assert "Unit price" in text
    assert "the total time gives no unit price" in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["analyze", "nowhere.json"], "cannot read nowhere.json"),
        (["analyze", "."], "is not a run folder"),
        (["analyze", "broken.json"], "broken.json holds no row"),
        (["analyze", str(GOLDEN), "--bos", "-1"], "--bos -1: a count of tokens"),
        (["analyze", str(GOLDEN), "--bos", "one"], "--bos one: a count of tokens such as 0 or 1"),
        (["analyze", str(GOLDEN), "--bos", "1", "--map", "x"], "--map x: give FIELD=COLUMN"),
        (["compare-definitions", "nowhere"], "no run folder at nowhere"),
        (["diff", "nowhere", "nowhere"], "no run folder at nowhere"),
        (["diff", "nowhere"], "the following arguments are required: RUN_B"),
    ],
)
def test_what_cannot_be_read_is_one_line(said, tmp_path, monkeypatch, words, says):
    """Exit code 2, one line."""
    (tmp_path / "broken.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    code, out, err = said(*words)
    assert (code, out, err.count("\n")) == (ExitCode.USAGE, "", 1)
    assert says in err


def test_a_difference_is_named_and_shown(said, run_of):
    """Two runs that differ in one setting, one of them twice as slow to the first token."""
    a, b = run_of("a", FAST), run_of("b", SLOW, ignore_eos=True)
    code, out, err = said("diff", a, b)
    assert (code, err) == (ExitCode.COMPLETE, "")
    assert "The runs differ in one thing, ignore_eos: no against yes." in out
    assert "slower" in out
    assert max(map(len, out.splitlines())) <= 80
    found = json.loads(said("diff", a, b, "--json")[1])
    assert found["differs_in"] == {"name": "ignore_eos", "a": "no", "b": "yes"}
    (cell,) = found["cells"]
    verdicts = {name: metric["verdict"] for name, metric in cell["metrics"].items()}
    assert verdicts == {"ttft_ms": "slower", "tpot_ms": "no difference shown", "e2e_ms": "slower"}


def test_a_repeat_shows_no_difference(said, run_of):
    """A run against itself differs in nothing and shows nothing."""
    a = run_of("a", FAST)
    found = json.loads(said("diff", a, a, "--json")[1])
    assert (found["differs_in"], found["cells"][0]["verdict"]) == (None, "no difference shown")
    assert "a repeat" in said("diff", a, a)[1]


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        ({"max_tokens": 9}, "nothing is compared across max_tokens. The runs differ in max_tokens: 5 against 9"),
        ({"seed": 8}, "prompt seed: 7 against 8; give both runs the same --seed"),
        ({"cells": [{"tier_tokens": 128, "concurrency": 4}]}, "concurrency: 1 against 4"),
        ({"ignore_eos": True, "rounds": 5}, "differ in 2: ignore_eos: no against yes; rounds: nothing against 5"),
    ],
)
def test_what_is_not_comparable_is_refused(said, run_of, plan, says):
    """The guard and a second difference: exit code 2, all that differs in one line."""
    code, out, err = said("diff", run_of("a", FAST), run_of("b", FAST, **plan))
    assert (code, out, err.count("\n")) == (ExitCode.USAGE, "", 1)
    assert says in err


def test_a_run_without_a_manifest_is_not_compared(said, run_of):
    """Nothing says what it ran on, so nothing is guessed."""
    a, b = run_of("a", FAST), run_of("b", FAST)
    (Path(b) / "manifest.json").unlink()
    code, _, err = said("diff", a, b)
    assert (code, err.count("\n")) == (ExitCode.USAGE, 1)
    assert "cannot read" in err


def test_runs_without_a_common_cell(said, run_of):
    """Empty records have no cell: one line."""
    code, _, err = said("diff", run_of("a", FAST), run_of("b", []))
    assert (code, err.count("\n")) == (ExitCode.USAGE, 1)
    assert "no cell in common" in err


def test_definitions_side_by_side(said, run_of):
    """Nine rows a cell, causes after them, all within 80 columns; the JSON has formulas and means."""
    folder = run_of("a", FAST)
    code, out, err = said("compare-definitions", folder)
    assert (code, err) == (ExitCode.COMPLETE, "")
    for tool in ("loadkit", "vLLM bench", "SGLang bench", "genai-bench", "guidellm", "aiperf", "inference-perf",
                 "evalscope", "llmperf"):  # fmt: skip
        assert f"\n{tool} " in out
    assert "TPOT of genai-bench: " in out
    assert "its clock runs on to the usage event" in out
    assert max(map(len, out.splitlines())) <= 80
    tools = {
        tool["name"]: tool for tool in json.loads(said("compare-definitions", folder, "--json")[1])["cells"][0]["tools"]
    }
    assert tools["genai-bench"]["tpot_ms"]["p50"] == 15
    assert tools["loadkit"]["tpot_ms"]["formula"] == "(last token - first token) / (n - tokens of the first event)"


def test_definitions_of_an_empty_run(said, run_of):
    """No request: it is said, and that is all."""
    assert said("compare-definitions", run_of("a", [])) == (0, "No request of any cell was recorded.\n", "")


def test_a_cut_file_is_said_to_be_cut(said, run_of):
    """A run whose last line was cut: what is left is compared, and the line is counted, in both verbs."""
    a, b = run_of("a", FAST), run_of("b", FAST)
    path = Path(b) / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert "1 damaged lines of run B are left out." in said("diff", a, b)[1]
    assert "1 damaged lines of the run are left out." in said("compare-definitions", b)[1]


def test_text_of_a_file_is_shown_and_not_obeyed(said, tmp_path):
    """A model's name with an escape sequence does not reach the terminal."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"model": "\x1b[31mred\u202e", "tokens_without_bos": 9, "ttft_ms": 1.0}]))
    _, out, _ = said("analyze", str(path), "--explain")
    assert "red" in out
    assert "\x1b" not in out
    assert "\u202e" not in out


@pytest.mark.parametrize("verb", ["diff", "compare-definitions", "analyze"])
def test_records_of_another_schema_are_refused(said, run_of, verb):
    """A field may mean something else there: exit code 2 and the schema."""
    path = Path(run_of("a", FAST)) / "records.jsonl"
    path.write_text(path.read_text().replace(jsonl.SCHEMA, "loadkit-records/9", 1))
    code, out, err = said(verb, str(path.parent), *([str(path.parent)] if verb == "diff" else []))
    assert (code, out, err.count("\n")) == (ExitCode.USAGE, "", 1)
    assert "has the schema 'loadkit-records/9'; this version reads" in err


def test_a_pipe_is_not_read_twice(said, tmp_path):
    """The file is read more than once, so a pipe is refused and not waited for."""
    os.mkfifo(tmp_path / "p.csv")
    code, _, err = said("analyze", str(tmp_path / "p.csv"))
    assert (code, err.count("\n")) == (ExitCode.USAGE, 1)
    assert "it is a pipe, a socket or a device" in err

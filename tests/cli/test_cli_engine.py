"""`loadkit engine bench` and `loadkit engine ladder`, as a user starts them, on the small built-in model."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from loadkit.cli import engine_ladder
from loadkit.cli.main import main
from loadkit.record import jsonl
from loadkit.record.folder import RunFolder
from loadkit.record.names import ExitCode

TIERS = [64, 68, 72, 76, 80, 84]


def test_bench_prints_what_a_token_costs(loadkit):
    """The unit price is TTFT over tokens, parallelism is TPOT over it, and machine and model are named."""
    done = loadkit("engine", "bench", "--model", "builtin", "--tokens", "32,64", "--rounds", "2", "--json")
    assert done.returncode == ExitCode.COMPLETE, done.stderr
    found = json.loads(done.stdout)
    assert [row["tokens"] for row in found["prefill"]] == [32, 64]
    for row in found["prefill"]:
        assert row["ttft_ms"] == min(row["rounds_ms"]) > 0
        assert row["unit_price_ms"] == pytest.approx(row["ttft_ms"] / row["tokens"])
    assert found["unit_price_ms"] == found["prefill"][-1]["unit_price_ms"]
    assert found["prefill_parallelism"] == pytest.approx(found["tpot_ms"] / found["unit_price_ms"])
    assert (found["model"], found["prefill_mode"], found["parameters"]) == ("loadkit-builtin", "batched", 9641856)
    assert found["threads"] >= 1
    assert found["blas"]


def test_bench_as_text(loadkit):
    """A line for each length, and the quotient written out."""
    done = loadkit(
        "engine", "bench", "--model", "builtin", "--tokens", "16,24", "--rounds", "1", "--output-tokens", "2"
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "loadkit-builtin: 10 M parameters in float32, random weights"
    assert [line.split()[0] for line in lines if line[:1] == " "] == ["16", "24"]
    assert lines[-1].startswith("prefill_parallelism = TPOT / unit price = ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dims", "gpt-9"), "no dimensions of 'gpt-9' are known; there are: qwen2.5-0.5b, "),
        (("--model", "nowhere"), "no such file or folder"),
        (("--model", "builtin", "--tokens", "40000"), "do not fit the model's window of 32768"),
        ((), "one of the arguments --model --dims is required"),
    ],
)
def test_bench_refuses_in_one_line(loadkit, words, said):
    """Exit code 2, the reason last, no traceback."""
    done = loadkit("engine", "bench", *words)
    assert done.returncode == ExitCode.USAGE
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def record(tier, number, ttft_ms):
    times = {"ttft_ms": ttft_ms, "tpot_ms": 5.0, "output_tokens": 10}
    counts = {"prompt_tokens": tier, "bos_tokens": 0, "cached_tokens": 0}
    about = {"kind": "request", "phase": "measure", "outcome": "ok", "tier_tokens": tier, "round": number}
    return about | counts | times


def test_a_ladder_is_a_run_of_six_lengths_and_leaves_its_table(monkeypatch, tmp_path, capsys):
    """It asks for the engine in the mode named, six tiers at one stream, three rounds, ten tokens; the table is the
    run's records, and the exit code the run's."""
    asked = []

    def start(request):
        asked.append(request)
        folder = RunFolder.create(request.out, datetime.now(UTC), "abc")
        target = {"model": "m", "threads": 1, "prefill_mode": "sequential"}
        host = {"system": "Linux", "machine": "x86_64", "cpus": 2}
        folder.write_manifest({"run_id": "abc", "started_at": "now", "host": host, "target": target})
        with jsonl.Writer(folder.records_path) as writer:
            for cell in request.plan.cells:
                writer.write(record(cell.tier_tokens, 1, 2.0 * cell.tier_tokens))
        return ExitCode.SATURATED

    monkeypatch.setattr(engine_ladder.run, "start", start)
    monkeypatch.chdir(tmp_path)
    words = ["engine", "ladder", "--dims", "qwen2.5-0.5b", "--prefill-mode", "sequential", "--threads", "1"]
    assert main([*words, "--seed", "4"]) == ExitCode.SATURATED
    (request,) = asked
    tiers = [100, 250, 500, 750, 1000, 1500]
    assert [(cell.tier_tokens, cell.concurrency) for cell in request.plan.cells] == [(tier, 1) for tier in tiers]
    assert (request.plan.rounds, request.plan.max_tokens, request.plan.seed) == (3, 10, 4)
    assert (request.target, request.weights) == ("engine", "random:qwen2.5-0.5b")
    assert request.engine == ("--prefill-mode", "sequential", "--seed", "4", "--threads", "1")
    found = json.loads((tmp_path / "runs" / "latest" / "eng_ctxscale.json").read_text("utf-8"))
    assert [row["target_tokens"] for row in found["records"]] == tiers
    assert [row["ttft_s"] for row in found["records"]] == [0.002 * tier for tier in tiers]
    assert [row["unit_price_ms"] for row in found["records"]] == [2.0] * 6
    assert "eng_ctxscale.json" in capsys.readouterr().err


@pytest.mark.quiet
def test_a_ladder_of_the_builtin_model(environ, tmp_path):
    """For real: six tiers give six records with their own TTFT and TPOT, and the manifest names mode and threads."""
    tiers = ",".join(map(str, TIERS))
    command = [sys.executable, "-m", "loadkit.cli.main", "engine", "ladder", "--model", "builtin", "--tiers", tiers]
    command += ["--rounds", "1", "--threads", "1", "--out", "out"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode in (ExitCode.COMPLETE, ExitCode.SATURATED), done.stderr
    folder = RunFolder.open(tmp_path / "out" / "latest")
    found = json.loads((folder.path / "eng_ctxscale.json").read_text("utf-8"))
    assert [row["target_tokens"] for row in found["records"]] == TIERS
    for row in found["records"]:
        assert row["real_tokens"] == row["tokens_with_bos"] == row["target_tokens"]
        assert (row["bos_added"], row["bos_policy"], row["output_tokens"]) == (0, "excluded", 10)
        assert row["ttft_s"] > 0
        assert row["tpot_ms"] > 0
    target = folder.read_manifest()["target"]
    assert (target["kind"], target["prefill_mode"], target["threads"]) == ("engine", "batched", 1)
    assert found["hardware"].endswith("1 threads")


def test_a_ladder_refuses_in_one_line(loadkit):
    """A wrong option or model is told as `loadkit run` tells it."""
    for words, said in (
        (("--tiers", "many"), "unknown tier 'many'"),
        (("--model", "nowhere"), "no such file"),
        (("--x",), "--x"),
    ):
        done = loadkit("engine", "ladder", *words)
        assert done.returncode == ExitCode.USAGE
        assert said in done.stderr
        assert done.stderr.count("\n") == 1

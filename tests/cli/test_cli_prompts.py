"""Runs whose prompts are chosen by options: a tokenizer file, a shared prefix, public texts; and the way they go."""

import json
import os
import socket

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from loadkit.record.names import ExitCode

BASE = ("--target", "sim", "--concurrency", "1", "--max-tokens", "2", "--rounds", "2")


@pytest.fixture
def loadkit(tmp_path, finished_warm):
    """Runs the command line in an empty folder; gives the finished process."""

    def run(*words, **variables):
        left_out = [name for name in os.environ if name.lower().endswith("_proxy") or name.startswith("LOADKIT_")]
        environ = {name: value for name, value in os.environ.items() if name not in left_out} | variables
        return finished_warm(words, cwd=tmp_path, env=environ, timeout=100)

    return run


def folder(tmp_path):
    """Manifest, summary and request records of the latest run."""
    latest = tmp_path / "runs" / "latest"
    rows = [json.loads(line) for line in (latest / "records.jsonl").read_text().splitlines()]
    manifest, summary = (json.loads((latest / name).read_text()) for name in ("manifest.json", "summary.json"))
    return manifest, summary, [row for row in rows if row["kind"] == "request"]


def test_a_tokenizer_file_and_a_shared_prefix(loadkit, tmp_path):
    """Exact to the token by a file that the server's usage proves; wanted cache hits do not spoil the cells."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={sign: i for i, sign in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    cached = '{"sim": {"cached_tokens": 100}}'
    done = loadkit(
        "run", *BASE, "--tiers", "512,9K", "--tokenizer", ".", "--shared-prefix", "0.5", "--filler", "zh",
        "--extra-body", cached,
    )  # fmt: skip
    assert done.returncode in (ExitCode.COMPLETE, ExitCode.SATURATED), done.stderr
    manifest, summary, rows = folder(tmp_path)
    assert "held against 2 pings" in manifest["prompts"]["counter"]
    assert {(row["target_tokens"], row["prompt_tokens"]) for row in rows} == {(512, 512), (9216, 9216)}
    assert {(row["auth"], row["proxied"], row["overhead_tokens"]) for row in rows} == {("none", False, 8)}
    assert all("prefix_cache_hit" in row["flags"] for row in rows)
    assert len({row["prompt_sha256"] for row in rows}) == len(rows)
    reasons = [reason for cell in summary["cells"] for reason in cell["validity"]["reasons"]]
    assert not [reason for reason in reasons if "prefix_cache_hit" in reason]
    assert (manifest["plan"]["shared_prefix"], manifest["check"]["proxied"]) == (0.5, False)


def test_public_prompts_are_sent_and_never_kept(loadkit, tmp_path):
    """Each record has the text's own length and hash; no file of the run holds any of it."""
    texts = [{"prompt": f"{letter * 6}-zqmark " * 32} for letter in "abcde"]
    (tmp_path / "p.json").write_text(json.dumps(texts))
    done = loadkit("run", *BASE, "--tiers", "512", "--prompts", "p.json", "--prompts-are-public")
    assert done.returncode in (ExitCode.COMPLETE, ExitCode.SATURATED), done.stderr
    _, _, rows = folder(tmp_path)
    assert {(row["tier_tokens"], row["target_tokens"], row["prompt_tokens"]) for row in rows} == {(512, 456, 456)}
    assert all(row["prompt_sha256"] and "prompt_truncated" not in row["flags"] for row in rows)
    kept = [path.read_text() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert kept
    assert not [text for text in kept if "-zqmark" in text]


def test_a_proxy_that_is_not_there_is_named(loadkit):
    """Exit code 5 with the variables that are set; `--no-proxy` goes without them."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    proxy = {"http_proxy": f"http://me:pass@127.0.0.1:{port}", "NO_PROXY": "x.org"}
    done = loadkit("check", "http://model.invalid", "--model", "m", **proxy)
    assert (done.returncode, "(through the proxy of http_proxy)" in done.stdout) == (ExitCode.TARGET, True)
    assert "NO_PROXY, http_proxy set" in done.stderr
    assert "pass" not in done.stdout + done.stderr
    done = loadkit("check", "http://model.invalid", "--model", "m", "--no-proxy", **proxy)
    assert (done.returncode, "(direct)" in done.stdout) == (ExitCode.TARGET, True)
    assert "http_proxy" not in done.stderr


def test_a_check_tells_what_it_found(loadkit):
    """URL, model, counting, window, streaming, usage, clocks, prefix cache, in this order."""
    done = loadkit("check", "--target", "sim")
    assert done.returncode == ExitCode.COMPLETE, done.stderr
    first = [line.split(":")[0] for line in done.stdout.splitlines()]
    expected = ["base URL", "model", "prompt tokens", "window", "streaming", "usage", "first token", "prefix cache"]
    assert first == expected
    assert "/v1/chat/completions (direct)" in done.stdout
    assert "prefix cache: none seen" in done.stdout


def test_a_timeout_that_the_pings_show_too_short_is_warned_of(loadkit):
    """50 ms and 0.05 ms a token: 32K takes 1.7 s, so three seconds are too little."""
    done = loadkit("run", *BASE, "--rounds", "1", "--tiers", "32K", "--ttft-timeout", "3")
    assert "warning: --ttft-timeout 3 is under twice the " in done.stderr
    assert "predicted for the first token at 32K" in done.stderr

"""`loadkit engine serve` and `loadkit sim serve` really serve, and `loadkit check` and `loadkit run` find them."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from loadkit.record import jsonl
from loadkit.record.names import ExitCode


@pytest.fixture
def serve(environ, tmp_path):
    """Starts `loadkit VERB serve WORDS`; returns the process and its ready line."""
    started = []

    def start(verb, *words):
        command = [sys.executable, "-m", "loadkit.cli.main", verb, "serve", *words]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environ, **pipes))
        return started[-1], json.loads(started[-1].stdout.readline())

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(("verb", "words"), [("engine", ("--context", "512")), ("sim", ("--model", "known"))])
def test_serving_answers_until_it_is_told_to_end(serve, verb, words):
    """The ready line is the only output, the address answers a request, TERM ends it with exit code 0."""
    process, ready = serve(verb, *words)
    body = {"model": ready["model"], "messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    request = urllib.request.Request(
        f"{ready['url']}/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 3
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == b""
    assert process.wait(20) == 0


@pytest.mark.parametrize("verb", ["engine", "sim"])
def test_options_behind_serve_are_the_servers_own(loadkit, verb):
    """`loadkit VERB serve --help` shows the options of the server, and a wrong one is refused by it with code 2."""
    done = loadkit(verb, "serve", "--help")
    assert done.returncode == 0
    assert "--stdin-guard" in done.stdout
    done = loadkit(verb, "serve", "--port", "none")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "--port" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_check_says_what_it_found(loadkit, sim):
    """Exit code 0; base URL, model, counting, window and streaming, a line each, on standard output."""
    done = loadkit("check", sim("--window", "4096").url)
    assert done.returncode == ExitCode.COMPLETE, done.stderr
    found = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert found["base URL"].startswith("http://127.0.0.1:")
    assert found["model"].startswith("sim ")
    assert found["window"] == "4096"
    assert found["prompt tokens"].startswith("server, held against 2 pings")
    assert found["streaming"].startswith("yes")


def test_check_of_nobody_is_one_line(loadkit):
    """Exit code 5 and the line of a run."""
    done = loadkit("check", "http://127.0.0.1:9")
    assert done.returncode == ExitCode.TARGET
    assert done.stderr.startswith("loadkit: 127.0.0.1:9 cannot be reached: ")
    assert done.stderr.count("\n") == 1


def test_a_run_leaves_a_whole_folder(loadkit, sim, tmp_path):
    """Against a server of ours by URL: every planned request is in the records, and runs/latest points at them."""
    words = ("--tiers", "64,128", "--concurrency", "1,2", "--rounds", "2", "--max-tokens", "4", "--seed", "5")
    done = loadkit("run", sim().url, *words)
    assert done.returncode in (ExitCode.COMPLETE, ExitCode.SATURATED), done.stderr
    latest = tmp_path / "runs" / "latest"
    records = jsonl.read(latest / "records.jsonl").records
    measured = [record for record in records if record["phase"] == "measure"]
    assert len(measured) == 2 * (1 + 2) * 2
    assert {record["prompt_tokens"] for record in measured} == {64, 128}
    assert json.loads((latest / "manifest.json").read_text())["plan"]["seed"] == 5

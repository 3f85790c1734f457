"""A key is in no artefact and no stream of a run, whatever a server does with it."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from loadkit.record import jsonl
from loadkit.record.names import ExitCode

KEY = "lab-Zq7/x+secret%20\"key'-8241907365"
PIECES = {KEY, KEY[:12], KEY[-12:], "secret%20", "8241907365"}


def descendants(pid):
    """Pids of all processes that came of pid, as the system sees them now."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += [child, *descendants(child)]
    return found


def watch(command, **options):
    """Run a command; returns the finished process and every command line seen below it meanwhile."""
    seen = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        while True:
            for pid in [str(process.pid), *descendants(process.pid)]:
                with contextlib.suppress(OSError):
                    seen.add(Path(f"/proc/{pid}/cmdline").read_bytes())
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=0.02)
                return process.returncode, out, err, seen


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_a_key_that_a_server_says_back_is_nowhere(echo, environ, tmp_path, check):
    """401 with the key in the message: exit code 5, the refusal is told, and the key is in no file, stream or argv."""
    words = ["run", echo, "--model", "m1", "--tiers", "64,16K", "--concurrency", "1,2", "--rounds", "1"]
    command = [sys.executable, "-m", "loadkit.cli.main", *words, *([] if check else ["--no-check"])]
    code, out, err, commands = watch(command, cwd=tmp_path, env={**environ, "LOADKIT_API_KEY": KEY})
    assert code == ExitCode.TARGET
    assert b"Bad key in" in err + out
    assert b"Traceback" not in err
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert bool(files) is not check
    held = {path.name: path.read_bytes() for path in files} | {"out": out, "err": err, "argv": b"".join(commands)}
    for name, content in held.items():
        assert [piece for piece in PIECES if piece.encode() in content] == [], name
    if not check:
        records = jsonl.read(tmp_path / "runs" / "latest" / "records.jsonl").records
        assert {(record["outcome"], record["http_status"]) for record in records} == {("auth", 401)}
        assert all("[redacted]" in record["error_message"] for record in records)


def test_a_key_in_the_query_of_a_url_is_not_kept(sim, loadkit, tmp_path):
    """What stands in a URL's query is dropped before anything is sent, and is in no file of the run."""
    url = sim().url + "?access=query-0123456789abcdef"
    done = loadkit("run", url, "--tiers", "64", "--concurrency", "1", "--rounds", "1", "--max-tokens", "2")
    assert "warning: the base URL had a query" in done.stderr
    held = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(held) >= 6
    assert [path.name for path in held if b"query-0123456789" in path.read_bytes()] == []
    assert "query-0123456789" not in done.stdout + done.stderr

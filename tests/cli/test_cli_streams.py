"""Standard streams as a shell may leave them: no traceback, a complete run folder, and an exit code that tells."""

import json
import subprocess
import sys

import pytest

from loadkit.record.names import ExitCode

LIMIT_S = 60


@pytest.fixture
def shell(tmp_path, environ):
    """Runs `loadkit WORDS REDIRECTION` in a shell; the finished process."""

    def run(words, redirection):
        command = f"{sys.executable} -m loadkit.cli.main {words} {redirection}"
        return subprocess.run(
            ["sh", "-c", command],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=tmp_path,
            env=environ,
        )

    return run


@pytest.mark.parametrize("words", ["--version", "--help", "run --help", "explain"])
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-"])
def test_output_that_cannot_be_written_is_one_line_and_no_success(shell, words, redirection):
    """A pipeline must not take an empty file for an answer."""
    done = shell(words, redirection)
    assert done.returncode == ExitCode.USAGE
    (line,) = done.stderr.splitlines()
    assert line.startswith("loadkit: cannot write to standard output: ")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_an_error_nobody_can_be_told_is_still_an_exit_code(shell, redirection):
    """Nothing goes to standard output instead."""
    done = shell("nosuchverb", redirection)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")


@pytest.mark.parametrize(
    ("redirection", "told"), [("2>/dev/full", True), ("2>&-", True), (">/dev/full", False), (">&- 2>&- <&-", False)]
)
def test_a_run_measures_whatever_its_streams_are(shell, sim, tmp_path, redirection, told):
    """The folder is complete: manifest ended, every record there, summary written. A busy machine may have saturated
    the client, which is then the run's own code; a report nobody could read is a failure of its own."""
    done = shell(f"run {sim().url} --tiers 64 --concurrency 1 --rounds 1", redirection)
    assert "Traceback" not in done.stderr
    latest = tmp_path / "runs" / "latest"
    assert json.loads((latest / "manifest.json").read_text())["ended_at"]
    summary = json.loads((latest / "summary.json").read_text())
    assert summary["exit_code"] in (ExitCode.COMPLETE, ExitCode.SATURATED)
    assert done.returncode == (summary["exit_code"] if told else ExitCode.USAGE), done.stderr
    assert summary["damaged_lines"] == 0
    assert summary["cells"][0]["n"] == 1

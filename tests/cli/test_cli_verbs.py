"""Every verb is listed, has help, and tells a wrong option in one line."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loadkit import __version__
from loadkit.cli import main as entry
from loadkit.record.names import ExitCode

NO_VERBS = {"__init__", "main", "streams", "engine_ladder"}  # the last is a verb of `engine`
FILES = {path.stem for path in Path(entry.__file__).parent.glob("*.py")}
MODULES = {name.replace("_", "-") for name in FILES - NO_VERBS}


def test_every_module_of_the_room_is_a_verb():
    """The table of verbs and the modules of the room are the same names."""
    assert set(entry.VERBS) == MODULES


@pytest.mark.parametrize("verb", sorted(entry.VERBS))
def test_every_verb_has_help_and_is_listed(verb, capsys):
    """`loadkit --help` lists it; `loadkit VERB --help` says what it does and how it is called."""
    assert entry.main(["--help"]) == ExitCode.COMPLETE
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith(f"  {verb} ")] == [entry.VERBS[verb]]
    with pytest.raises(SystemExit) as left:
        entry.main([verb, "--help"])
    out = capsys.readouterr().out
    assert left.value.code == 0
    assert out.startswith(f"usage: loadkit {verb}")
    summary = importlib.import_module(f"loadkit.cli.{verb.replace('-', '_')}").__doc__.split("\n")[0]
    assert summary.split(":")[0].split("`")[0].strip() in " ".join(out.split())


def test_without_a_verb_the_list_is_shown(capsys):
    """No verb is a usage error, and what is printed is what helps."""
    assert entry.main([]) == ExitCode.USAGE
    assert "usage: loadkit VERB" in capsys.readouterr().out


def test_the_version(capsys):
    """`loadkit --version` names the program and its version."""
    assert entry.main(["--version"]) == ExitCode.COMPLETE
    assert capsys.readouterr().out == f"loadkit {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "no verb 'rnu'; there are: run, check"),
        (["two\nlines"], "no verb"),
        (["run", "--bogus"], "unrecognized arguments: --bogus; `loadkit run --help`"),
        (["run", "--tiers"], "argument --tiers/--lengths: expected one argument"),
        (["run", "http://h", "http://i"], "unrecognized arguments: http://i"),
        (["report", "a", "b"], "unrecognized arguments: b"),
        (["explain", "rate_limitd"], "did you mean rate_limited?"),
        (["explain", "no-such-thing"], "no outcome, flag or status code"),
    ],
)
def test_a_wrong_word_is_one_line(words, says, capsys):
    """Exit code 2, nothing on standard output, one line that names the word."""
    assert entry.main(words) == ExitCode.USAGE
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("loadkit: ")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["rate_limited", "429", "prefix-cache-hit", None])
def test_explain_numbers_the_causes(name, capsys):
    """An outcome, a status code, a flag with dashes, or nothing: causes in checking order, numbered."""
    assert entry.main(["explain", *([name] if name else [])]) == ExitCode.COMPLETE
    lines = capsys.readouterr().out.partition("\n\n")[0].splitlines()
    assert len(lines) >= 2
    assert [line.split(".")[0] for line in lines] == [str(n + 1) for n in range(len(lines))]


def test_ctrl_c_is_no_traceback(capsys, monkeypatch):
    """An interrupt outside a run is one line and the code of a stopped run."""

    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr("loadkit.cli.explain.main", interrupted)
    assert entry.main(["explain"]) == ExitCode.STOPPED
    assert capsys.readouterr().err == "loadkit: stopped\n"


def test_a_reader_that_leaves_is_no_error():
    """`loadkit explain | head -0`: nobody reads, nobody complains."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "loadkit.cli.main", "explain"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")

"""`loadkit curl`: the command a shell can run, which is the request a run sends, and never its key."""

import json
import os
import subprocess
import sys
from itertools import pairwise

import pytest

from loadkit.call.ask import request_headers
from loadkit.cli.main import main
from loadkit.plan import endpoints_file
from loadkit.record.names import ExitCode

SECRET = "sk-test-0123456789abcdefghij"
FILE = """
[endpoints.lab]
base_url = "https://10.0.0.5:8000/v1"
model = "it's $HOME"
key_env = "LAB_KEY"
headers = { X-Team = "a b $c `d`" }
extra_body = { top_k = 1 }

[endpoints.claude]
base_url = "https://a.test"
model = "m"
protocol = "anthropic"
key_file = "my 'key'"
"""


@pytest.fixture
def curl(tmp_path, monkeypatch, capsys):
    """Runs the verb in a folder with endpoints.toml; gives exit code and both streams, and holds that no key is in."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("LOADKIT_", "OPENAI_", "ANTHROPIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("LAB_KEY", SECRET)
    (tmp_path / "endpoints.toml").write_text(FILE)
    key_file = tmp_path / "my 'key'"
    key_file.write_text(f"{SECRET}\n")
    key_file.chmod(0o600)

    def run(*words):
        code = main(["curl", *words])
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        return code, out, err

    return run


@pytest.fixture
def shell(tmp_path):
    """Runs a printed command in a shell with a curl that tells its arguments."""
    program = tmp_path / "bin" / "curl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)

    def arguments(command, **variables):
        path = {"PATH": f"{program.parent}:{os.environ['PATH']}", "LAB_KEY": SECRET}
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, env=path | variables, check=True)
        return json.loads(done.stdout)

    return arguments


def after(arguments, option):
    """The values of an option."""
    return [value for name, value in pairwise(arguments) if name == option]


def test_the_shell_sends_the_headers_and_body_of_a_run(curl, shell, tmp_path):
    """The same header lines as the measured request with the key put in by the shell, and a body that is JSON."""
    code, out, err = curl("--endpoint", "lab", "--max-tokens", "7", "--header", "X-More=1")
    assert code == ExitCode.COMPLETE
    assert '"Authorization: Bearer $LAB_KEY"' in out
    arguments = shell(out)
    assert "https://10.0.0.5:8000/v1/chat/completions" in arguments
    endpoint = endpoints_file.load(tmp_path / "endpoints.toml")["lab"]
    expected = {**request_headers(endpoint, SECRET), "X-More": "1"}
    assert after(arguments, "-H") == [f"{name}: {value}" for name, value in expected.items()]
    (data,) = after(arguments, "--data-raw")
    body = json.loads(data)
    assert (body["model"], body["max_tokens"], body["stream"], body["top_k"]) == ("it's $HOME", 7, True, 1)
    assert "sample text stands for the prompt" in err


def test_a_key_file_is_read_by_the_shell(curl, shell, tmp_path):
    """Its path may need quoting; anthropic has its own header."""
    _, out, _ = curl("--endpoint", "claude")
    assert f"x-api-key: {SECRET}" in after(shell(f"cd '{tmp_path}'\n{out}"), "-H")


def test_a_key_that_is_not_set_is_only_warned_of(curl, monkeypatch):
    """Nothing is sent."""
    monkeypatch.delenv("LAB_KEY")
    code, out, err = curl("--endpoint", "lab")
    assert (code, "$LAB_KEY" in out, "LAB_KEY is not set" in err) == (ExitCode.COMPLETE, True, True)


def test_a_data_file_holds_the_whole_body(curl, shell, tmp_path):
    """A prompt of about the first tier, the same for the same seed; the command names the file."""
    words = ("http://h", "--model", "m", "--tiers", "1K", "--seed", "1", "--data-file", "it's.json")
    _, out, err = curl(*words)
    assert after(shell(out), "--data-binary") == ["@it's.json"]
    first = (tmp_path / "it's.json").read_bytes()
    text = json.loads(first)["messages"][0]["content"]
    assert 600 < len(text.split()) < 900
    assert "not counted by the server" in err
    curl(*words)
    assert (tmp_path / "it's.json").read_bytes() == first


@pytest.mark.parametrize(
    ("variables", "words", "expected"),
    [
        ({}, (), []),
        ({"HTTP_PROXY": "http://u:pass@p:1"}, (), ["--proxy", "http://u:pass@p:1"]),
        ({"HTTP_PROXY": "http://u:pass@p:1"}, ("--no-proxy",), ["--noproxy", "*"]),
        ({"http_proxy": "http://p:1", "no_proxy": "h"}, (), ["--noproxy", "*"]),
    ],
)
def test_it_goes_the_way_a_run_goes(curl, shell, monkeypatch, variables, words, expected):
    """curl reads other spellings of proxy variables than loadkit, so the command says it; passwords stay variables."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _, out, _ = curl("http://h", "--model", "m", *words)
    assert "pass" not in out
    arguments = shell(out, **variables)
    found = [word for i, word in enumerate(arguments) if "proxy" in word or (i and "proxy" in arguments[i - 1])]
    assert found == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "needs a URL or --endpoint NAME"),
        (("http://h",), "--model"),
        (("http://h", "--model", "m", "--data-file", "no/such/folder"), "cannot be written"),
        (("http://h", "--model", "m", "--tiers", "16", "--data-file", "x"), "no room"),
    ],
)
def test_what_is_missing_is_one_line(curl, words, said):
    """Exit code 2."""
    code, out, err = curl(*words)
    assert (code, out) == (ExitCode.USAGE, "")
    assert said in err.splitlines()[-1]

"""Bad input of `loadkit run`: one clear line that says what to change, the right exit code, and nothing left behind."""

import os
import sys

import pytest

from loadkit.cli import main as entry
from loadkit.record.names import ExitCode

ENDPOINTS = """
[endpoints.lab]
base_url = "http://127.0.0.1:9"
model = "m1"
key_env = "LAB_API_KEY"

[endpoints.small]
base_url = "http://127.0.0.1:9"
model = "m1"
window = "8K"
"""
URL = "http://127.0.0.1:9"
OPTIONS = [
    ("unknown tier", (URL, "--tiers", "4Q"), "unknown tier '4Q': a tier is a whole number of tokens"),
    ("empty tiers", (URL, "--tiers", ""), "--tiers is empty: give it a value or leave it out"),
    ("empty tier", (URL, "--tiers", "4K,"), "unknown tier '': a tier is"),
    ("empty URL", ("",), "URL is empty: "),
    ("blank URL", ("--url", "  "), "URL is empty: "),
    ("empty endpoint", ("--endpoint", ""), "--endpoint is empty: "),
    ("a path too long", (URL, "--tokenizer", "x" * 5000), "there is no such file"),
    ("a file name too long", ("--endpoints", "x" * 5000), "there is no such file"),
    ("key as a tier", (URL, "--tiers", "sk-abcdefabcdef1234"), "unknown tier '[redacted]'"),
    ("key as an option", (URL, "--sk-abcdefabcdef1234"), "[redacted]"),
    ("tier of zero", (URL, "--tiers", "0"), "unknown tier '0'"),
    ("huge tier", (URL, "--tiers", "999999999999M"), "at most 16M"),
    ("huge concurrency", (URL, "--concurrency", "100000"), "must be whole numbers from 1 to 10000"),
    ("no concurrency", (URL, "--concurrency", "0"), "must be whole numbers"),
    ("rounds", (URL, "--rounds", "many"), "--rounds 'many': must be a whole number"),
    ("bad JSON", (URL, "--extra-body", "{top_k: 1}"), "--extra-body: must be a JSON object"),
    ("a list", (URL, "--extra-body", "[1]"), "--extra-body: must be a JSON object"),
    ("own field", (URL, "--extra-body", '{"model": "x"}'), "use --model"),
    ("key in a header", (URL, "--header", "Authorization=Bearer abcdefgh1234"), "name its variable in `key_env`"),
    ("no equals sign", (URL, "--header", "X-Team"), "a header is NAME=VALUE"),
    ("two URLs", (URL, "--url", "http://127.0.0.1:8"), "two different URLs are given: keep one"),
    ("URL and endpoint", (URL, "--endpoint", "lab"), "a URL and --endpoint are both given: keep one"),
    ("no scheme", ("127.0.0.1:8000",), "must begin with http:// or https://"),
    ("no host", ("http://",), "names no host"),
    ("doubled version", ("http://127.0.0.1:9/v1/v1",), "version twice"),
    ("password", ("http://me:secretword@127.0.0.1:9",), "holds a user or password"),
    ("protocol", (URL, "--protocol", "grpc"), "--protocol 'grpc': must be one of openai-chat"),
    ("plan", (URL, "--plan", "short"), "must be long or edge"),
    ("slo", (URL, "--slo", "ttft=fast"), "--slo: "),
    ("timeout", (URL, "--connect-timeout", "0"), "--connect-timeout '0'"),
    ("too many tokens", (URL, "--plan", "long"), "add --yes to run it"),
    ("no such endpoint", ("--endpoint", "lub"), "there is no endpoint 'lub'; it has lab, small"),
    ("missing key", ("--endpoint", "lab"), "the key variable LAB_API_KEY is not set: export it"),
    ("above the window", ("--endpoint", "small", "--tiers", "4K,16K"), "tier 16K is above the endpoint's window of 8K"),
    ("no such file", ("--endpoints", "gone.toml", "--endpoint", "lab"), "gone.toml: there is no such file"),
    ("malformed file", ("--endpoints", "bad.toml", "--endpoint", "lab"), "bad.toml:2: "),
    ("misspelt field", ("--endpoints", "typo.toml", "--endpoint", "lab"), "typo.toml:3: endpoint lab: unknown key"),
    ("key in the file", ("--endpoints", "key.toml", "--endpoint", "lab"), "a key is written into the file"),
    ("target", ("--target", "cloud"), "--target 'cloud': must be one of"),
]
# Found by what starts a target.
TARGETS = [
    ("weights", ("--weights", "gone.gguf"), "--weights gone.gguf: no such file or folder"),
    ("board", ("--target", "board", "--board", "orin"), "--target board: give the URL of the server on the board"),
]


@pytest.fixture
def refused(loadkit, tmp_path):
    """Runs `loadkit run` on what must fail before a run; returns its one line of error and checks the rest."""

    def run(*words, code, findings=False, **variables):
        done = loadkit("run", *words, **variables)
        assert done.returncode == code, done.stderr
        assert done.stdout == ""
        *before, line = done.stderr.splitlines()
        assert line.startswith("loadkit: ")
        assert "Traceback" not in done.stderr
        if findings:
            assert all(found.split(":")[0] in ("target", "base URL", "model", "prompt tokens") for found in before)
        else:
            assert before == []
        assert not (tmp_path / "runs").exists()
        return line

    return run


@pytest.fixture
def refused_early(tmp_path, environ, monkeypatch, capsys):
    """As `refused`, of what must fail before a run is as much as prepared: without a process of its own."""

    def run(*words):
        for name in os.environ.keys() - environ.keys():
            monkeypatch.delenv(name)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setitem(sys.modules, "loadkit.swarm.local", None)  # what would come next
        assert entry.main(["run", *words]) == ExitCode.USAGE
        done = capsys.readouterr()
        assert done.out == ""
        (line,) = done.err.splitlines()
        assert line.startswith("loadkit: ")
        assert not (tmp_path / "runs").exists()
        return line

    return run


@pytest.mark.parametrize(("words", "says"), [row[1:] for row in TARGETS], ids=[row[0] for row in TARGETS])
def test_a_target_that_there_is_not(refused, words, says):
    """Found when it is looked for: exit code 2 and one line in all."""
    assert says in refused(*words, code=ExitCode.USAGE)


@pytest.mark.parametrize(("words", "says"), [row[1:] for row in OPTIONS], ids=[row[0] for row in OPTIONS])
def test_an_option_that_cannot_be_used(refused_early, tmp_path, words, says):
    """Found while options are read: exit code 2 and one line in all."""
    (tmp_path / "endpoints.toml").write_text(ENDPOINTS)
    (tmp_path / "bad.toml").write_text('[endpoints.lab]\nbase_url = "http://h\n')
    (tmp_path / "typo.toml").write_text('[endpoints.lab]\nbase_url = "http://h"\nmodle = "m1"\n')
    (tmp_path / "key.toml").write_text('[endpoints.lab]\nbase_url = "http://h"\napi_key = "sk-abcdefabcdef1234"\n')
    line = refused_early(*words)
    assert says in line
    assert "secretword" not in line
    assert "sk-abcdef" not in line


def test_a_dead_url(refused):
    """Nobody listens on port 9: exit code 5, and the base URL is what to check."""
    line = refused(URL, code=ExitCode.TARGET, findings=True)
    assert "127.0.0.1:9 cannot be reached" in line
    assert "check the base URL" in line


@pytest.mark.parametrize("model", [(), ("--model", "sim")])
def test_a_wrong_path(refused, sim, model):
    """The server is there, the path is not: exit code 5, whether or not a model is named."""
    url = sim().url.removesuffix("/v1") + "/api/v3"
    line = refused(url, *model, code=ExitCode.TARGET, findings=True)
    assert "not_found HTTP 404" in line
    assert "check the base URL" in line


def test_a_wrong_model(refused, sim):
    """The server says which models it has: exit code 5."""
    line = refused(sim().url, "--model", "gpt-9", code=ExitCode.TARGET, findings=True)
    assert "check the model name; it lists sim" in line


def test_a_wrong_key_and_none(refused, sim, environ):
    """A server with a key: a wrong one and none are both exit code 5, and the line says where the key comes from."""
    os.environ["TEST_SIM_ACCEPTS"] = "right-key-0123456789"
    try:
        url = sim("--key-env", "TEST_SIM_ACCEPTS").url
    finally:
        del os.environ["TEST_SIM_ACCEPTS"]
    line = refused(url, code=ExitCode.TARGET, findings=True, LOADKIT_API_KEY="wrong-key-0123456789")
    assert "the key in LOADKIT_API_KEY" in line
    assert "wrong-key" not in line
    assert "set LOADKIT_API_KEY" in refused(url, code=ExitCode.TARGET, findings=True)


def test_a_tier_above_what_the_engine_can(refused):
    """The engine's built-in model has a window: a tier above it is exit code 2, and the engine is gone again."""
    line = refused("--tiers", "64K", "--rounds", "1", code=ExitCode.USAGE, findings=True)
    assert "tier 64K is above the endpoint's window" in line


@pytest.mark.parametrize("out", ["a-file/runs", "/proc/runs"])
def test_an_output_folder_that_cannot_be_made(refused, sim, tmp_path, out):
    """Also as root: a file stands in the way, or the file system takes no folder. Exit code 2, --out is named."""
    (tmp_path / "a-file").write_text("not a folder")
    words = ("--tiers", "64", "--concurrency", "1", "--out", out)
    line = refused(sim().url, *words, code=ExitCode.USAGE, findings=True)
    assert "choose another --out" in line


def test_a_dry_run_says_the_plan_and_sends_nothing(loadkit, tmp_path):
    """Nobody listens there, and the plan is printed all the same: cells, requests, tokens, time, cost."""
    done = loadkit("run", URL, "--model", "m", "--tiers", "1K,4K", "--concurrency", "1,2", "--dry-run")
    assert done.returncode == ExitCode.COMPLETE
    assert "4 cells, 8 visits" in done.stdout
    assert "Requests: 18 measured, 6 warm-up" in done.stdout
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--streams", "9" * 5000), "must be whole numbers from 1 to 10000"),
        (("--streams", "٣"), "must be whole numbers"),
        (("--truth", ""), "--truth is empty"),
    ],
)
def test_a_selftest_of_bad_options_starts_nothing(loadkit, words, says):
    """Exit code 2 and one line, however long the number; no simulator stands in for an empty URL."""
    done = loadkit("selftest", *words)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    (line,) = done.stderr.splitlines()
    assert says in line


def test_an_empty_variable_is_no_base_url(refused):
    """Who asks for an endpoint gets none from it, and no engine instead."""
    assert "no LOADKIT_BASE_URL" in refused("--target", "endpoint", code=ExitCode.USAGE, LOADKIT_BASE_URL="")

"""`loadkit endpoints`: the table, and other tools' files taken over, without a key ever being shown."""

import json

import pytest

from loadkit.cli.main import main
from loadkit.plan import endpoints_file
from loadkit.record.names import ExitCode

SECRET = "sk-test-0123456789abcdefghij"
FILE = """
[endpoints.lab]
base_url = "http://10.0.0.5:8000/v1"
model = "m1"
key_env = "LAB_KEY"
window = "128K"
note = "the rack"

[endpoints.open]
base_url = "http://h"
protocol = "ollama"
"""
CODEX = '[model_providers.gate]\nbase_url = "https://g/v1"\nenv_key = "GATE_KEY"\nwire_api = "responses"\n'


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty working folder with no variable that names an endpoint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for prefix in ("LOADKIT", "OPENAI", "ANTHROPIC"):
        for name in ("BASE_URL", "MODEL", "API_KEY", "AUTH_TOKEN"):
            monkeypatch.delenv(f"{prefix}_{name}", raising=False)
    return tmp_path


@pytest.fixture
def endpoints(home, capsys):
    """Runs the verb; gives the exit code and both streams, and holds that no key is in them."""

    def run(*words):
        code = main(["endpoints", *words])
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        return code, out, err

    return run


def row(out, name):
    """The words of one line of the table."""
    return next(line.split() for line in out.splitlines() if line.startswith(f"{name} "))


def test_the_table_says_whether_a_key_is_there_and_never_what_it_is(home, endpoints, monkeypatch):
    """Name, host, model, protocol, window, variable, set or not, note."""
    (home / "endpoints.toml").write_text(FILE)
    monkeypatch.delenv("LAB_KEY", raising=False)
    code, out, _ = endpoints()
    assert code == ExitCode.COMPLETE
    assert row(out, "lab") == ["lab", "10.0.0.5:8000", "m1", "openai-chat", "128K", "LAB_KEY", "no", "the", "rack"]
    assert row(out, "open") == ["open", "h", "-", "ollama", "-", "-", "-"]
    monkeypatch.setenv("LAB_KEY", SECRET)
    assert row(endpoints()[1], "lab")[6] == "yes"


def test_a_key_that_cannot_be_used_is_said_below_the_table(home, endpoints, monkeypatch):
    """Set, but with a line break: a run would stop at it."""
    (home / "endpoints.toml").write_text(FILE)
    monkeypatch.setenv("LAB_KEY", f"{SECRET}\n")
    _, out, _ = endpoints()
    assert row(out, "lab")[6] == "yes"
    assert "lab: the key in LAB_KEY has a line break in it" in out


def test_an_endpoint_of_variables_is_listed_too(home, endpoints, monkeypatch):
    """A CI run needs no file; with one, both are shown."""
    monkeypatch.setenv("LOADKIT_BASE_URL", "http://ci:1")
    monkeypatch.setenv("LOADKIT_API_KEY", SECRET)
    _, out, _ = endpoints()
    assert row(out, "loadkit")[:2] == ["loadkit", "ci:1"]
    assert "there is no endpoints.toml" in out
    (home / "endpoints.toml").write_text(FILE)
    _, out, _ = endpoints()
    assert {line.split()[0] for line in out.splitlines()[1:4]} == {"lab", "open", "loadkit"}


def test_nothing_to_list_says_how_to_begin(endpoints):
    """One line, no error."""
    code, out, _ = endpoints()
    assert (code, len(out.splitlines())) == (ExitCode.COMPLETE, 1)
    assert "loadkit endpoints import FILE" in out


def test_an_import_prints_the_text_and_names_the_variable(home, endpoints):
    """Standard output is ready to be appended; the key's new place is said beside it."""
    (home / "mine.json").write_text(json.dumps({"baseUrl": "http://h/v1", "apiKey": SECRET, "model": "m"}))
    code, out, err = endpoints("import", "mine.json", "--name", "lab")
    assert code == ExitCode.COMPLETE
    assert endpoints_file.parse(out, "out")["lab"].key_env == "LAB_API_KEY"
    assert "the key under apiKey of mine.json was left out: export it as LAB_API_KEY" in err
    assert not (home / "endpoints.toml").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CODEX, "gate"),
        (json.dumps({"env": {"ANTHROPIC_BASE_URL": "https://a", "ANTHROPIC_AUTH_TOKEN": SECRET}}), "claude"),
        (json.dumps({"OPENAI_BASE_URL": "https://o/v1", "OPENAI_API_KEY": SECRET, "model": "m"}), "imported"),
        (f'[provider]\nbase_url = "http://p/v1"\napi_key = "{SECRET}"\n', "provider"),
    ],
)
def test_every_kind_of_file_is_appended(home, endpoints, text, name):
    """`--write` adds to the file that is there, whatever its last line; what stood in it stays."""
    (home / "theirs").write_text(text)
    (home / "endpoints.toml").write_text(FILE.strip())
    code, out, err = endpoints("import", "theirs", "--write")
    assert (code, f"added {name}" in out) == (ExitCode.COMPLETE, True)
    assert list(endpoints_file.load(home / "endpoints.toml")) == ["lab", "open", name]
    assert SECRET not in (home / "endpoints.toml").read_text()
    assert ("note:" in err) == (text is CODEX)


def test_a_first_import_makes_the_file(home, endpoints):
    """./endpoints.toml, or the one named."""
    (home / "theirs").write_text(CODEX)
    endpoints("import", "theirs", "--write")
    assert list(endpoints_file.load(home / "endpoints.toml")) == ["gate"]
    assert main(["endpoints", "--endpoints", "other.toml", "import", "theirs", "--write"]) == ExitCode.COMPLETE
    assert list(endpoints_file.load(home / "other.toml")) == ["gate"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("import", "theirs", "--write"), "has an endpoint 'gate' already: choose another with --name"),
        (("import", "none"), "cannot be read"),
        (("import", "binary"), "is not UTF-8"),
        (("import", "large"), "larger than 1 MB"),
        (("import", "two.json", "--name", "x"), "leave --name out"),
        (("import", "endpoints.toml"), "none of the files that can be imported"),
        (("--endpoints", "none.toml"), "no such file"),
        (("export",), "invalid choice"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(home, endpoints, words, said):
    """Exit code 2."""
    before = CODEX.replace("model_providers", "endpoints").replace("env_key", "key_env")
    before = "\n".join(before.splitlines()[:3]) + "\n"
    (home / "endpoints.toml").write_text(before)
    (home / "theirs").write_text(CODEX)
    (home / "binary").write_bytes(b"\xff\xfe\x00")
    (home / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    (home / "two.json").write_text(json.dumps([{"baseUrl": "http://a"}, {"baseUrl": "http://b"}]))
    code, _, err = endpoints(*words)
    assert (code, err.count("\n")) == (ExitCode.USAGE, 1)
    assert said in err
    assert (home / "endpoints.toml").read_text() == before


def test_a_name_with_control_characters_is_escaped(loadkit, tmp_path):
    """In the list, in its faults and in an error: a file cannot draw on the terminal."""
    (tmp_path / "endpoints.toml").write_text('[endpoints."a\\u001b[31m"]\nbase_url = "http://127.0.0.1:9?q=1"\n')
    for words in (("endpoints",), ("run", "--endpoint", "b"), ("run", "--endpoint", "a\x1b[31m", "--dry-run")):
        done = loadkit(*words)
        assert "\x1b" not in done.stdout + done.stderr
        assert "[31m" in done.stdout + done.stderr

"""What options say about prompts and proxies, and where a key may be kept in a file."""

import json

import pytest

from loadkit.plan.errors import ConfigError
from loadkit.plan.ladder import Plan
from loadkit.plan.text import BYTES_PER_TOKEN, plan_text
from loadkit.prompt.filler import FILLERS

SECRET = "sk-test-0123456789abcdefghij"


def test_nothing_said_is_english_without_a_shared_prefix(run):
    """The server counts, proxies serve."""
    plan = run().plan
    assert (plan.filler, plan.shared_prefix, plan.tokenizer, plan.prompts, plan.proxy) == ("en", 0.0, None, None, True)


def test_the_options_reach_the_plan_and_survive_the_manifest(run, tmp_path):
    """Paths are absolute: a run is resumed from anywhere."""
    (tmp_path / "tok").mkdir()
    plan = run("--tokenizer", "tok", "--filler", "zh", "--shared-prefix", "0.25", "--no-proxy").plan
    assert (plan.tokenizer, plan.filler, plan.shared_prefix) == (str(tmp_path / "tok"), "zh", 0.25)
    assert plan.proxy is False
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_public_prompts_are_declared_so(run, tmp_path):
    """The file alone is refused; with the declaration it is taken."""
    (tmp_path / "p.json").write_text("[]")
    with pytest.raises(ConfigError, match="--prompts-are-public"):
        run("--prompts", "p.json")
    assert run("--prompts", "p.json", "--prompts-are-public").plan.prompts == str(tmp_path / "p.json")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--filler", "fr"), "must be one of en, zh"),
        (("--shared-prefix", "1"), "--shared-prefix '1'"),
        (("--shared-prefix", "-0.1"), "--shared-prefix"),
        (("--tokenizer", "none"), "--tokenizer none: there is no such file"),
        (("--tokenizer", ""), "--tokenizer is empty"),
        (("--tokenizer", "x" * 5000), "there is no such file"),
        (("--tokenizer", "a\0b"), "--tokenizer has a null byte"),
        (("--prompts", "none", "--prompts-are-public"), "--prompts none: there is no such file"),
        (("--prompts", "p", "--prompts-are-public", "--filler", "zh"), "leave --filler"),
        (("--prompts", "p", "--prompts-are-public", "--shared-prefix", "0"), "--shared-prefix out"),
    ],
)
def test_every_bad_value_says_what_to_change(run, tmp_path, argv, words):
    """One line."""
    (tmp_path / "p").write_text("[]")
    with pytest.raises(ConfigError, match=words) as caught:
        run(*argv)
    assert "\n" not in caught.value.message


def test_every_filler_can_be_chosen_and_its_bodies_are_sized(run):
    """The languages whose bytes a plan knows are those there are texts of."""
    assert set(BYTES_PER_TOKEN) == set(FILLERS)
    text = plan_text(run("--filler", "zh", "--tiers", "1M").plan, "engine")
    assert "body (zh)" in text
    assert "~3.0 MB" in text


@pytest.fixture
def key_file(tmp_path):
    """Writes a key file of a mode and gives its path."""

    def write(content=f"{SECRET}\n", mode=0o600):
        path = tmp_path / "key"
        path.write_text(content)
        path.chmod(mode)
        return path

    return write


LAB = '[endpoints.lab]\nbase_url = "http://h"\nmodel = "m"\n'


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_key_file_of_the_owner_alone_is_read(run, endpoints_toml, key_file, mode):
    """Relative to the endpoints file; the newline at its end is no part of the key; auth follows as for a variable."""
    path = key_file(mode=mode)
    endpoints_toml(LAB + 'key_file = "key"\n')
    endpoint = run("--endpoint", "lab").endpoint
    assert (endpoint.key_file, endpoint.auth) == (str(path), "bearer")
    assert endpoint.key({}) == SECRET
    assert SECRET not in json.dumps(endpoint.to_json())


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (SECRET, 0o640, "has mode 640: make it 600"),
        (SECRET, 0o604, "has mode 604"),
        (f" {SECRET}", 0o600, "blanks around it"),
        (f"{SECRET}\n\n", 0o600, "line break"),
        ("", 0o600, "is empty"),
    ],
)
def test_a_key_file_that_others_can_read_or_that_holds_no_key_is_refused(
    run, endpoints_toml, key_file, content, mode, words
):
    """The message names the file and never shows what is in it."""
    key_file(content, mode)
    endpoints_toml(LAB + 'key_file = "key"\n')
    with pytest.raises(ConfigError, match=words) as caught:
        run("--endpoint", "lab")
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('key_file = "key"\nkey_env = "LAB_KEY"\n', "keep one"),
        ('key_file = "key"\nauth = "none"\n', "two auth modes"),
        (f'key_file = "{SECRET}"\n', "literal key"),
        ('key_file = "none"\n', "cannot be read"),
        ('key_file = "."\n', "cannot be read"),
    ],
)
def test_one_place_for_the_key(run, endpoints_toml, key_file, line, words):
    """Two places, a key where a path belongs, or no file: one line each."""
    key_file()
    endpoints_toml(LAB + line)
    with pytest.raises(ConfigError, match=words) as caught:
        run("--endpoint", "lab")
    assert SECRET not in caught.value.message

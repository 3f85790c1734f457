"""Other tools' files become endpoint text without their keys."""

import json

import pytest

from loadkit.plan import endpoints_file
from loadkit.plan.errors import ConfigError
from loadkit.plan.imports import convert

SECRET = "sk-test-0123456789abcdefghij"
CLAUDE_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
CODEX = """
model = "m1"
model_provider = "gate"
[model_providers.gate]
name = "The gateway"
base_url = "https://h/api?utm_source=x"
env_key = "GATE_API_KEY"
wire_api = "chat"
[model_providers.other]
base_url = "https://o/v1"
wire_api = "responses"
"""


def load(imported):
    """The imported text as endpoints, after the check that it holds no key."""
    assert SECRET not in repr(imported)
    return endpoints_file.parse(imported.text, "import")


def test_codex_toml():
    """Each provider is an endpoint; the model belongs to the one chosen; the query of the URL is dropped and said."""
    imported = convert(CODEX, "config.toml")
    found = load(imported)
    assert (found["gate"].base_url, found["gate"].model, found["gate"].key_env) == (
        "https://h/api",
        "m1",
        "GATE_API_KEY",
    )
    assert found["gate"].note == "The gateway"
    assert (found["other"].model, found["other"].auth) == (None, "none")
    assert imported.moved == ()
    assert any("wire_api" in note for note in imported.notes)
    assert any("query" in note for note in imported.notes)


@pytest.mark.parametrize(("variable", "auth"), [("ANTHROPIC_AUTH_TOKEN", "bearer"), ("ANTHROPIC_API_KEY", "x-api-key")])
def test_claude_settings(variable, auth):
    """The protocol, the header style and the model come along; the token becomes its variable."""
    env = {"ANTHROPIC_BASE_URL": "https://h/api", variable: SECRET, "ANTHROPIC_MODEL": "m"}
    imported = convert(json.dumps({"env": env}), "settings.json", name="mine")
    mine = load(imported)["mine"]
    assert (mine.protocol, mine.auth, mine.key_env, mine.model) == ("anthropic", auth, variable, "m")
    assert imported.moved == ((variable, f"env.{variable}"),)


@pytest.mark.parametrize(
    ("text", "variable", "field"),
    [
        (json.dumps({"base_url": "http://h/v1", "api_key": SECRET, "model": "m"}), "IMPORTED_API_KEY", "api_key"),
        (json.dumps({"baseUrl": "http://h/v1", "apiKey": SECRET, "model": "m"}), "IMPORTED_API_KEY", "apiKey"),
        (
            json.dumps({"OPENAI_BASE_URL": "http://h/v1", "OPENAI_API_KEY": SECRET, "model": "m"}),
            "OPENAI_API_KEY",
            "OPENAI_API_KEY",
        ),
        (
            f'[provider]\nbase_url = "http://h/v1"\napi_key = "{SECRET}"\nmodel = "m"\ntimeout = 120\n',
            "PROVIDER_API_KEY",
            "provider.api_key",
        ),
    ],
)
def test_flat_files_move_the_key_to_a_variable(text, variable, field):
    """Base URL, model and the name of a variable; the value is the user's to export."""
    imported = convert(text, "f")
    (found,) = load(imported).values()
    assert (found.base_url, found.model, found.key_env, found.auth) == ("http://h/v1", "m", variable, "bearer")
    assert imported.moved == ((variable, field),)


def test_a_read_timeout_comes_along():
    """`timeout = 120` of a flat file is the read timeout."""
    found = load(convert('[provider]\nbase_url = "http://h"\ntimeout = 120\n', "f"))
    assert found["provider"].timeouts.read == 120


def test_several_profiles_keep_names_that_do_not_collide():
    """A list of profiles; names are made fit for a heading and told apart; text survives its quoting."""
    items = [
        {"name": "Lab 1", "baseUrl": "http://a", "apiKey": SECRET, "note": 'a "b"\\c\x7f\u00e9\U0001f600'},
        {"name": "lab-1", "baseUrl": "http://b"},
    ]
    found = load(convert(json.dumps(items), "f"))
    assert list(found) == ["lab-1", "lab-1-2"]
    assert (found["lab-1"].key_env, found["lab-1"].note) == ("LAB_1_API_KEY", items[0]["note"])


def test_one_name_is_not_for_several_endpoints():
    """`name` goes with a single endpoint."""
    with pytest.raises(ConfigError, match="has 2 endpoints with names of their own"):
        convert(CODEX, "f", name="mine")


def test_an_env_key_that_is_a_key_is_not_written():
    """A literal where a name should be is left out and said."""
    text = f'[model_providers.a]\nbase_url = "http://h"\nenv_key = "{SECRET}"\n'
    imported = convert(text, "f")
    assert load(imported)["a"].key_env == "A_API_KEY"
    assert any("env_key" in note for note in imported.notes)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"base_url": "http://h", "api_key": SECRET, "model": SECRET}),
        json.dumps({"base_url": "http://h", "api_key": "plainpassword", "note": "plainpassword"}),
        json.dumps({"base_url": f"http://u:{SECRET}@h", "api_key": "x"}),
        json.dumps({"env": {"ANTHROPIC_BASE_URL": "http://h", **dict.fromkeys(CLAUDE_KEYS, SECRET)}}),
    ],
)
def test_a_key_in_a_second_place_is_refused(text):
    """What would carry the key into the file is an error, and the error does not carry it either."""
    with pytest.raises(ConfigError) as caught:
        convert(text, "f")
    assert SECRET not in caught.value.message
    assert "plainpassword" not in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '{"a": 1}', "a = 1\n", '{"base_url": ""}', '{"env": {}}'])
def test_a_file_of_another_kind_says_what_can_be_imported(text):
    """The kinds are named."""
    with pytest.raises(ConfigError, match=r"Codex config.toml, a Claude settings.json"):
        convert(text, "f")

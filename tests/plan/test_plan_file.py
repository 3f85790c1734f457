"""endpoints.toml, and the variables that stand in for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan import endpoints_file
from loadkit.plan.errors import ConfigError

SECRET = "sk-test-0123456789abcdefghij"
LAB = """\
[endpoints.lab]
base_url = "http://10.0.0.5:8000"
model = "qwen"
protocol = "openai-completions"
key_env = "LAB_KEY"
window = "128K"
price_input = 1
price_output = 2.5
currency = "EUR"
timeouts = { ttft = 900 }
headers = { X-Team = "blue" }
extra_body = { top_k = 1 }
max_tokens_field = "max_completion_tokens"
note = "the rack"

[endpoints.local]
base_url = "http://127.0.0.1:8000"
window = 8192
"""


def test_every_field_is_read(endpoints_toml):
    """Each key of the file has its place in the endpoint."""
    lab = endpoints_file.load(endpoints_toml(LAB))["lab"]
    assert (lab.base_url, lab.model, lab.protocol) == ("http://10.0.0.5:8000", "qwen", "openai-completions")
    assert (lab.key_env, lab.auth, lab.window) == ("LAB_KEY", "bearer", 131072)
    assert (lab.price_input, lab.price_output, lab.currency) == (1.0, 2.5, "EUR")
    assert (lab.timeouts.ttft, lab.timeouts.ttft_scales, lab.timeouts.connect) == (900, False, 10)
    assert (lab.headers, lab.extra_body) == ({"X-Team": "blue"}, {"top_k": 1})
    assert (lab.max_tokens_field, lab.note) == ("max_completion_tokens", "the rack")


def test_order_is_kept_and_defaults_hold(endpoints_toml):
    """A minimal table is a whole endpoint."""
    found = endpoints_file.load(endpoints_toml(LAB))
    assert list(found) == ["lab", "local"]
    assert (found["local"].window, found["local"].auth, found["local"].timeouts.ttft_scales) == (8192, "none", True)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('[endpoints.a]\nbase_url = "http://h"\nmodell = "m"\n', 3, "did you mean 'model'"),
        ('[endpoints.a]\nbase_url = "http://h"\nzzz = 1\n', 3, "known are base_url"),
        (f'[endpoints.a]\nbase_url = "http://h"\napi_key = "{SECRET}"\n', 3, "a key is written into the file"),
        (f'[endpoints.a]\nbase_url = "http://h"\n\nkey_env = "{SECRET}"\n', 1, "name of a variable"),
        (f'[endpoints.a]\nbase_url = "http://h"\n[endpoints.a.headers]\nX-A = "{SECRET}"\n', 1, "would carry a key"),
        ('[endpoints.a]\nmodel = "m"\n', 1, "base_url is missing"),
        ('\n[endpoints.a]\nbase_url = "h:1"\n', 2, "must begin with http"),
        ("[endpoints.a]\nbase_url = 5\n", 2, "must be text"),
        ('[endpoints.a]\nbase_url = "http://h"\nwindow = "4G"\n', 3, "128, 1.5K"),
        ('[endpoints.a]\nbase_url = "http://h"\nprice_input = "1"\n', 3, "must be a number"),
        ('[endpoints.a]\nbase_url = "http://h"\ntimeouts = { connect = 0 }\n', 3, "connect timeout"),
        ('[endpoints.a]\nbase_url = "http://h"\n[endpoints.a.timeouts]\nfirst = 1\n', 3, "unknown timeout 'first'"),
        ('[a]\nbase_url = "http://h"\n', 1, r"write \[endpoints.NAME\]"),
        ('endpoints = "x"\n', 1, r"\[endpoints.NAME\]"),
        ('[endpoints.a]\nbase_url "http://h"\n', 2, "Expected"),
        ('[endpoints.a]\nbase_url = "http://h\n', 2, "Illegal character"),
        ("[endpoints.a", 1, "Expected"),
        (f"[endpoints.a]\nwindow = {'9' * 5000}\n", 3, "digits"),
    ],
)
def test_a_wrong_file_is_one_line_with_file_and_line(endpoints_toml, text, line, words):
    """The place, what is wrong, and never the value of a key."""
    path = endpoints_toml(text)
    with pytest.raises(ConfigError, match=words) as caught:
        endpoints_file.load(path)
    assert caught.value.message.startswith(f"{path}:{line}: ")
    assert "\n" not in caught.value.message
    assert SECRET not in caught.value.message


@given(st.text(max_size=200) | st.text("[]endpoints.a=\"'\n1{},#", max_size=60))
def test_any_text_is_endpoints_or_a_config_error(text):
    """No other exception leaves the reader."""
    try:
        message = None if isinstance(endpoints_file.parse(text, "f"), dict) else ""
    except ConfigError as error:
        message = error.message
    assert message is None or message.startswith("f:")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    """Not UTF-8, and a folder in its place."""
    path = tmp_path / "e.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        endpoints_file.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        endpoints_file.load(tmp_path)


def test_search_order(tmp_path):
    """The file named, then the folder's, then the home's, then none."""
    home = tmp_path / "home"
    far = home / ".config" / "loadkit" / "endpoints.toml"
    far.parent.mkdir(parents=True)
    environ = {"HOME": str(home)}
    assert endpoints_file.find(None, tmp_path, environ) is None
    far.write_text("")
    assert endpoints_file.find(None, tmp_path, environ) == far
    near = tmp_path / "endpoints.toml"
    near.write_text("")
    assert endpoints_file.find(None, tmp_path, environ) == near
    (tmp_path / "mine.toml").write_text("")
    assert endpoints_file.find("mine.toml", tmp_path, environ) == tmp_path / "mine.toml"
    with pytest.raises(ConfigError, match="there is no such file"):
        endpoints_file.find("none.toml", tmp_path, environ)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"OPENAI_API_KEY": SECRET}, None),
        ({"LOADKIT_BASE_URL": "http://a", "OPENAI_BASE_URL": "http://b"}, ("http://a", "none", "openai-chat")),
        ({"OPENAI_BASE_URL": "http://b", "OPENAI_API_KEY": SECRET}, ("http://b", "bearer", "openai-chat")),
        ({"ANTHROPIC_BASE_URL": "http://c", "ANTHROPIC_API_KEY": SECRET}, ("http://c", "x-api-key", "anthropic")),
        ({"ANTHROPIC_BASE_URL": "http://c", "ANTHROPIC_AUTH_TOKEN": SECRET}, ("http://c", "bearer", "anthropic")),
        ({"LOADKIT_BASE_URL": "", "OPENAI_BASE_URL": "http://b"}, ("http://b", "none", "openai-chat")),
    ],
)
def test_variables_in_their_order(environ, expected):
    """LOADKIT_*, then OPENAI_*, then ANTHROPIC_*, each by its base URL."""
    found = endpoints_file.from_environ(environ)
    assert (found and (found.base_url, found.auth, found.protocol)) == expected


def test_two_keys_of_one_family_are_two_auth_modes():
    """ANTHROPIC_API_KEY and ANTHROPIC_AUTH_TOKEN together are refused, not chosen from."""
    environ = {"ANTHROPIC_BASE_URL": "http://c", "ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_AUTH_TOKEN": SECRET}
    with pytest.raises(ConfigError, match="one auth mode"):
        endpoints_file.from_environ(environ)


def test_a_key_goes_only_to_the_host_it_belongs_to():
    """A bare URL takes LOADKIT_API_KEY, or the key of the family whose base URL has the same origin, and no other."""

    def variable(url, **environ):
        return endpoints_file.from_url(url, environ).key_env

    assert variable("http://a/v1", LOADKIT_API_KEY=SECRET) == "LOADKIT_API_KEY"
    assert variable("http://a/v1", LOADKIT_API_KEY=SECRET, LOADKIT_BASE_URL="http://A") == "LOADKIT_API_KEY"
    assert variable("http://b/v1", LOADKIT_API_KEY=SECRET, LOADKIT_BASE_URL="http://a") is None
    assert variable("http://b", OPENAI_API_KEY=SECRET, OPENAI_BASE_URL="http://b/v1") == "OPENAI_API_KEY"
    assert variable("http://a", OPENAI_API_KEY=SECRET, OPENAI_BASE_URL="http://b/v1") is None
    assert variable("http://a", OPENAI_API_KEY=SECRET) is None

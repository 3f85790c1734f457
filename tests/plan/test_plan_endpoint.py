"""What an endpoint refuses, and how its key is read."""

import json
import traceback

import pytest

from loadkit.plan.endpoint import Endpoint, Timeouts
from loadkit.plan.errors import ConfigError

SECRET = "sk-test-0123456789abcdefghij"


def test_auth_follows_from_key_and_protocol(endpoint):
    """No key: none. Anthropic has its own header; a gateway that wants the other one says so."""
    assert endpoint().auth == "none"
    assert endpoint(key_env="LAB_KEY").auth == "bearer"
    assert endpoint(key_env="LAB_KEY", protocol="anthropic").auth == "x-api-key"
    assert endpoint(key_env="LAB_KEY", protocol="anthropic", auth="bearer").auth == "bearer"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"auth": "none", "key_env": "LAB_KEY"}, "two auth modes"),
        ({"headers": {"Authorization": f"Bearer {SECRET}"}, "key_env": "LAB_KEY"}, "would carry a key"),
        ({"headers": {"X-Custom": f"Bearer {SECRET}"}}, "would carry a key"),
        ({"auth": "bearer"}, "needs key_env"),
        ({"auth": "oauth", "key_env": "LAB_KEY"}, "bearer, x-api-key, none"),
        ({"protocol": "openai"}, "openai-chat, openai-completions, anthropic, ollama"),
        ({"max_tokens_field": "n"}, "max_completion_tokens"),
        ({"key_env": SECRET}, "name of a variable in capitals"),
        ({"key_env": "SK_TEST_0123456789ABCDEFGHIJ"}, "not a key"),
        ({"window": 0}, "window"),
        ({"price_input": -1.0}, "prices"),
        ({"price_output": float("nan")}, "prices"),
        ({"extra_body": {"model": "x"}}, "--model"),
        ({"extra_body": {"max_tokens": 5}}, "--max-tokens"),
        ({"extra_body": {"a": {"b": [SECRET]}}}, "literal key"),
        ({"extra_body": {"a": float("inf")}}, "JSON"),
        ({"note": f"key is {SECRET}"}, "literal key"),
        ({"headers": {"Content-Length": "3"}}, "set by loadkit itself"),
        ({"headers": {"X-A": "b\r\nX-B: c"}}, "no header can carry"),
        ({"headers": {"X A": "b"}}, "NAME=VALUE"),
    ],
)
def test_a_wrong_endpoint_is_refused_when_it_is_made(endpoint, values, words):
    """One line with what to change; a literal key is never shown."""
    with pytest.raises(ConfigError, match=words) as caught:
        endpoint(**values)
    assert SECRET not in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "LAB_KEY is not set"),
        ("", "is empty"),
        ("  ", "is empty"),
        (f" {SECRET}", "blanks"),
        (f"{SECRET}\n", "line break"),
        (f"Bearer {SECRET}", "header's own words"),
        (f"x-api-key: {SECRET}", "header's own words"),
        (f'"{SECRET}"', "quotes"),
        ("$OTHER_KEY", "another variable"),
        (f"{SECRET} {SECRET}", "no header can carry"),
        (f"{SECRET}é", "no header can carry"),
        (f"{SECRET}\x00", "no header can carry"),
    ],
)
def test_a_wrong_key_is_named_by_its_variable_and_never_shown(endpoint, value, words):
    """Neither the message nor the traceback holds the value."""
    environ = {} if value is None else {"LAB_KEY": value}
    with pytest.raises(ConfigError, match=words) as caught:
        endpoint(key_env="LAB_KEY").key(environ)
    assert "LAB_KEY" in caught.value.message
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True))


@pytest.mark.parametrize(
    ("variable", "protocol"),
    [("ANTHROPIC_AUTH_TOKEN", "openai-chat"), ("ANTHROPIC_API_KEY", "ollama"), ("OPENAI_API_KEY", "anthropic")],
)
def test_a_variable_of_another_style_is_refused(endpoint, variable, protocol):
    """The mix looks like a wrong key at the server, so it is stopped here."""
    with pytest.raises(ConfigError, match="another style"):
        endpoint(key_env=variable, protocol=protocol).key({variable: SECRET})


def test_a_right_key_comes_out_as_it_is(endpoint):
    """No key_env, no key, whatever is in the environment."""
    assert endpoint(key_env="LAB_KEY").key({"LAB_KEY": SECRET}) == SECRET
    assert endpoint().key({"LAB_KEY": SECRET}) is None


def test_an_endpoint_survives_json_and_holds_no_key(endpoint):
    """The manifest and the workers get the name of the key's variable."""
    made = endpoint(key_env="LAB_KEY", timeouts=Timeouts(ttft=5.0, ttft_scales=False), extra_body={"top_k": 1})
    assert Endpoint.from_json(json.loads(json.dumps(made.to_json()))) == made
    assert made.to_json()["key_env"] == "LAB_KEY"
    with pytest.raises(ConfigError, match="damaged"):
        Endpoint.from_json({"name": "x"})


@pytest.mark.parametrize(
    ("base", "host", "loopback"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000", True),
        ("http://localhost", "localhost", True),
        ("http://[::1]:1", "[::1]:1", True),
        ("https://lab.example:8443/v1", "lab.example:8443", False),
        ("http://10.0.0.5", "10.0.0.5", False),
    ],
)
def test_host_and_loopback(endpoint, base, host, loopback):
    """The host is what records show; loopback decides the length of warm-up prompts."""
    made = endpoint(base)
    assert (made.host, made.loopback) == (host, loopback)


@pytest.mark.parametrize("value", [None, 0, -1, float("inf"), float("nan"), 301])
def test_connecting_without_a_limit_is_refused(value):
    """A connect timeout is a number, and not a huge one."""
    with pytest.raises(ConfigError, match="connect timeout"):
        Timeouts(connect=value)


def test_the_default_first_token_timeout_grows_with_the_tier():
    """600 s to 128K and eight times that at 1M; a value somebody chose stays."""
    assert Timeouts().for_tier(4096).ttft == 600
    assert Timeouts().for_tier(1048576).ttft == 4800
    assert Timeouts(ttft=30.0, ttft_scales=False).for_tier(1048576).ttft == 30


def test_every_request_ends_some_day():
    """Without a total the whole request has the first-token time and an hour."""
    assert Timeouts().for_tier(128).total == 4200
    assert Timeouts(total=50.0).for_tier(1048576).total == 50

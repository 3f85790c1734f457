"""Request bodies from strangers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.engine.errors import ApiError
from loadkit.engine.request import NEUTRAL, parse, parse_json

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def ask(raw, chat=True):
    return parse(raw, chat=chat, model="m", vocab=100)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'{"a":}', b"\xff", b"[" * 100000])
def test_a_body_that_is_no_object(body):
    """Anything but a JSON object is 400 invalid_json."""
    with pytest.raises(ApiError) as caught:
        parse_json(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [1]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"stream": 1}, "stream"),
        ({"stream_options": 1}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "include_usage"),
        ({"ignore_eos": "no"}, "ignore_eos"),
        ({"seed": 1.5}, "seed"),
        ({"n": 2}, "n"),
        ({"stop": ["x"]}, "stop"),
        ({"top_p": 0.5}, "top_p"),
        ({"model": 5}, "model"),
    ],
)
def test_a_wrong_field_is_named(change, param):
    """Every wrong or unsupported field is 400 with its name in `param`."""
    with pytest.raises(ApiError) as caught:
        ask(CHAT | change)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_value", param)


@pytest.mark.parametrize("prompt", [None, 5, [], [[]], ["a", "b"], [1.0], [True], [100], [-1], [1, "a"]])
def test_a_wrong_completion_prompt(prompt):
    """A prompt is one string or one array of known token ids; an empty array passes here and fails as empty later."""
    if prompt in ([], [[]]):
        assert ask({"prompt": prompt}, chat=False).prompt == []
        return
    with pytest.raises(ApiError, match="prompt"):
        ask({"prompt": prompt}, chat=False)


def test_defaults_and_unknown_fields():
    """Neutral values of what is not supported, null and unknown fields are accepted."""
    neutral = {field: values[-1] for field, values in NEUTRAL.items()}
    asked = ask(CHAT | neutral | {"user": "x", "whatever": {"a": 1}, "max_tokens": None, "temperature": None})
    assert (asked.max_tokens, asked.min_tokens, asked.temperature, asked.seed) == (None, 0, 0.0, 0)
    assert (asked.stream, asked.include_usage, asked.ignore_eos, asked.chat) == (False, False, False, True)


def test_max_completion_tokens_is_the_newer_name():
    """Both names of the output limit work; the newer one wins."""
    assert ask(CHAT | {"max_tokens": 5}).max_tokens == 5
    assert ask(CHAT | {"max_tokens": 5, "max_completion_tokens": 7}).max_tokens == 7


def test_text_parts_are_joined():
    """Content as an array of text parts is their text."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": ""}, {"type": "text", "text": "b"}]
    assert ask({"messages": [{"role": "user", "content": parts}]}).messages == [{"role": "user", "content": "ab"}]


def test_another_model_is_not_found():
    """404 model_not_found for another name; no name means the one there is."""
    with pytest.raises(ApiError) as caught:
        ask(CHAT | {"model": "gpt"})
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
    assert ask(CHAT | {"model": "m"}).messages == CHAT["messages"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["model", "messages", "prompt", "max_tokens", "temperature", "seed", "stream", "stream_options", *NEUTRAL]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON), st.booleans())
def test_any_json_is_answered(raw, chat):
    """Whatever JSON comes, it is either understood or refused with a body that is JSON again."""
    error = refusal(raw, chat)
    if error is not None:
        assert error.status in (400, 404)
        assert json.loads(json.dumps(error.body()))["error"]["message"] == error.message


def refusal(raw, chat):
    """The refusal of a body, None when it is understood."""
    try:
        ask(raw, chat)
    except ApiError as error:
        return error
    return None

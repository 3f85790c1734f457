"""The base-URL joining table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.plan.endpoint import Endpoint, root_url_for, url_for
from loadkit.plan.errors import ConfigError

PATHS = {
    "openai-chat": "/chat/completions",
    "openai-completions": "/completions",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
}


@pytest.mark.parametrize(
    ("base", "protocol", "final"),
    [
        ("https://h", "openai-chat", "https://h/v1/chat/completions"),
        ("https://h/", "openai-chat", "https://h/v1/chat/completions"),
        ("https://h/v1", "openai-chat", "https://h/v1/chat/completions"),
        ("https://h/v1/", "openai-chat", "https://h/v1/chat/completions"),
        ("https://h/api", "openai-chat", "https://h/api/chat/completions"),
        ("https://h/api/v1", "openai-chat", "https://h/api/v1/chat/completions"),
        ("https://h/openai/v1", "openai-chat", "https://h/openai/v1/chat/completions"),
        ("https://h/api/chat/completions", "openai-chat", "https://h/api/chat/completions"),
        ("https://h/api?utm_source=x", "openai-chat", "https://h/api/chat/completions"),
        (" https://h/api\n", "openai-chat", "https://h/api/chat/completions"),
        ("http://[::1]:8000", "openai-chat", "http://[::1]:8000/v1/chat/completions"),
        ("HTTP://h:8000#top", "openai-chat", "http://h:8000/v1/chat/completions"),
        ("https://h/v1", "openai-completions", "https://h/v1/completions"),
        ("https://h/v1/chat/completions", "openai-completions", "https://h/v1/completions"),
        ("https://h", "anthropic", "https://h/v1/messages"),
        ("https://h/v1", "anthropic", "https://h/v1/messages"),
        ("https://h/api", "anthropic", "https://h/api/v1/messages"),
        ("https://h/api/v1/messages", "anthropic", "https://h/api/v1/messages"),
        ("http://board:8080", "ollama", "http://board:8080/api/chat"),
        ("http://board:8080/api", "ollama", "http://board:8080/api/chat"),
        ("http://board:8080/api/chat", "ollama", "http://board:8080/api/chat"),
    ],
)
def test_joining_table(endpoint, base, protocol, final):
    """Each row of the table, final URL for final URL."""
    assert url_for(endpoint(base, protocol=protocol), PATHS[protocol]) == final


@pytest.mark.parametrize(
    ("base", "path", "final"),
    [
        ("https://h/v1/chat/completions", "/models", "https://h/v1/models"),
        ("https://h", "/models", "https://h/v1/models"),
        ("https://h/api", "/models", "https://h/api/models"),
        ("https://h", "/v1/models", "https://h/v1/models"),
        ("https://h/v1", "/v1/models", "https://h/v1/models"),
    ],
)
def test_other_paths_of_the_api_are_siblings_of_the_operation(endpoint, base, path, final):
    """The list of models is beside the operation even where the base URL names the operation."""
    assert url_for(endpoint(base), path) == final


@pytest.mark.parametrize("base", ["http://h:8000", "http://h:8000/v1", "http://h:8000/v1/chat/completions"])
def test_routes_beside_the_api_have_no_version(endpoint, base):
    """Tokenizing and metrics live at the server's root."""
    assert root_url_for(endpoint(base), "/tokenize") == "http://h:8000/tokenize"


@given(
    st.lists(st.sampled_from(["v1", "api", "openai", "messages", "models"]), max_size=4),
    st.sampled_from(sorted(PATHS)),
    st.sampled_from(["", "/", "?utm=1", "#x", "/chat/completions"]),
)
def test_joining_is_stable_and_never_doubles_a_version(segments, protocol, ending):
    """Joining a joined URL changes nothing, and /v1/v1 comes out of nothing but a refusal."""
    try:
        first = url_for(Endpoint("lab", "/".join(["http://h", *segments]) + ending, protocol=protocol), PATHS[protocol])
    except ConfigError:
        assert "v1/v1" in "/".join(segments)
        return
    assert "/v1/v1" not in first
    assert "?" not in first
    assert "#" not in first
    assert url_for(Endpoint("lab", first, protocol=protocol), PATHS[protocol]) == first


def test_what_is_dropped_is_said(endpoint):
    """A query and blanks are each one warning, and the query's text is in none."""
    warnings = endpoint(" https://h/api?token=abcdef\n").warnings()
    assert len(warnings) == 2
    assert "abcdef" not in " ".join(warnings)
    assert endpoint("https://h/api/").warnings() == ()


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("https://h/v1/v1", "its version twice"),
        ("h:8000", "must begin with http"),
        ("ftp://h", "must begin with http"),
        ("", "is empty"),
        ("http://", "names no host"),
        ("http://h:99999", "cannot be read"),
        ("http://[::1", "cannot be read"),
        ("http://a..b", "cannot be read"),
        (f"http://{'a' * 64}.com", "cannot be read"),
        ("http://h/a b", "blanks"),
        ("http://h/a\nb", "control characters"),
        ("http://user:secretword@h/v1", "user or password"),
    ],
)
def test_a_base_url_that_cannot_work_says_what_to_change(endpoint, base, words):
    """One line, and nothing of a password in it."""
    with pytest.raises(ConfigError, match=words) as caught:
        endpoint(base)
    assert "secretword" not in caught.value.message
    assert "\n" not in caught.value.message

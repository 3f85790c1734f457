"""What messages repeat of what they were given."""

import pytest

from loadkit.plan.errors import ConfigError, TargetError
from loadkit.plan.shown import shown
from loadkit.plan.tiers import parse_tiers
from loadkit.record.names import Outcome


@pytest.mark.parametrize(
    "key", ["sk-abcdefabcdef1234", "hf_abcdefabcdef1234", "Bearer abcdefgh12345678", "eyJhbGciOiJIUzI1.eyJzdWIi.c2lnbg"]
)
def test_a_key_is_never_repeated(key):
    """Pasted into the wrong place, it stays out of the terminal and of the log of a pipeline."""
    assert shown(f"unknown tier {key!r}: no") == "unknown tier '[redacted]': no"
    assert key not in str(TargetError(f"no {key}", Outcome.AUTH))
    with pytest.raises(ConfigError) as caught:
        parse_tiers(f"4K,{key}")
    assert key[:12] not in str(caught.value)


def test_control_characters_are_escaped():
    """A name from a file moves no cursor and begins no line; other text stays as it is."""
    assert shown("lab\x1b[31m\n\u202ex é 中") == "lab\\x1b[31m\\n\\u202ex é 中"
    assert "\x1b" not in ConfigError("a\x1b[2J").message


def test_plain_words_are_no_key():
    """Names of options and headers stay readable."""
    text = "auth must be one of bearer, x-api-key; --tokenizer task-1: unknown"
    assert shown(text) == text

"""No key leaves the process, however it is written."""

import base64
import json
import re
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.record.redact import MASK, MAX_CHARS, Redactor

KEY = 'nv/Q7+x9"K2\\b=Zt&4mW<8p'  # every character that some encoding escapes
# Without the two escape signs: those are in KEY, and a mixture of spellings would be ambiguous with them.
KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="%\\"), min_size=8, max_size=60)


def leaks(text: str, key: str) -> bool:
    """Whether eight characters of the key stand together in the text."""
    return any(key[at : at + 8] in text for at in range(len(key) - 7))


@pytest.mark.parametrize(
    "written",
    [
        KEY,
        json.dumps(KEY)[1:-1],
        json.dumps(json.dumps(KEY))[1:-1],
        json.dumps(KEY)[1:-1].replace("/", "\\/"),
        json.dumps(KEY)[1:-1].replace("&", "\\u0026").replace("<", "\\u003C"),
        quote(KEY, safe=""),
        quote(quote(KEY, safe=""), safe=""),
        re.sub("%..", lambda escape: escape[0].lower(), quote(KEY, safe="")),
        "".join(f"%{ord(c):02x}" for c in KEY),
        "".join(f"\\u{ord(c):04X}" for c in KEY),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        base64.b64encode(f"me:{KEY}".encode()).decode(),
        base64.b64encode(f"a:{KEY}".encode()).decode(),
        base64.urlsafe_b64encode(f":{KEY}".encode()).decode(),
    ],
)
def test_a_key_is_found_in_every_spelling(written):
    """Raw, JSON-escaped once and twice, URL-encoded once and twice, and inside Basic credentials at any alignment."""
    assert leaks(written, written)
    redacted = Redactor([KEY]).text(f"before [{written}] after")
    assert redacted.startswith("before [")
    assert redacted.endswith("] after")
    assert MASK in redacted
    assert not leaks(redacted, written)


def test_only_the_key_is_taken_out():
    """What stands around a key and in texts without one stays readable."""
    redactor = Redactor(["k-3fa9c1d2e4"])
    assert redactor.text('{"error":"bad key k-3fa9c1d2e4!"}') == '{"error":"bad key [redacted]!"}'
    assert redactor.text("a%20b \\n 100 % of k-3f") == "a%20b \\n 100 % of k-3f"
    assert redactor.text("k-3fa9c1d2e4k-3fa9c1d2e4, k-3fa9c1d2e4") == "[redacted], [redacted]"
    assert redactor.text("") == ""


@pytest.mark.parametrize("kept", range(8, len(KEY)))
def test_a_key_clipped_at_either_end_is_found(kept):
    """A message cut in the middle of a key shows none of it when eight characters or more were left."""
    redactor = Redactor([KEY])
    assert redactor.text("key is " + KEY[:kept]) == "key is " + MASK
    assert redactor.text("…" + KEY[-kept:] + " is wrong") == "…" + MASK + " is wrong"


@given(KEYS, st.data())
def test_no_stretch_of_a_key_gets_through(key, data):
    """Whatever mixture of escapes a key is written in, and wherever it is cut, eight characters never stay together."""
    spellings = [lambda c: c, lambda c: f"%{ord(c):02X}", lambda c: f"\\u{ord(c):04x}", lambda c: quote(c, safe="")]
    pieces = [data.draw(st.sampled_from(spellings))(c) for c in key]
    begin = data.draw(st.integers(0, len(pieces) - 8))
    end = data.draw(st.integers(begin + 8, len(pieces)))
    redacted = Redactor([key]).text("<< " + "".join(pieces[begin:end]) + " >>")
    assert not leaks(redacted, key)
    assert "".join(pieces[begin:end]) not in redacted


@pytest.mark.parametrize("before", ["%", "\\", "\\\\", "%4", "\\u00"])
def test_an_escape_sign_before_a_key_hides_nothing(before):
    """A stray % or backslash that would eat the first characters of a key does not save it."""
    assert Redactor(["abcd1234"]).text(f"{before}abcd1234") in (before + MASK, MASK)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.DEF-123", "Authorization: Bearer [redacted]"),
        ('{"authorization": "bearer abc123"}', '{"authorization": "bearer [redacted]"}'),
        ("GET /?a=Bearer%20abc123", "GET /?a=Bearer%20[redacted]"),
        ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic [redacted]"),
        ("x-api-key: 12ab34\r\nhost: h", "x-api-key: [redacted]\r\nhost: h"),
        ("'api_key': '12ab34', 'n': 1", "'api_key': '[redacted]', 'n': 1"),
        ("Incorrect API key provided: sk-proj-ab12cd34.", "Incorrect API key provided: [redacted]."),
        ("key sk-ab12****************wxyz is wrong", "key [redacted] is wrong"),
        ("a risk-averse task-runner", "a risk-averse task-runner"),
        ("Bearer [redacted]", "Bearer [redacted]"),
    ],
)
def test_what_looks_like_a_key_is_masked_unasked(text, expected):
    """Keys we were never told, of proxies and other users, are masked by their shape."""
    assert Redactor([]).text(text) == expected
    assert Redactor([]).text(expected) == expected


def test_a_message_is_redacted_before_it_is_clipped():
    """A key across the limit of 800 characters is not halved into something the redactor would not know."""
    redactor = Redactor([KEY])
    message = "x" * (MAX_CHARS - 4) + KEY + "y" * 50_000
    assert redactor.error(message) == ("x" * (MAX_CHARS - 4) + MASK)[:MAX_CHARS]
    assert len(redactor.error("z" * 5000)) == MAX_CHARS
    assert redactor.error("short") == "short"


def test_short_and_empty_secrets():
    """An unset key shreds no text; a short one is cut out where it stands whole."""
    assert Redactor(["", "  ", "abc"]).text("abc of a b c") == "abc of a b c"
    assert Redactor(["EMPTY"]).text("key EMPTY, EMPT, %45MPTY") == "key [redacted], EMPT, [redacted]"


def test_the_redactor_does_not_show_what_it_hides():
    """Printing it, as a traceback tool may, tells nothing."""
    assert not leaks(repr(Redactor([KEY])), KEY)

"""A server, or a proxy before it, that echoes the key wherever it can: the key is in no field of the record."""

import base64
import json
import urllib.parse

import pytest

from loadkit.call.choose import TRANSPORTS
from loadkit.call.request import Call
from loadkit.record.jsonl import Writer

KEY = "zq/Live+0123456789-abcdefghij"
SSE = [("Content-Type", "text/event-stream"), ("Connection", "close")]
FORMS = {
    "as it is": lambda key: key,
    "in a header": lambda key: f"Authorization: Bearer {key}",
    "URL-encoded": lambda key: urllib.parse.quote(key, safe=""),
    "escaped": lambda key: "".join(f"\\u{ord(ch):04x}" for ch in key),
    "base64": lambda key: base64.b64encode(f"user:{key}".encode()).decode(),
    "cut": lambda key: key[:12],
    "behind a long text": lambda key: "x" * 790 + key,
    "at the end of a clipped name": lambda key: "y" * 88 + key,
}


def event(doc):
    """One event with this JSON."""
    return b"data: " + json.dumps(doc).encode() + b"\n\n"


def stream(echo, **more):
    """A complete stream that names the echo in every place an OpenAI chunk has for a name."""
    named = {"id": echo, "model": echo, "system_fingerprint": echo, "object": "chat.completion.chunk"}
    token = {**named, "choices": [{"index": 0, "delta": {"content": echo}, "finish_reason": None}]}
    last = {**named, "choices": [{"index": 0, "delta": {}, "finish_reason": echo}], **more}
    return event(token) + event(last) + b"data: [DONE]\n\n"


def error(echo):
    """An error object with the echo in each of its strings."""
    return {"error": {"message": f"wrong key {echo}", "code": echo, "type": echo, "param": echo, "metadata": echo}}


# name: (status, headers, body) from the echo
PLACES = {
    "names of a stream": lambda echo: (200, SSE, stream(echo)),
    "in-band error": lambda echo: (200, SSE, event(error(echo))),
    "in-band error after a token": lambda echo: (200, SSE, stream(echo)[:-14] + event(error(echo))),
    "broken finish reason": lambda echo: (
        200, SSE, event({"choices": [{"delta": {}, "finish_reason": {"type": "abort", "message": echo}}]}),
    ),
    "error event without JSON": lambda echo: (200, SSE, b"event: error\ndata: " + echo.encode() + b"\n\n"),
    "error body": lambda echo: (401, [("Content-Type", "application/json")], json.dumps(error(echo)).encode()),
    "flat error body": lambda echo: (400, [], json.dumps({"message": echo, "code": echo, "type": echo}).encode()),
    "error is a string": lambda echo: (401, [], json.dumps({"error": echo}).encode()),
    "HTML title": lambda echo: (502, [("Content-Type", "text/html")], f"<title>{echo}</title>".encode()),
    "plain text": lambda echo: (403, [], echo.encode()),
    "no answer of this protocol": lambda echo: (200, SSE, event({"you sent": echo})),
    "not an answer at all": lambda echo: (200, [("Content-Type", "text/html")], f"<html>{echo}</html>".encode()),
    "headers": lambda echo: (429, [("Retry-After", echo), ("X-Key", echo), ("WWW-Authenticate", echo)], b"{}"),
    "content-encoding": lambda echo: (200, [*SSE, ("Content-Encoding", echo)], b"\x1f\x8b"),
}  # fmt: skip


def shows(text, secret):
    """Whether eight characters of the secret stand together in the text, as they are or encoded."""
    stretches = [secret[at : at + 8] for at in range(len(secret) - 7)]
    found = [
        form(stretch) for stretch in stretches for form in (FORMS["as it is"], FORMS["URL-encoded"], FORMS["escaped"])
    ]
    whole = FORMS["base64"](secret)[8:-2]  # what depends on the secret alone
    return any(each in text for each in (*found, *(whole[at : at + 11] for at in range(len(whole) - 10))))


def test_the_search_finds_every_form():
    """`shows` is not blind: it sees every form of the key that the servers below send."""
    assert all(shows(form(KEY), KEY) for form in FORMS.values())
    assert not shows("[redacted]", KEY)


@pytest.mark.parametrize("name", sorted(TRANSPORTS))
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("form", FORMS)
def test_no_echo_reaches_the_record(form, place, name, serve, caller, prompt, tmp_path):
    """Wherever and however the server writes the key, neither the record nor its line in the file shows it."""
    status, headers, body = PLACES[place](FORMS[form](KEY))
    lines = [f"HTTP/1.1 {status} {FORMS[form](KEY)}", f"Content-Length: {len(body)}"]
    lines += [f"{header}: {value}" for header, value in headers]
    seen = []

    def script(peer):
        seen.append(peer.request()[0])
        peer.send("\r\n".join([*lines, "", ""]).encode() + body)
        peer.gone()

    transport = TRANSPORTS[name](None)
    record = caller(serve(script).url(path="/v1"), transport, key=KEY).run(Call(lambda: prompt, {"request_id": "r1"}))
    transport.close()
    path = tmp_path / "records.jsonl"
    writer = Writer(path)
    writer.write(record)
    writer.close()
    assert f"Authorization: Bearer {KEY}".encode() in seen[0]
    for text in (*map(str, record.to_json().values()), record.error_message or ""):
        assert not shows(text, KEY)
    assert not shows(path.read_text(encoding="utf-8"), KEY)
    assert record.http_status == status


def test_server_text_is_clipped(play):
    """Names of any length and kind end as short text."""
    long = "n" * 5000 + "\ud800"
    case = {"status": 200, "headers": {"content-type": "text/event-stream"}, "end": {"how": "chunked_end"}}
    record = play({**case, "reads": [[1, stream(long).decode()]]}, "loadkit").record
    for field in ("response_id", "response_model", "fingerprint", "finish_reason"):
        assert 0 < len(getattr(record, field)) <= 200
    record = play({**case, "reads": [[1, event(error(long)).decode()]]}, "loadkit").record
    assert len(record.error_message) <= 800
    assert max(len(record.error_code), len(record.error_type)) <= 100

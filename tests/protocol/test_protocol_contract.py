"""What holds for every protocol in the table: headers, bodies and the reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.protocol import PROTOCOLS, Chunk

NAMES = ["openai-chat", "openai-completions", "anthropic", "ollama"]


def prompt_of(body: dict) -> str:
    """The user message of a body of any protocol."""
    return body["prompt"] if "prompt" in body else body["messages"][0]["content"]


def test_the_table_is_closed():
    """These protocols and no others, under their own names."""
    assert list(PROTOCOLS) == NAMES
    assert [protocol.name for protocol in PROTOCOLS.values()] == NAMES


@pytest.mark.parametrize("name", PROTOCOLS)
@given(
    text=st.text(st.characters(blacklist_categories=["Cs"])), model=st.text(st.characters(blacklist_categories=["Cs"]))
)
def test_the_message_is_spliced_between_head_and_tail(name, text, model):
    """head + escaped message + tail is the JSON body, for any text and any model name."""
    head, tail = PROTOCOLS[name].body(model)
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].encode()
    body = json.loads(head + escaped + tail)
    assert prompt_of(body) == text
    assert body["model"] == model
    assert body["stream"] is True


@pytest.mark.parametrize("name", PROTOCOLS)
def test_limits_and_temperature(name):
    """128 output tokens and temperature 0 unless asked otherwise; None leaves temperature out."""
    body = json.loads(b"".join(PROTOCOLS[name].body("m")))
    place = body["options"] if name == "ollama" else body
    assert (place.get("num_predict", place.get("max_tokens")), place["temperature"]) == (128, 0)
    bare = json.loads(b"".join(PROTOCOLS[name].body("m", 16, None)))
    place = bare["options"] if name == "ollama" else bare
    assert place.get("num_predict", place.get("max_tokens")) == 16
    assert "temperature" not in place


@pytest.mark.parametrize("name", NAMES[:2])
def test_openai_fields(name):
    """Usage is asked for with the stream; forced length and the newer limit field only when asked."""
    protocol = PROTOCOLS[name]
    plain = json.loads(b"".join(protocol.body("m")))
    assert plain["stream_options"] == {"include_usage": True}
    assert not {"ignore_eos", "min_tokens"} & set(plain)
    forced = json.loads(
        b"".join(protocol.body("m", 9, ignore_eos=True, min_tokens=9, max_tokens_field="max_completion_tokens"))
    )
    assert (forced["ignore_eos"], forced["min_tokens"], forced["max_completion_tokens"]) == (True, 9, 9)
    assert "max_tokens" not in forced
    assert "stream_options" not in json.loads(b"".join(protocol.body("m", stream=False)))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_extra_fields_are_merged(name):
    """Extra fields are added, objects merged one level deep, None leaves a field out, the prompt cannot be replaced."""
    protocol = PROTOCOLS[name]
    extra = {"cache_prompt": False, "options": {"num_ctx": 8}, "stream_options": None, "名": "é"}
    head, tail = protocol.body("m", extra=extra)
    body = json.loads(head + tail)
    assert (body["cache_prompt"], body["名"]) == (False, "é")
    assert body["options"]["num_ctx"] == 8
    assert ("num_predict" in body["options"]) is (name == "ollama")
    assert "stream_options" not in body
    assert "é".encode() in head + tail
    with pytest.raises(ValueError, match="the prompt"):
        protocol.body("m", extra={"prompt" if name == "openai-completions" else "messages": "x"})


@pytest.mark.parametrize("name", PROTOCOLS)
def test_headers(name):
    """Streams are asked for uncompressed; the key is in its own header and nowhere else."""
    protocol = PROTOCOLS[name]
    headers = protocol.headers("sk-1")
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Accept"] == ("application/x-ndjson" if name == "ollama" else "text/event-stream")
    assert headers["Content-Type"] == "application/json"
    assert ("anthropic-version" in headers) is (name == "anthropic")
    carrier = "x-api-key" if name == "anthropic" else "Authorization"
    assert [key for key, value in headers.items() if "sk-1" in value] == [carrier]
    assert "sk-1" not in str(protocol.headers("sk-1", "none"))
    assert protocol.headers("sk-1", "bearer")["Authorization"] == "Bearer sk-1"
    assert protocol.headers("sk-1", "x-api-key")["x-api-key"] == "sk-1"
    assert not {"Authorization", "x-api-key"} & set(protocol.headers(None))
    with pytest.raises(ValueError, match="auth is"):
        protocol.headers("sk-1", "basic")


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("doc", [None, [], 5, "x", {}, {"choices": 5, "message": [], "type": [], "usage": "x"}])
def test_a_reader_takes_any_json(name, doc):
    """JSON of another shape says nothing and raises nothing."""
    chunk = PROTOCOLS[name].read(None, doc)
    assert isinstance(chunk, Chunk)
    assert (chunk.content, chunk.reasoning, chunk.tool, chunk.finish_reason) == ("", "", "", None)
    assert chunk.done is False


def test_paths_follow_a_base_url():
    """Bases of the OpenAI styles end in /v1; the others are hosts."""
    paths = [protocol.path for protocol in PROTOCOLS.values()]
    assert paths == ["/chat/completions", "/completions", "/v1/messages", "/api/chat"]

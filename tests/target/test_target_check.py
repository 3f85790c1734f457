"""The check: base URL, key, model, window, in this order, stopping at the first failure with one line."""

import json

import pytest

from loadkit.plan.endpoint import Endpoint
from loadkit.plan.errors import ConfigError, TargetError
from loadkit.record.names import Outcome
from loadkit.target import bounded, control

CHAT, MODELS, TOKENIZE = "POST /v1/chat/completions", "GET /v1/models", "POST /tokenize"
KEY = "k3y-of-the-lab-0123456789"
HTML = (200, "text/html", b"<html><title>Welcome to nginx!</title><body>It works</body></html>")


def long(body):
    """Whether a request is the longer one of the two."""
    return len(body["messages"][0]["content"]) > 500


def healthy(server, *names):
    """Routes of a server that answers everything, listing the named models."""
    server.routes = {MODELS: server.models(*names), CHAT: lambda body: server.stream(1000 if long(body) else 20)}


def failure(checked, url, **fields):
    """The TargetError of a check, one printable line."""
    with pytest.raises(TargetError) as caught:
        checked(url, **fields)
    assert caught.value.message.isprintable()
    return caught.value


def test_a_healthy_server_is_found_in_three_requests(server, checked):
    """The list, a short request and one of about 1K tokens; each finding is one line; the only model is taken."""
    healthy(server, "m1")
    found = checked(server.url)
    assert [route for route in server.order if route != TOKENIZE] == [MODELS, CHAT, CHAT]
    short, longer = (body for route, body, _ in server.asked if route == CHAT)
    assert (short["model"], short["max_tokens"], short["stream"]) == ("m1", 16, True)
    assert len(short["messages"][0]["content"].split()) <= 16
    assert 600 <= len(longer["messages"][0]["content"].split()) <= 800
    assert found.endpoint.model == "m1"
    assert [ping.outcome for ping in found.pings] == ["ok", "ok"]
    assert [line.split(":")[0] for line in checked.said] == ["base URL", "model", "prompt tokens"]


def test_nobody_there(checked, dead_url):
    """Where nobody listens, the base URL is what to check, and nothing else is asked."""
    error = failure(checked, dead_url, model="m1")
    assert error.outcome is Outcome.CONNECT_ERROR
    assert "cannot be reached" in error.message
    assert "check the base URL" in error.message


@pytest.mark.parametrize("model", ["m1", None])
@pytest.mark.parametrize(
    ("answer", "outcome", "advice"),
    [
        (lambda server: server.refusal(404, "no such path"), Outcome.NOT_FOUND, "check the base URL"),
        (lambda server: HTML, Outcome.BAD_RESPONSE_SHAPE, "check the base URL"),
        (lambda server: server.document({"hello": "world"}), Outcome.BAD_RESPONSE_SHAPE, "check the base URL"),
        (lambda server: (405, "text/plain", b"only GET here"), Outcome.HTTP_OTHER, "check the base URL"),
        (lambda server: (301, "text/plain", b""), Outcome.HTTP_OTHER, "redirects"),
        (lambda server: server.refusal(403, "not for you"), Outcome.FORBIDDEN, "what the key may use"),
    ],
    ids=["404", "html", "json", "405", "301", "403"],
)
def test_a_wrong_place_is_told_before_the_model(server, checked, answer, outcome, advice, model):
    """A server that is not the API is named as such, whether or not a model is named, after one short request."""
    server.routes = {"*": answer(server)}
    error = failure(checked, server.url, model=model)
    assert error.outcome is outcome
    assert advice in error.message
    assert server.order == [MODELS, CHAT]


@pytest.mark.parametrize("model", ["m1", None])
def test_a_refused_key_ends_it_at_the_list(server, checked, model):
    """401 on the list: no request that generates follows, and the line names the variable, never the key."""
    server.routes = {"*": server.refusal(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key")}
    error = failure(checked, server.url, model=model, key=KEY, key_env="LAB_KEY")
    assert error.outcome is Outcome.AUTH
    assert "LAB_KEY" in error.message
    assert KEY not in error.message
    assert server.order == [MODELS]
    assert server.asked[0][2]["Authorization"] == f"Bearer {KEY}"


def test_a_key_refused_later_is_not_quoted(server, checked):
    """A public list and a 401 on the request itself: the server's words are told without the key in them."""
    server.routes = {MODELS: server.models("m1"), CHAT: server.refusal(401, f"Incorrect API key provided: {KEY}")}
    error = failure(checked, server.url, key=KEY, key_env="LAB_KEY")
    assert error.outcome is Outcome.AUTH
    assert "check the key in LAB_KEY" in error.message
    assert "Incorrect API key provided" in error.message
    assert KEY not in error.message


def test_without_a_key_the_line_says_how_to_give_one(server, checked):
    """A server that wants a key, and none was given."""
    server.routes = {"*": server.refusal(401, "missing key")}
    assert "set LOADKIT_API_KEY" in failure(checked, server.url).message
    server.routes[MODELS] = server.models("m1")
    assert "set LOADKIT_API_KEY" in failure(checked, server.url).message


def test_a_forbidden_list_says_nothing_about_requests(server, checked):
    """Keys may be allowed to generate and not to list: with a model named, the check goes on."""
    healthy(server)
    server.routes[MODELS] = server.refusal(403, "missing scope")
    assert checked(server.url, model="m1").endpoint.model == "m1"


def test_several_models_are_listed_and_none_is_chosen(server, checked):
    """Several models and none named: a ConfigError with their names, before anything generates."""
    healthy(server, "alpha", "beta\x1b[31m")
    with pytest.raises(ConfigError, match="lists 2 models, name one with --model: alpha, beta") as caught:
        checked(server.url)
    assert caught.value.message.isprintable()
    assert server.order == [MODELS]


def test_no_model_listed_and_none_named(server, checked):
    """The place is right (it complains of the model), so the model is what has to be named."""
    server.routes = {CHAT: server.refusal(400, "model is required")}
    with pytest.raises(ConfigError, match="name one with --model"):
        checked(server.url)
    assert server.order == [MODELS, CHAT]


def test_a_model_that_is_not_listed_may_answer(server, checked):
    """Aliases are not listed: the request decides, and the line says that the name is not in the list."""
    healthy(server, "m1")
    assert checked(server.url, model="alias").endpoint.model == "alias"
    assert "not among the 1" in checked.said[1]


def test_a_model_that_is_not_there(server, checked):
    """The line says that the model is what to change, and what the server lists."""
    message = "The model `m9` does not exist"
    server.routes = {
        MODELS: server.models("m1", "m2"),
        CHAT: server.refusal(404, message, code="model_not_found"),
    }
    error = failure(checked, server.url, model="m9")
    assert error.outcome is Outcome.MODEL_NOT_FOUND
    assert "check the model name; it lists m1, m2" in error.message


def test_a_window_below_1k_is_a_finding(server, checked):
    """The short request is answered and the longer one refused for its length: no error, and the window is known."""
    refused = server.refusal(
        400,
        "This model's maximum context length is 512 tokens. However, you requested 1016 tokens.",
        code="context_length_exceeded",
    )
    server.routes = {MODELS: server.models("m1"), CHAT: lambda body: refused if long(body) else server.stream(20)}
    found = checked(server.url)
    assert [ping.outcome for ping in found.pings] == ["ok", "context_length_exceeded"]
    assert found.window == 512


def test_a_fault_of_configuration_at_1k_is_an_error(server, checked):
    """The longer request is refused for something else than its length: the line says that a shorter one worked."""
    refused = server.refusal(400, "unknown field stream_options")
    server.routes = {MODELS: server.models("m1"), CHAT: lambda body: refused if long(body) else server.stream(20)}
    error = failure(checked, server.url)
    assert error.outcome is Outcome.BAD_REQUEST
    assert "a shorter one was answered" in error.message


@pytest.mark.parametrize(
    ("declared", "facts", "window"),
    [(2048, {"max_model_len": 512}, 2048), (None, {"max_model_len": 512}, 512), (None, {"meta": {"n_ctx": 640}}, 640),
     (None, {"max_model_len": True}, None), (None, {"max_model_len": "512"}, None)],
)  # fmt: skip
def test_the_window_is_the_declared_one_else_the_listed_one(server, checked, declared, facts, window):
    """What a person declares beats what the server lists; values that are no number of tokens are not taken."""
    healthy(server)
    server.routes[MODELS] = server.models("m1", **facts)
    assert checked(server.url, window=declared).window == window


def test_a_small_listed_window_makes_the_longer_request_shorter(server, checked):
    """A window of 512 is not refused by a check that knows it."""
    healthy(server)
    server.routes[MODELS] = server.models("m1", max_model_len=512)
    checked(server.url)
    texts = [body["messages"][0]["content"] for route, body, _ in server.asked if route == CHAT]
    assert len(texts[1].split()) <= 512 // 8 + 2


def test_without_pings_nothing_generates(server, checked):
    """`ping` False asks for the list only where a model is needed, and for nothing where one is named."""
    healthy(server, "m1")
    assert checked(server.url, ping=False).endpoint.model == "m1"
    assert server.order == [MODELS]
    checked(server.url, ping=False, model="m2")
    assert server.order == [MODELS]


def test_what_a_server_says_stays_on_one_line(server, checked):
    """Line breaks and escape sequences in an error do not reach the terminal."""
    server.routes = {"*": server.refusal(500, "first\nsecond\r\n\x1b[2Jthird")}
    assert "first second" in failure(checked, server.url, model="m1").message


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 100_000, b"null", b'"text"', b'{"data": 1}', b'{"data": [1, null, {}, {"id": 5}, {"id": ""}]}', b""],
    ids=["cut", "deep", "null", "text", "number", "rows", "empty"],
)
def test_a_list_of_any_shape_is_survived(server, checked, body):
    """Whatever the list is, a named model is checked by a request."""
    healthy(server)
    server.routes[MODELS] = (200, "application/json", body)
    assert checked(server.url, model="m1").endpoint.model == "m1"


def test_an_endless_list_is_left(server, checked, monkeypatch):
    """A list larger than any is not read to its end, which is said, and fatal only where no model is named."""
    monkeypatch.setattr(bounded, "MAX_ANSWER", 100_000)
    healthy(server)
    listed = {"data": [{"id": f"model-{n}"} for n in range(20_000)]}
    server.routes[MODELS] = (200, "application/json", json.dumps(listed).encode())
    assert checked(server.url, model="model-3").endpoint.model == "model-3"
    assert "did not finish" in checked.said[1]
    error = failure(checked, server.url)
    assert error.outcome is Outcome.READ_TIMEOUT
    assert "did not finish" in error.message
    assert "--model" in error.message


def test_a_key_in_the_model_list_is_shown_nowhere(server, checked):
    """A server that puts our key into its models' names: it is asked for the real name, and nobody else sees it."""
    healthy(server, f"m-{KEY}")
    server.routes[MODELS] = server.models(f"m-{KEY}", max_model_len=4096)
    found = checked(server.url, key=KEY)
    assert [body["model"] for route, body, _ in server.asked if route == CHAT] == [f"m-{KEY}"] * 2
    assert found.window == 4096
    shown = [*checked.said, *(facts.id for facts in found.listed), *(str(ping.to_json()) for ping in found.pings)]
    assert not [text for text in shown if KEY[:8] in text]
    assert found.pings[0].model == "m-[redacted]"
    server.routes[MODELS] = server.models(f"m-{KEY}", "m2")
    with pytest.raises(ConfigError, match=r"m-\[redacted\], m2"):
        checked(server.url, key=KEY)


@pytest.mark.parametrize(
    ("facts", "window", "bos"),
    [
        ({"max_model_len": 10**9, "bos_tokens": 16}, 10**9, 16),
        ({"max_model_len": 10**9 + 1, "bos_tokens": 17}, None, None),
        ({"max_model_len": 0, "context_length": 512, "bos_tokens": -1}, 512, None),
        ({"max_model_len": True, "bos_tokens": False}, None, None),
    ],
)
def test_impossible_facts_of_a_model_are_not_believed(server, facts, window, bos):
    """A window or a number of BOS tokens that no model has counts as not stated."""
    server.routes[MODELS] = server.models("m1", **facts)
    with control.open_client(endpoint := Endpoint("lab", f"{server.url}/v1"), None, {}) as client:
        assert control.list_models(client, endpoint) == [control.ModelFacts("m1", window, bos)]

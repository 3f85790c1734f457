"""The server over real sockets, with the built-in model in its own process."""

from __future__ import annotations

import contextlib
import json
import signal
import socket

import pytest

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
HELLO_TOKENS = len("<user\nhello>\n<assistant\n")  # < and > stand for the special tokens


def test_ready_line(engine):
    """The ready line says where the engine is and what it serves."""
    ready = engine.ready
    assert ready["ready"] is True
    assert ready["url"].startswith("http://127.0.0.1:")
    assert ready["model"] == "loadkit-builtin"
    assert (ready["context"], ready["threads"], ready["bos_tokens"], ready["slots"]) == (2048, 1, 0, 3)
    shape = ready["dimensions"]
    assert (shape["layers"], shape["hidden"], shape["heads"], shape["kv_heads"], shape["tied"]) == (6, 384, 6, 2, False)
    assert ready["pid"] == engine.process.pid
    assert ready["load_s"] < 20


def test_models_and_health(engine):
    """The model list has the window and the BOS policy; health is ok."""
    status, _, models = engine.request("GET", "/v1/models")
    (entry,) = models["data"]
    assert status == 200
    assert (entry["id"], entry["max_model_len"], entry["bos_tokens"]) == ("loadkit-builtin", 2048, 0)
    assert entry["meta"]["n_ctx"] == 2048
    assert engine.request("GET", "/health")[::2] == (200, {"status": "ok"})


def test_a_chat_answer(engine):
    """A whole answer: text of one character per token, usage, finish reason, timings."""
    status, headers, body = engine.post(CHAT, {"model": "loadkit-builtin", "messages": HELLO, "max_tokens": 5})
    assert status == 200
    assert headers["content-type"] == "application/json"
    (choice,) = body["choices"]
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"]) == 5
    assert choice["message"]["content"].isascii()
    assert choice["finish_reason"] == "length"
    assert body["usage"] == {
        "prompt_tokens": HELLO_TOKENS,
        "completion_tokens": 5,
        "total_tokens": HELLO_TOKENS + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (body["timings"]["prompt_n"], body["timings"]["predicted_n"]) == (HELLO_TOKENS, 5)
    assert body["timings"]["prompt_ms"] > 0


def test_a_chat_stream(engine):
    """Role alone first, one chunk per token, finish, usage with timings, [DONE]; the same text as without a stream."""
    options = {"messages": HELLO, "max_tokens": 6, "temperature": 0}
    stream = engine.stream(CHAT, **options, stream_options={"include_usage": True})
    assert stream.answer.status == 200
    assert stream.answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    role, *texts, finish, usage = list(stream)
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(texts) == 6
    assert all(list(text["choices"][0]["delta"]) == ["content"] for text in texts)
    assert all(text["choices"][0]["finish_reason"] is None for text in (role, *texts))
    assert finish["choices"][0]["delta"] == {}
    assert finish["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 6
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert set(usage["timings"]) == {
        "cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
        "predicted_per_token_ms", "predicted_per_second", "queue_ms", "tokenize_ms",
    }  # fmt: skip
    assert len({event["id"] for event in (role, *texts, finish, usage)}) == 1
    whole = engine.post(CHAT, options)[2]["choices"][0]["message"]["content"]
    assert "".join(text["choices"][0]["delta"]["content"] for text in texts) == whole


def test_without_usage_the_finish_chunk_is_last(engine):
    """No usage unless asked for; the timings are in the last chunk."""
    *_, last = list(engine.stream(CHAT, messages=HELLO, max_tokens=2))
    assert last["choices"][0]["finish_reason"] == "length"
    assert "usage" not in last
    assert last["timings"]["predicted_n"] == 2


def test_completions_take_text_and_token_ids(engine):
    """The same prompt as text and as token ids gives the same answer; lengths are exact."""
    text = engine.post("/v1/completions", {"prompt": "abc", "max_tokens": 4})[2]
    ids = engine.post("/v1/completions", {"prompt": [97, 98, 99], "max_tokens": 4})[2]
    assert text["choices"] == ids["choices"]
    assert text["usage"]["prompt_tokens"] == 3
    assert text["object"] == "text_completion"
    chunks = list(engine.stream("/v1/completions", prompt="abc", max_tokens=4))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text["choices"][0]["text"]
    assert engine.post("/v1/completions", {"prompt": "abc"})[2]["usage"]["completion_tokens"] == 16


def test_temperature_follows_its_seed(engine):
    """At temperature 1 a seed repeats its answer and another seed does not."""
    answers = [
        engine.post(CHAT, {"messages": HELLO, "max_tokens": 20, "temperature": 1, "seed": seed})[2]["choices"]
        for seed in (1, 1, 2)
    ]
    assert answers[0] == answers[1] != answers[2]


def test_tokenize(engine):
    """Text as it stands, and messages with their template as a request would count them."""
    assert engine.post("/tokenize", {"content": "hé"})[2] == {"tokens": [104, 195, 169], "count": 3}
    assert engine.post("/tokenize", {"messages": HELLO})[2]["count"] == HELLO_TOKENS
    assert engine.post("/tokenize", {"content": 5})[0] == 400


def test_the_window(engine):
    """Up to the window a request runs; above it is 400 context_length_exceeded with the limit and what was asked."""
    fits = {"prompt": [65] * 2040, "max_tokens": 8}
    assert engine.post("/v1/completions", fits)[2]["usage"]["total_tokens"] == 2048
    status, _, body = engine.post("/v1/completions", fits | {"max_tokens": 9})
    assert status == 400
    assert body["error"]["code"] == "context_length_exceeded"
    assert body["error"]["type"] == "invalid_request_error"
    assert "maximum context length is 2048 tokens" in body["error"]["message"]
    assert "you requested 2049 tokens (2040 in the prompt, 9 in the completion)" in body["error"]["message"]
    status, _, body = engine.post(CHAT, {"messages": [{"role": "user", "content": "x" * 3000}], "stream": True})
    assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
    assert f"resulted in {3000 + HELLO_TOKENS - 5} tokens" in body["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", CHAT, {"messages": HELLO, "model": "other"}, 404, "model_not_found"),
        ("POST", CHAT, {"messages": HELLO, "max_tokens": -1}, 400, "invalid_value"),
        ("POST", CHAT, {}, 400, "invalid_value"),
        ("POST", CHAT, b"{", 400, "invalid_json"),
        ("POST", CHAT, b"", 400, "invalid_json"),
        ("POST", "/v1/completions", {"prompt": ""}, 400, "invalid_value"),
        ("POST", "/v1/nothing", {}, 404, "not_found"),
        ("GET", "/", None, 404, "not_found"),
        ("GET", CHAT, None, 405, "method_not_allowed"),
        ("POST", "/v1/models", {}, 405, "method_not_allowed"),
        ("POST", "x://[/v1", {}, 400, "invalid_request"),
    ],
)
def test_refusals(engine, method, path, body, status, code):
    """Each mistake has its status and code in OpenAI's error shape."""
    got, _, answer = engine.request(method, path, body)
    assert (got, answer["error"]["code"]) == (status, code)
    assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_one_connection_serves_many_requests(engine):
    """Keep-alive survives answers, streams and refusals, and a query string is no part of the path."""
    connection = engine.connect()
    seen = set()
    for path, body, expected in [
        (CHAT, {"messages": HELLO, "max_tokens": 1, "stream": True}, 200),
        (CHAT, {"messages": []}, 400),
        ("/nothing", {"a": 1}, 404),
        (CHAT + "?x=1", {"messages": HELLO, "max_tokens": 1}, 200),
    ]:
        connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == expected
        seen.add(connection.sock.getsockname())
    assert len(seen) == 1
    connection.close()


def raw_exchange(engine, data: bytes) -> bytes:
    """Everything the server sends for some bytes until it closes."""
    with socket.create_connection(("127.0.0.1", engine.port), timeout=60) as connection:
        connection.sendall(data)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_chunked_framing(engine):
    """A stream on the wire: every event is one chunk of its stated length, the last chunk is empty."""
    body = json.dumps({"messages": HELLO, "max_tokens": 3, "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answer, _, rest = raw_exchange(engine, head.encode() + body).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in answer
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :].startswith(b"\r\n")
        rest = rest[int(size, 16) + 2 :]
    assert chunks[-1] == b""
    assert chunks[-2] == b"data: [DONE]\n\n"
    assert len(chunks) == 1 + 3 + 1 + 1 + 1
    assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks[:-1])
    assert all(chunk.count(b"\n") == 2 for chunk in chunks[:-1])


def test_http_1_0_is_closed_at_the_end(engine):
    """An HTTP/1.0 client gets the events bare and the end of the stream as the end of the connection."""
    body = json.dumps({"messages": HELLO, "max_tokens": 2, "stream": True}).encode()
    head = f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    answer, _, rest = raw_exchange(engine, head + body).partition(b"\r\n\r\n")
    assert b"chunked" not in answer
    assert rest.startswith(b"data: {")
    assert rest.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Length: 99999999999\r\n", b"413"),
        ("Content-Length: -5\r\n", b"400"),
        ("Content-Length: abc\r\n", b"400"),
        ("Transfer-Encoding: chunked\r\n", b"411"),
        ("", b"411"),
    ],
)
def test_bodies_are_bounded(engine, headers, status):
    """A body of unknown, senseless or too large length is refused unread, and the connection ends."""
    answer = raw_exchange(engine, f"POST {CHAT} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
    assert answer.split()[1] == status
    assert b"Connection: close" in answer
    assert engine.request("GET", "/health")[0] == 200


def test_streams_run_together(engine):
    """A short answer starts and ends while a long one is being written."""
    long = engine.stream(CHAT, messages=HELLO, max_tokens=1900)
    long.next_text()
    short = engine.post(CHAT, {"messages": HELLO, "max_tokens": 3})[2]
    assert short["usage"]["completion_tokens"] == 3
    assert engine.metric("num_requests_running") == 1
    long.next_text()
    long.leave()


def test_a_full_queue_and_a_client_that_leaves(start_engine):
    """One slot, one place in the queue: the third is 503 with Retry-After; when the first leaves, the second runs."""
    engine = start_engine("--slots", "1", "--queue", "1", "--context", "4096")
    first = engine.stream(CHAT, messages=HELLO, max_tokens=4000)
    first.next_text()
    second = engine.stream(CHAT, messages=HELLO, max_tokens=3)
    assert next(iter(second))["choices"][0]["delta"]["role"] == "assistant"
    status, headers, body = engine.post(CHAT, {"messages": HELLO, "max_tokens": 3})
    assert (status, body["error"]["code"]) == (503, "overloaded")
    assert 1 <= int(headers["retry-after"]) <= 60
    assert (engine.metric("num_requests_running"), engine.metric("num_requests_waiting")) == (1, 1)
    first.leave()
    *_, last = list(second)
    assert last["choices"][0]["finish_reason"] == "length"
    assert engine.metric('request_success_total{finished_reason="abort"}') == 1
    assert engine.metric("requests_rejected_total") == 1
    assert engine.metric("num_requests_running") == 0


def test_the_longest_idle_connection_makes_room(start_engine):
    """With every connection taken, a newcomer is served and the one that has waited longest is closed."""
    engine = start_engine("--connections", "20")
    address = ("127.0.0.1", engine.port)
    assert engine.ready["connections"] == 20
    with contextlib.ExitStack() as held:
        first, second, *_ = [held.enter_context(socket.create_connection(address, timeout=60)) for _ in range(20)]
        assert engine.request("GET", "/health")[0] == 200
        assert first.recv(1) == b""
        second.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert second.recv(100).startswith(b"HTTP/1.1 200 ")


def test_the_same_seed_serves_the_same_text(start_engine, engine):
    """Another process with the same seed gives the same answer, another seed another one."""
    asked = {"messages": HELLO, "max_tokens": 12}
    answers = [
        served.post(CHAT, asked)[2]["choices"]
        for served in (engine, start_engine("--seed", "0"), start_engine("--seed", "7"))
    ]
    assert answers[0] == answers[1] != answers[2]


def test_it_ends_with_its_parent(start_engine):
    """When stdin ends the process ends with code 0, also in the middle of an answer."""
    engine = start_engine()
    stream = engine.stream(CHAT, messages=HELLO, max_tokens=9000)
    stream.next_text()
    assert engine.end() == 0
    stream.leave()


def test_sigterm_ends_it(start_engine):
    """SIGTERM ends the process with code 0 and without a word on stderr."""
    engine = start_engine()
    engine.process.send_signal(signal.SIGTERM)
    assert engine.process.wait(timeout=20) == 0
    assert engine.process.stderr.read() == b""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "nowhere"], b"no such file or folder"),
        (["--context", "999999"], b"context must be between 1 and the model's 32768"),
        (["--host", "256.0.0.1"], b"cannot listen on 256.0.0.1"),
        (["--slots", "0"], b"'0' is not an integer of at least 1"),
        (["--queue", "-1"], b"at least 0"),
    ],
)
def test_a_wrong_option_is_one_line(start_engine, options, message):
    """What cannot start says why on stderr, ends with code 2 and prints no ready line."""
    engine = start_engine(*options)
    assert engine.ready == {}
    assert engine.process.wait(timeout=20) == 2
    error = engine.process.stderr.read()
    assert message in error
    assert b"Traceback" not in error


def test_a_gguf_is_served(golden, write_gguf, start_engine):
    """A GGUF file serves under its file name, with its own tokenizer and template."""
    engine = start_engine("--model", str(write_gguf(golden, "F16", name="tiny-model.gguf")))
    assert engine.ready["model"] == "tiny-model"
    assert engine.ready["source"] == "gguf"
    body = engine.post(CHAT, {"messages": HELLO, "max_tokens": 8, "ignore_eos": True})[2]
    assert body["usage"]["prompt_tokens"] == HELLO_TOKENS - 1  # "he" is one token
    assert body["usage"]["completion_tokens"] == 8


def test_a_client_that_waits_to_send_its_body(engine):
    """`Expect: 100-continue` is answered before the body comes, and not when the body will be refused."""
    body = json.dumps({"content": "abc"}).encode()
    head = (
        f"POST /tokenize HTTP/1.1\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", engine.port), timeout=60) as client:
        client.sendall(head.encode())
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        said = b""
        while part := client.recv(65536):
            said += part
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.endswith(b'{"tokens":[97,98,99],"count":3}')
    refused = head.replace(str(len(body)), "9" * 12)
    assert raw_exchange(engine, refused.encode()).startswith(b"HTTP/1.1 413 ")

"""Servers met on boards, on real sockets: Rockchip's RKLLM demo as it is shipped, and rkllama's Ollama API.

Both are written after their sources: airockchip/rknn-llm flask_server.py (1.3.0), NotPunchnox/rkllama 0.0.74.
"""

import json
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from loadkit.call.ask import Ask
from loadkit.call.choose import open_transport
from loadkit.call.request import Call, Caller
from loadkit.call.retry import RetryBudget, RetryPolicy
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.prompt.prompt import Prompt, escape, text_sha256
from loadkit.protocol import PROTOCOLS
from loadkit.target.check import check
from loadkit.target.control import open_client
from loadkit.target.findings import described

ANSWER = ["The", " sky", " is", " blue", " because", " air", " scatters", " short", " waves", " most", "."]


class Handler(BaseHTTPRequestHandler):
    """What both servers share: JSON in, JSON out, and a body of unknown length that ends with the connection."""

    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def asked(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, doc, status=200, kind="application/json"):
        body = json.dumps(doc).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def write(self, text):
        self.wfile.write(text.encode())
        self.wfile.flush()


class Demo(Handler):
    """The RKLLM demo: one request at a time, 503 meanwhile; a letter an event, since its callback adds text to a list.

    `server.appends` is the demo with that corrected. `server.busy` counts down requests that find it busy.
    """

    def do_GET(self):
        model = {"id": "Qwen2.5-1.5B_W8A8_RK3588", "object": "model", "created": 0, "owned_by": "rkllm"}
        known = self.path == "/v1/models"
        self.reply({"object": "list", "data": [model]} if known else {"error": "not found"}, 200 if known else 404)

    def do_POST(self):
        asked = self.asked()
        if self.path != "/v1/chat/completions":
            self.reply({"error": "not found"}, 404)
            return
        if self.server.busy:
            self.server.busy -= 1
            busy = {"message": "RKLLM_Server is busy! Maybe you can try again later.", "type": "server_error"}
            self.reply({"error": {**busy, "param": None, "code": None}}, 503)
            return
        text = "".join(ANSWER)
        words = len(asked["messages"][-1]["content"].split())
        if self.server.whole or not asked.get("stream"):
            usage = {"prompt_tokens": words, "completion_tokens": len(text.split()), "total_tokens": 0}
            message = {"role": "assistant", "content": text}
            choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
            self.reply({"object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})
            return
        self.stream("text/event-stream")
        for piece in [None, *(ANSWER if self.server.appends else text)]:
            self.chunk({"role": "assistant"} if piece is None else {"content": piece}, None)
            time.sleep(0.001)
        self.chunk({"content": ""}, "stop")
        self.write("data: [DONE]\n\n")

    def chunk(self, delta, finish):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        self.write(f"data: {json.dumps({'object': 'chat.completion.chunk', 'model': 'm', 'choices': [choice]})}\n\n")


class Rkllama(Handler):
    """rkllama's /api/chat: NDJSON, counts by its tokenizer, durations in ns that are whole ms, a constant load time."""

    def do_GET(self):
        known = self.path == "/api/tags"
        self.reply(
            {"models": [{"name": "qwen2.5:1.5b", "model": "qwen2.5:1.5b"}]} if known else {}, 200 if known else 404
        )

    def do_POST(self):
        asked = self.asked()
        if self.path != "/api/chat":
            self.reply({"error": "not found"}, 404)
            return
        self.stream("application/x-ndjson")
        if self.server.hangs:
            self.line("Aborted inference by Timeout (60 seconds). Try again.", done=False)
            self.line("", done=True, done_reason="stop", eval_duration=None, prompt_eval_duration=None)
            return
        tokens = 20 + len(asked["messages"][-1]["content"]) // 4
        for piece in ANSWER:
            self.line(piece, done=False)
            time.sleep(0.001)
        self.line(
            "", done=True, done_reason="stop", total_duration=900_000_000, load_duration=100_000_000,
            prompt_eval_count=tokens, prompt_eval_duration=210_000_000, eval_count=11, eval_duration=640_000_000,
        )  # fmt: skip

    def line(self, text, **more):
        self.write(
            json.dumps({"model": "qwen2.5:1.5b", "message": {"role": "assistant", "content": text}, **more}) + "\n"
        )


@pytest.fixture
def serve():
    """Starts a server with some state; returns its address."""
    running = []

    def start(handler, **state):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        for name in ("busy", "appends", "whole", "hangs"):
            setattr(server, name, state.get(name, 0))
        running.append((server, threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)))
        running[-1][1].start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join(10)
        server.server_close()


def measured(endpoint, policy=None, text="why is the sky blue", **labels):
    """The record of one request as a run measures it; waits between attempts are none."""
    url = url_for(endpoint, PROTOCOLS[endpoint.protocol].path)
    transport = open_transport(url, {})
    prompt = Prompt((escape(text),), 40, True, "tokenizer", chars=len(text), sha256=text_sha256(text))
    caller = Caller(
        ask=Ask(endpoint, None, max_tokens=16, target="board"),
        transport=transport,
        budget=RetryBudget(),
        rng=random.Random(1),
        policy=policy or RetryPolicy(),
        sleep=lambda seconds: None,
    )
    try:
        return caller.run(Call(lambda: prompt, {"request_id": "r", **labels}))
    finally:
        transport.close()


def demo(url):
    return Endpoint(name="board", base_url=f"{url}/v1", model="m")


def checked(endpoint):
    said = []
    with open_client(endpoint, None, {}) as client:
        return check(client, endpoint, None, {}, say=said.append), said


def test_a_busy_demo_is_tried_again_and_the_refusals_stay_visible(serve):
    """Two 503, then an answer: the first attempt's outcome, each wait, and the answering attempt's own clock."""
    record = measured(demo(serve(Demo, busy=2)))
    assert record.outcome == "ok"
    assert [(a["outcome"], a["http_status"]) for a in record.attempts] == [
        ("overloaded", 503), ("overloaded", 503), ("ok", 200),
    ]  # fmt: skip
    assert record.retry_wait_ms is not None
    assert record.ttft_first_attempt_ms > record.ttft_ms


def test_the_demos_letters_are_no_tokens(serve):
    """As shipped it streams letters and no usage: no decode rate is made of them. With the callback corrected it is."""
    letters = measured(demo(serve(Demo)))
    assert (letters.outcome, letters.token_events) == ("ok", len("".join(ANSWER)))
    assert (letters.output_tokens, letters.tpot_ms, letters.decode_tokens_per_s) == (None, None, None)
    assert "events_are_characters" in letters.flags
    assert "usage: not stated, and an event is a character: output tokens are not known" in described(letters)
    assert letters.ttft_ms > 0
    tokens = measured(demo(serve(Demo, appends=1)))
    assert (tokens.output_tokens, tokens.output_tokens_source) == (len(ANSWER), "events")
    assert tokens.tpot_ms > 0


def test_usage_that_counts_words_is_refused_as_tokens(serve):
    """Whole answers of the demo count words: the check sees it, says so, and no record takes them for tokens."""
    found, said = checked(demo(serve(Demo, whole=1)))
    assert any("counts words" in line for line in said)
    assert found.endpoint.word_usage
    assert all(ping.prompt_tokens_source != "usage" for ping in found.pings)
    record = measured(found.endpoint)
    assert (record.prompt_tokens, record.prompt_tokens_source) == (40, "tokenizer")
    assert (record.output_tokens, record.output_tokens_source) == (None, None)


def test_a_server_that_counts_tokens_is_not_taken_for_one_that_counts_words(serve):
    """rkllama's counts differ from the words of both pings: they stand, and the prompts are calibrated by them."""
    endpoint = Endpoint(name="board", base_url=serve(Rkllama), model="qwen2.5:1.5b", protocol="ollama")
    found, said = checked(endpoint)
    assert not found.endpoint.word_usage
    assert any("estimate" in line for line in said)


def test_rkllamas_clocks_stand_beside_ours(serve):
    """Counts are its tokenizer's, durations in ns become the engine's fields; the client's TTFT is its own."""
    endpoint = Endpoint(name="board", base_url=serve(Rkllama), model="qwen2.5:1.5b", protocol="ollama")
    record = measured(endpoint)
    assert (record.outcome, record.output_tokens, record.output_tokens_source) == ("ok", 11, "usage")
    assert (record.server_prefill_ms, record.server_decode_ms) == (210.0, 640.0)
    assert record.prompt_tokens_source == "usage"
    assert 0 < record.ttft_ms < 10_000
    assert len(record.itl_ms) == record.output_tokens - 1


def test_rkllamas_timeout_is_no_answer(serve):
    """HTTP 200 with the text of a timeout: an error in the stream, with that text, and no token."""
    endpoint = Endpoint(name="board", base_url=serve(Rkllama, hangs=1), model="qwen2.5:1.5b", protocol="ollama")
    record = measured(endpoint, RetryPolicy(), phase="measure")
    assert (record.outcome, record.token_events) == ("stream_error", 0)
    assert "Aborted inference by Timeout" in record.error_message

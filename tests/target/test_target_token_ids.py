"""Prompts as token ids: tokenised by the client before t0, and only where the server reads them as ids."""

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from loadkit.call.ask import Ask
from loadkit.call.choose import open_transport
from loadkit.call.request import Call, Caller
from loadkit.call.retry import NO_RETRY, RetryBudget
from loadkit.plan.endpoint import Endpoint, url_for
from loadkit.plan.errors import ConfigError
from loadkit.prompt.prompt import Prompt, escape, text_sha256
from loadkit.prompt.token_ids import TokenIds, around
from loadkit.protocol import PROTOCOLS
from loadkit.target.check import check
from loadkit.target.control import open_client

TEXT = 'Say "hi"\nto 北京'


@pytest.fixture
def tokenizer(tmp_path):
    """A tokenizer.json of single characters with a BOS of id 0 in front."""
    letters = sorted({*map(chr, range(32, 127)), *TEXT})
    vocabulary = {"<s>": 0, "<unk>": 1, **{letter: i + 2 for i, letter in enumerate(letters)}}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


class Completions(BaseHTTPRequestHandler):
    """A /completions that takes ids; `server.joins` reads an array as text, as some servers do."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply({"object": "list", "data": [{"id": "m"}]} if self.path == "/v1/models" else {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked.get("prompt")
        self.server.seen.append(prompt)
        count = len("\n".join(map(str, prompt or []))) if self.server.joins else len(prompt or [])
        usage = {"prompt_tokens": count, "completion_tokens": 2}
        events = [{"choices": [{"text": text, "finish_reason": end}]} for text, end in (("a", None), ("b", "stop"))]
        lines = [f"data: {json.dumps(event)}\n\n" for event in (*events, {"choices": [], "usage": usage})]
        self.reply("".join([*lines, "data: [DONE]\n\n"]), "text/event-stream")

    def reply(self, doc, kind="application/json"):
        body = (doc if isinstance(doc, str) else json.dumps(doc)).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    made.seen, made.joins = [], False
    thread = threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    made.endpoint = Endpoint("b", f"http://127.0.0.1:{made.server_port}/v1", "m", protocol="openai-completions")
    yield made
    made.shutdown()
    thread.join(10)
    made.server_close()


def prompt_of(text):
    return Prompt((escape(text[:3]), escape(text[3:])), 9, True, "tokenizer", chars=len(text), sha256=text_sha256(text))


def test_a_prompt_becomes_its_ids(tokenizer):
    """Escapes are undone before tokenising, BOS comes first, and the count is that of the ids."""
    encoder = TokenIds(tokenizer)
    made = encoder.encode(prompt_of(TEXT))
    ids = json.loads(b"[" + b"".join(made.content) + b"]")
    assert ids == encoder.ids(TEXT)
    assert (ids[0], len(ids), made.tokens, made.exact) == (0, len(TEXT) + 1, len(TEXT) + 1, True)
    assert (made.chars, made.sha256) == (len(TEXT), text_sha256(TEXT))


def test_the_body_holds_an_array():
    """The quotes around the text become brackets, and nothing else changes."""
    plain = PROTOCOLS["openai-completions"].body("m", max_tokens=5)
    head, tail = around(plain)
    assert json.loads(head + b"1,2,3" + tail) == json.loads(b"x".join(plain)) | {"prompt": [1, 2, 3]}


def test_a_request_sends_ids_and_its_tokenizer_time_is_apart(server, tokenizer):
    """The server reads exactly the ids; tokenising is before t0 and in a field of its own, inside the build."""
    endpoint = server.endpoint
    transport = open_transport(url_for(endpoint, "/completions"), {})
    ticks = iter(range(0, 10**12, 1_000_000))
    caller = Caller(
        ask=Ask(endpoint, None), transport=transport, budget=RetryBudget(), rng=random.Random(1), policy=NO_RETRY,
        encode=TokenIds(tokenizer).encode, clock=lambda: next(ticks), rest=lambda: None,
    )  # fmt: skip
    record = caller.run(Call(lambda: prompt_of(TEXT), {"request_id": "r"}))
    transport.close()
    assert server.seen == [TokenIds(tokenizer).ids(TEXT)]
    assert (record.outcome, record.prompt_tokens, record.prompt_tokens_source) == ("ok", len(TEXT) + 1, "usage")
    assert record.tokenize_ms == 1.0
    assert record.build_ms == 3.0


def checked(endpoint, **how):
    with open_client(endpoint, None, {}) as client:
        return check(client, endpoint, None, {}, token_ids=True, **how)


def test_the_check_sends_ids_too(server, tokenizer):
    """Pings are ids whose number the server confirms; BOS is what they have more than the text."""
    found = checked(server.endpoint, tokenizer=str(tokenizer))
    assert all(isinstance(prompt, list) for prompt in server.seen)
    assert found.counting.overhead_tokens == 1


def test_a_server_that_reads_ids_as_text_is_found_out(server, tokenizer):
    """Its count is another one: the run does not begin."""
    server.joins = True
    with pytest.raises(
        ConfigError, match=r"--token-ids: 53 ids were sent and the server read \d+ tokens: leave it out"
    ):
        checked(server.endpoint, tokenizer=str(tokenizer))


def test_chat_takes_text(server, tokenizer):
    """Another protocol than completions is refused before anything is sent, and so is a file that is no tokenizer."""
    chat = Endpoint("b", server.endpoint.base_url, "m")
    with pytest.raises(ConfigError, match="--token-ids needs --protocol openai-completions: openai-chat takes text"):
        checked(chat, tokenizer=str(tokenizer))
    tokenizer.write_text("{}")
    with pytest.raises(ConfigError, match=r"--token-ids needs a tokenizer\.json"):
        checked(server.endpoint, tokenizer=str(tokenizer))
    assert server.seen == []

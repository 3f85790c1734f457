import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from loadkit.prompt.counters import TokenizerJsonCounter
from loadkit.prompt.filler import filler
from loadkit.prompt.prompt import Prompt


def _train(path: Path, vocab: int, *, split_at_spaces: bool) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_at_spaces)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False)
    texts = [paragraph for name in ("en", "zh") for paragraph in filler(name).text.split("\n\n")]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="session")
def bpe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer.json trained on the fillers, its tokens bounded by spaces as is usual."""
    return _train(tmp_path_factory.mktemp("bpe") / "tokenizer.json", 3000, split_at_spaces=True)


@pytest.fixture(scope="session")
def crossing_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without any split before merging: tokens reach over spaces, so head and body could join."""
    return _train(tmp_path_factory.mktemp("crossing") / "tokenizer.json", 1500, split_at_spaces=False)


@pytest.fixture(scope="session")
def bpe(bpe_file: Path) -> TokenizerJsonCounter:
    return TokenizerJsonCounter(bpe_file)


@pytest.fixture(scope="session")
def crossing(crossing_file: Path) -> TokenizerJsonCounter:
    return TokenizerJsonCounter(crossing_file)


@pytest.fixture
def message() -> Callable[[Prompt], str]:
    """The text a JSON reader finds in a prompt."""
    return lambda prompt: json.loads(b'"' + b"".join(prompt.content) + b'"')


@pytest.fixture
def tokenize_server(bpe: TokenizerJsonCounter) -> Iterator[Callable[[str], tuple[str, list[dict]]]]:
    """Starts a /tokenize of the given form and returns its address and the list of what it was asked."""
    servers: list[ThreadingHTTPServer] = []

    def start(form: str) -> tuple[str, list[dict]]:
        asked: list[dict] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked.append(body)
                status, answer = _answers[form](body, bpe)
                raw = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/tokenize", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _llamacpp(body: dict, counter: TokenizerJsonCounter) -> tuple[int, dict]:
    bos = [-1] if body.get("add_special") else []
    return 200, {"tokens": bos + list(range(counter.count(body.get("content", ""))))}


def _vllm(body: dict, counter: TokenizerJsonCounter) -> tuple[int, dict]:
    if "prompt" not in body:
        return 400, {"error": {"message": "prompt is missing", "code": 400}}
    ids = ([-1] if body.get("add_special_tokens", True) else []) + list(range(counter.count(body["prompt"])))
    return 200, {"count": len(ids), "max_model_len": 4096, "tokens": ids}


_answers: dict[str, Callable[[dict, TokenizerJsonCounter], tuple[int, object]]] = {
    "llama.cpp": _llamacpp,
    "vllm": _vllm,
    "missing": lambda body, counter: (404, {"detail": "Not Found"}),
    "list": lambda body, counter: (200, ["not", "an", "object"]),
    "silent": lambda body, counter: (200, {"ok": True}),
}

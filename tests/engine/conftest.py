"""Fixtures of the engine's tests: golden models, a GGUF writer, and engines in their own process."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize

from loadkit.engine import hf_folder
from loadkit.engine.config import ModelConfig, from_hf

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


@dataclass
class Golden:
    """A tiny random model with the logits `transformers` computes for it."""

    name: str
    folder: Path
    tokens: list[int]  # [T]
    logits: np.ndarray  # [T, V]

    @property
    def architecture(self) -> str:
        """GGUF's name of it."""
        return "llama" if self.name == "llama3" else self.name


@pytest.fixture(params=["qwen2", "llama", "qwen3", "llama3"])
def golden(request: pytest.FixtureRequest) -> Golden:
    """Each golden model in turn: qwen2 has biases, qwen3 norms of queries and keys, llama3 stretched RoPE; only llama
    has a head of its own."""
    stored = np.load(GOLDEN / f"{request.param}.npz")
    return Golden(request.param, GOLDEN / request.param, stored["tokens"].tolist(), stored["logits"])


@pytest.fixture
def golden_tensors() -> Callable[[Golden], dict[str, np.ndarray]]:
    """All tensors of a golden model in Hugging Face's names and layout."""

    def read(golden: Golden) -> dict[str, np.ndarray]:
        file = hf_folder.SafetensorsFile(golden.folder / "model.safetensors")
        return {name: file.read(name) for name in file.entries}

    return read


@pytest.fixture
def write_gguf(tmp_path: Path, golden_tensors: Any) -> Callable[..., Path]:
    """Write a golden model as GGUF as converters do: llama's query and key rows interleaved, matrices in `kind`.

    `as_f32` writes the values that `kind` leaves of them in float32; with `plain_words` every token is a whole text.
    """

    def write(golden: Golden, kind: str = "F32", *, name: str = "tiny.gguf", **how: bool) -> Path:
        config = json.loads((golden.folder / "config.json").read_text())
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, golden.architecture)
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
        if (factors := config_of(golden).rope_factors) is not None:
            writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
        add_vocabulary(writer, [f"w{index}" for index in range(256)] if how.get("plain_words") else byte_tokens())
        for hf_name, values in golden_tensors(golden).items():
            if golden.architecture == "llama" and ("q_proj" in hf_name or "k_proj" in hf_name):
                heads = config["num_attention_heads" if "q_proj" in hf_name else "num_key_value_heads"]
                values = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            add_tensor(writer, gguf_name(hf_name, golden.architecture), values, kind, how.get("as_f32", False))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def config_of(golden: Golden) -> ModelConfig:
    return from_hf(json.loads((golden.folder / "config.json").read_text()))


def gguf_name(name: str, architecture: str) -> str:
    """GGUF's own table of names, so that the loader's table is checked against it."""
    mapping = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], 4)
    found = mapping.get_name(name, try_suffixes=(".weight", ".bias"))
    assert found is not None, name
    return found


def add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: str, as_f32: bool) -> None:
    kind = kind if values.ndim == 2 else "F32"
    quantised = gguf.GGMLQuantizationType[kind]
    data = quantize(values.astype(np.float32), quantised)
    if as_f32:
        data, quantised = gguf.quants.dequantize(data, quantised), gguf.GGMLQuantizationType.F32
    writer.add_tensor(name, data, raw_dtype=quantised)


def byte_tokens() -> list[str]:
    """252 byte tokens (the four highest bytes occur in no UTF-8 text), one merge, and chat specials: 256 tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    letters = [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
    return [*letters[:252], "he", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def add_vocabulary(writer: gguf.GGUFWriter, tokens: list[str]) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 253 + [3] * 3)
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(253)
    writer.add_add_bos_token(False)
    turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    writer.add_chat_template(turns + "{{ '<|im_start|>assistant\n' }}")


@pytest.fixture(scope="session")
def real_weights() -> Path:
    """The SmolLM2 file, from LOADKIT_WEIGHTS (the file or its folder) or weights/ in the repository."""
    place = Path(os.environ.get("LOADKIT_WEIGHTS") or ROOT / "weights")
    path = place / WEIGHTS if place.is_dir() else place
    if not path.is_file():
        pytest.skip(f"no real weights at {path}: put {WEIGHTS} there or set LOADKIT_WEIGHTS")
    return path


class Engine:
    """A served engine in its own process, with a small HTTP client."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "loadkit.engine", "serve", "--stdin-guard", "--threads", "1", *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(line) if line else {}
        if self.ready:
            self.port = int(self.ready["url"].rsplit(":", 1)[1].removesuffix("/v1"))

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], Any]:
        """Status, headers (lower case) and the parsed body of one exchange on a connection of its own."""
        connection = self.connect()
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        kind = answer.headers.get_content_type()
        value = json.loads(raw) if kind == "application/json" else raw.decode()
        return answer.status, {name.lower(): text for name, text in answer.getheaders()}, value

    def post(self, path: str, body: Any) -> tuple[int, dict[str, str], Any]:
        return self.request("POST", path, body)

    def stream(self, path: str, **body: Any) -> Stream:
        """A started stream; its head has been read."""
        return Stream(self.connect(), path, {"stream": True, **body})

    def metric(self, name: str) -> float:
        """The value of a sample of /metrics, without the prefix."""
        text = self.request("GET", "/metrics")[2]
        (value,) = [line.split()[1] for line in text.splitlines() if line.split()[0] == f"loadkit_engine_{name}"]
        return float(value)

    def end(self) -> int:
        """Close stdin and wait for the process to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=20)


class Stream:
    """Server-sent events as they come."""

    def __init__(self, connection: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> None:
        self.connection = connection
        connection.request("POST", path, json.dumps(body).encode())
        self.answer = connection.getresponse()

    def __iter__(self) -> Iterator[Any]:
        """Parsed events up to [DONE]."""
        while line := self.answer.readline():
            data = line.strip().removeprefix(b"data: ")
            if data == b"[DONE]":
                assert self.answer.read() == b"\n"
                return
            if data:
                yield json.loads(data)

    def next_text(self) -> str:
        """The next piece of text."""
        for event in self:
            for choice in event["choices"]:
                if text := choice["delta"].get("content"):
                    return text
        raise AssertionError("the stream ended")

    def leave(self) -> None:
        """Go away in the middle."""
        self.answer.close()
        self.connection.close()


@pytest.fixture(scope="session")
def start_engine() -> Iterator[Callable[..., Engine]]:
    """Start engines that end with the session."""
    started: list[Engine] = []

    def start(*options: str) -> Engine:
        started.append(Engine(*options))
        return started[-1]

    yield start
    for engine in started:
        if engine.process.poll() is None:
            engine.end()
        for pipe in (engine.process.stdout, engine.process.stderr):
            assert pipe is not None
            pipe.close()


@pytest.fixture(scope="session")
def engine(start_engine: Callable[..., Engine]) -> Engine:
    """The built-in model with room for three streams."""
    return start_engine("--context", "2048", "--slots", "3")

"""A real engine for the acceptance tests: llama.cpp on a random byte-level model of 270 KB, and `loadkit run` on it."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import gguf
import numpy as np
import pytest

from loadkit.record import jsonl

HIDDEN, HEADS, KV_HEADS, FFN, LAYERS = 64, 2, 1, 192, 2
WINDOW = 9216
VARIABLES = ("LOADKIT_", "OPENAI_", "ANTHROPIC_")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ '<|im_start|>assistant\n' }}"
)


def write_model(path):
    """A random Qwen2 in GGUF: a token is a byte, so the length of a prompt needs no trust in any tokenizer.

    Only small letters have a row in the output head, each row with its opposite: greedy decoding always finds a letter
    with a score above zero, so every token is visible text and the server holds nothing back.
    """
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4 * WINDOW)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    vocabulary = add_vocabulary(writer)
    rng = np.random.default_rng(0)

    def random(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float16)

    head, letters = np.zeros((vocabulary, HIDDEN), np.float16), random(13, HIDDEN)
    head[ord("a") : ord("n")], head[ord("n") : ord("z") + 1] = letters, -letters
    writer.add_tensor("token_embd.weight", random(vocabulary, HIDDEN))
    writer.add_tensor("output.weight", head)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    key_value = HIDDEN // HEADS * KV_HEADS
    matrices = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (key_value, HIDDEN),
        "attn_v": (key_value, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (FFN, HIDDEN),
        "ffn_up": (FFN, HIDDEN),
        "ffn_down": (HIDDEN, FFN),
    }
    for layer in range(LAYERS):
        for name, shape in matrices.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", random(*shape))
        for name in ("attn_q", "attn_k", "attn_v"):
            writer.add_tensor(f"blk.{layer}.{name}.bias", np.zeros(matrices[name][0], np.float32))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer):
    """256 byte tokens in byte order, one merge (llama.cpp refuses none), three specials: 260. Returns the number."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    letters = [chr(byte) if byte in shown else chr(next(others)) for byte in range(256)]
    tokens = [*letters, "he", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 3)
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    return len(tokens)


@pytest.fixture(scope="session")
def llamacpp(tmp_path_factory):
    """The address of a llama.cpp server with a window of 9216 tokens."""
    model = tmp_path_factory.mktemp("model") / "bytes.gguf"
    write_model(model)
    script = Path(__file__).with_name("llamacpp_server.py")
    with (model.parent / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, script, model, str(WINDOW)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    line = process.stdout.readline()
    assert line, (model.parent / "log").read_text()[-2000:]
    yield json.loads(line)["url"]
    process.stdin.close()
    assert process.wait(20) == 0
    process.stdout.close()


@pytest.fixture(scope="session")
def loadkit_run():
    """Runs `loadkit run` as a user does; returns the finished process and what its run folder holds."""

    def finish(words, **options):
        command = [sys.executable, "-m", "loadkit.cli.main", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, **options)

    return partial(run, finish)


@pytest.fixture(scope="session")
def loadkit_run_warm(finished_warm):
    """As `loadkit_run`, in a process that need not import anything first."""
    return partial(run, finished_warm)


def run(finish, out, *words, **variables):
    """One run with its folders in `out`."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    done = finish(("run", *words, "--out", str(out)), cwd=out, env={**environ, **variables}, timeout=110)
    folder = out / "latest"
    assert folder.is_dir(), done.stderr
    reading = jsonl.read(folder / "records.jsonl")
    assert reading.damaged == 0
    return done, reading.records, json.loads((folder / "summary.json").read_text())

"""The engine and llama.cpp on the same file: two programs that share no line of code must agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loadkit.engine import gguf_file
from loadkit.engine.model import Model

TOKENS = 16
EOS = 253  # never chosen, since the requests ignore it
# Of a natural log-probability. With a float16 file llama.cpp rounds the activations to float16 too, this engine not.
TOLERANCE = {"F32": 5e-4, "F16": 5e-3}
CLOSE = 1e-3  # two candidates nearer than this may change places


@pytest.mark.parametrize("kind", TOLERANCE)
def test_log_probabilities_equal_llamacpp(golden, write_gguf, kind):
    """The 20 likeliest tokens have llama.cpp's log-probabilities at every step, and the greedy choice is the same
    until two candidates are too close to call."""
    path = write_gguf(golden, kind, plain_words=True)
    prompts = [golden.tokens[:length] for length in (1, 5, 64, 180)]
    compared = 0
    model = Model(*gguf_file.load(gguf_file.GgufFile(path)))
    for prompt, steps in zip(prompts, llamacpp(path, prompts), strict=True):
        assert len(steps) == TOKENS
        cache = model.new_cache(len(prompt) + TOKENS)
        logits = model.prefill(prompt, cache)
        for step in steps:
            ours = logits - np.logaddexp.reduce(logits.astype(float))
            theirs = {int(token): value for token, value in step["top"].items()}
            assert len(theirs) == 20
            assert max(abs(ours[token] - value) for token, value in theirs.items()) < TOLERANCE[kind]
            compared += 1
            ours[EOS] = -np.inf
            first, second = np.sort(ours)[:-3:-1]
            if first - second < max(CLOSE, TOLERANCE[kind]):
                break
            assert ours.argmax() == step["id"]
            (logits,) = model.decode([step["id"]], [cache])
    assert compared > 2 * TOKENS


def llamacpp(path: Path, prompts: list[list[int]]) -> list[list[dict]]:
    """llama.cpp's steps for each prompt."""
    script = Path(__file__).with_name("llamacpp_logprobs.py")
    command = [sys.executable, str(script), str(path), str(TOKENS)]
    done = subprocess.run(command, input=json.dumps(prompts), capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout.splitlines()[-1])

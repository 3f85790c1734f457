"""Real text out of real weights."""

from __future__ import annotations

import pytest

from loadkit.engine.load import Loaded, load
from loadkit.engine.model import Model


@pytest.fixture(scope="module")
def smollm(real_weights) -> Loaded:
    return load(str(real_weights))


def greedy(loaded: Loaded, message: str, limit: int) -> str:
    model = Model(loaded.config, loaded.weights, context=256)
    prompt = loaded.tokenizer.encode(loaded.template.render([{"role": "user", "content": message}]))
    cache = model.new_cache(len(prompt) + limit)
    token = int(model.prefill(prompt, cache).argmax())
    answer = []
    while token not in loaded.stops and len(answer) < limit:
        answer.append(token)
        token = int(model.decode([token], [cache])[0].argmax())
    return b"".join(map(loaded.tokenizer.piece, answer)).decode()


def test_it_greets_in_english(smollm):
    """SmolLM2 answers a greeting with one."""
    assert greedy(smollm, "Hello! Who are you?", 30).startswith("Hello")


def test_it_knows_a_capital(smollm):
    """SmolLM2 knows the capital of France."""
    assert "Paris" in greedy(smollm, "What is the capital of France?", 20)


def test_its_dimensions_and_tokens(smollm):
    """SmolLM2-135M's published dimensions; its tokenizer cuts digits apart and adds no BOS."""
    assert smollm.config.parameters == 134_515_008
    assert (smollm.config.layers, smollm.config.group, smollm.config.context_length) == (30, 3, 8192)
    assert smollm.tokenizer.bos is None
    assert smollm.tokenizer.encode("hi 123 there") == [6004, 216, 33, 34, 35, 665]
    assert smollm.stops == {2}

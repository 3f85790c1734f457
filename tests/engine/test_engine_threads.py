"""Weights laid out for any number of threads: the same logits, and no more memory on the way than a layer or two."""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest

from loadkit.engine import weights
from loadkit.engine.config import ModelConfig
from loadkit.engine.model import Model

# Heads and columns that no number of threads divides, fewer words than threads, one key head, one query per key.
ODD = {
    "qwen2": {"heads": 6, "kv_heads": 3, "head_dim": 4, "hidden": 20, "ffn": 29, "vocab": 37, "qkv_bias": True},
    "qwen3": {"heads": 4, "kv_heads": 4, "head_dim": 6, "hidden": 18, "ffn": 7, "vocab": 31, "qk_norm": True},
    "llama": {"heads": 5, "kv_heads": 1, "head_dim": 2, "hidden": 12, "ffn": 3, "vocab": 4, "qkv_bias": False},
    "untied": {"heads": 7, "kv_heads": 7, "head_dim": 2, "hidden": 16, "ffn": 65, "vocab": 53, "tied": False},
}
ROWS = (1, 2, 16, 17, 33)
RELATIVE = 1e-5


def config_of(name: str) -> ModelConfig:
    """An odd model of two layers."""
    plain = {"tied": True, "qkv_bias": False, "qk_norm": False}
    return ModelConfig(
        architecture="llama",
        layers=2,
        context_length=128,
        rope_theta=10000.0,
        rms_eps=1e-5,
        **(plain | ODD[name]),
    )


def tensors_of(config: ModelConfig) -> dict[str, np.ndarray]:
    """Random tensors in Hugging Face's names, biases and gains among them."""
    rng = np.random.default_rng(5)
    D, F, V = config.hidden, config.ffn, config.vocab
    q, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float32)

    def gain(count: int) -> np.ndarray:
        return rng.uniform(0.5, 1.5, count).astype(np.float32)

    found = {weights.EMBEDDING: matrix(V, D) * D**0.5, weights.FINAL_NORM: gain(D)}
    found |= {} if config.tied else {weights.HEAD: matrix(V, D)}
    for index in range(config.layers):
        layer = f"model.layers.{index}."
        for name, rows in {"q": q, "k": kv, "v": kv}.items():
            found[f"{layer}self_attn.{name}_proj.weight"] = matrix(rows, D)
            found[f"{layer}self_attn.{name}_proj.bias"] = gain(rows) - 1
            found[f"{layer}self_attn.{name}_norm.weight"] = gain(config.head_dim)
        found[f"{layer}self_attn.o_proj.weight"] = matrix(D, q)
        found |= {f"{layer}mlp.{name}_proj.weight": matrix(F, D) for name in ("gate", "up")}
        found[f"{layer}mlp.down_proj.weight"] = matrix(D, F)
        for name in ("input", "post_attention"):
            found[f"{layer}{name}_layernorm.weight"] = gain(D)
    return found


def model_of(name: str, threads: int, *, pairs: bool = False) -> Model:
    config = config_of(name)
    return Model(config, weights.pack(config, tensors_of(config).__getitem__, rope_pairs=pairs, threads=threads))


def answers(model: Model) -> dict[str, np.ndarray]:
    """Logits of prompts of all numbers of rows, of as many sequences decoding together, and of both in one pass."""
    rng = np.random.default_rng(6)

    def words(count: int) -> list[int]:
        return rng.integers(model.config.vocab, size=count).tolist()

    found = {}
    for rows in ROWS:
        cache = model.new_cache(80)
        found[f"prompt {rows}"] = model.logits(model.extend(words(rows), cache)).copy()
        caches = [model.new_cache(8) for _ in range(rows)]
        for one in caches:
            model.extend(words(3), one)
        found[f"decode {rows}"] = model.decode(words(rows), caches).copy()
        logits, hidden = model.mixed(words(rows), caches, words(rows), cache)
        found[f"mixed {rows}"] = np.concatenate([logits, model.logits(hidden)])
    return found


@pytest.mark.parametrize("name", ODD)
def test_any_number_of_threads_gives_the_logits_of_one(name):
    """Within 1e-5 of the largest, also where threads have no key head, no column or no word, and above 16 rows."""
    alone = answers(model_of(name, 1))
    assert all(np.isfinite(logits).all() and logits.std() > 0.1 for logits in alone.values())
    for threads in (2, 3, 5, 11):
        for rows, logits in answers(model_of(name, threads)).items():
            assert np.abs(logits - alone[rows]).max() <= RELATIVE * np.abs(alone[rows]).max(), (threads, rows)


@pytest.mark.parametrize(("name", "threads"), list(product(ODD, (1, 3))))
def test_rows_that_go_together_get_what_each_gets_alone(name, threads):
    """One row is a dot product, a few go in blocks, many with columns for rows: the same numbers by each way."""
    model = model_of(name, threads)
    tokens = np.random.default_rng(7).integers(model.config.vocab, size=66).tolist()
    one = model.new_cache(80)
    singly = np.concatenate([model.logits(model.extend([token], one)) for token in tokens])
    for rows in ROWS:
        cache = model.new_cache(80)
        steps = [tokens[at : at + rows] for at in range(0, len(tokens), rows)]
        together = np.concatenate([model.logits(model.extend(step, cache)) for step in steps])
        assert np.abs(together - singly).max() <= RELATIVE * np.abs(singly).max(), rows
        caches = [model.new_cache(80) for _ in range(rows)]
        for at, cache in enumerate(caches):
            model.prefill(tokens[: at + 1], cache)
        decoded = model.decode(tokens[1 : rows + 1], caches)
        assert np.abs(decoded - singly[1 : rows + 1]).max() <= RELATIVE * np.abs(singly).max(), rows


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_loading_takes_no_second_copy_of_the_weights(threads):
    """Beside what stays there are at most the layer that is laid out, and what its tensors were read as."""
    config = ModelConfig(
        architecture="llama", layers=12, hidden=96, heads=6, kv_heads=3, head_dim=16, ffn=256, vocab=64,
        context_length=128, rope_theta=10000.0, rms_eps=1e-5, tied=True, qkv_bias=False,
    )  # fmt: skip
    stored = {name: values.astype(np.float16) for name, values in tensors_of(config).items()}
    tracemalloc.start()
    try:
        loaded = weights.pack(config, lambda name: stored[name].astype(np.float32), rope_pairs=False, threads=threads)
        stays, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    layer = sum(matrix.nbytes for part in loaded.layers[0] for matrix in part.matrices)
    assert stays < 1.02 * (config.layers * layer + loaded.embedding.nbytes) + 200_000
    assert peak - stays < 2 * layer

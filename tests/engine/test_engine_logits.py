"""The forward pass against `transformers` and against itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from loadkit.engine import attention, builtin, gguf_file, hf_folder
from loadkit.engine.config import ModelConfig
from loadkit.engine.errors import EngineError
from loadkit.engine.model import Model
from loadkit.engine.weights import Weights

TOLERANCE = 3e-4  # at logits of unit scale; torch float32 against float64 differs by 1.2e-4 on larger models


def in_chunks(model: Model, tokens: list[int], sizes: list[int]) -> np.ndarray:
    """Logits [T, V] of every position when the prompt goes in in chunks of the given sizes, over and over."""
    cache = model.new_cache(len(tokens))
    rows, at, turn = [], 0, 0
    while at < len(tokens):
        size = sizes[turn % len(sizes)]
        rows.append(model.logits(model.extend(tokens[at : at + size], cache)))
        at, turn = at + size, turn + 1
    return np.concatenate(rows)


def test_logits_equal_transformers(golden):
    """Every position's logits are within 3e-4 of transformers', and every position's likeliest token is the same."""
    model = Model(*hf_folder.load(golden.folder))
    logits = in_chunks(model, golden.tokens, [512])
    assert 0.9 < golden.logits.std() < 1.1
    assert np.abs(logits - golden.logits).max() < TOLERANCE
    assert (logits.argmax(1) == golden.logits.argmax(1)).all()


@pytest.mark.parametrize("sizes", [[1], [7], [64], [130, 3], [200]])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_chunks_and_threads_change_nothing(golden, sizes, threads):
    """The same logits whatever the chunk sizes and however many threads share a chunk."""
    model = Model(*hf_folder.load(golden.folder, threads))
    logits = in_chunks(model, golden.tokens, sizes)
    assert np.abs(logits - golden.logits).max() < TOLERANCE
    assert (logits.argmax(1) == golden.logits.argmax(1)).all()


@pytest.mark.parametrize(("queries", "keys"), [(16, 8), (8, 64), (32, 32)])
def test_attention_blocks_change_nothing(golden, monkeypatch, queries, keys):
    """The running softmax over many blocks of keys gives the logits of a softmax over all of them."""
    monkeypatch.setattr(attention, "QUERY_BLOCK", queries)
    monkeypatch.setattr(attention, "KEY_BLOCK", keys)
    logits = in_chunks(Model(*hf_folder.load(golden.folder)), golden.tokens, [90])
    assert np.abs(logits - golden.logits).max() < TOLERANCE


def test_decode_continues_prefill(golden):
    """Decoding token by token after a prefill gives the logits of prefilling everything."""
    model = Model(*hf_folder.load(golden.folder))
    cache = model.new_cache(len(golden.tokens))
    first = model.prefill(golden.tokens[:50], cache)
    assert np.abs(first - golden.logits[49]).max() < TOLERANCE
    for at in range(50, len(golden.tokens)):
        (logits,) = model.decode([golden.tokens[at]], [cache])
        assert np.abs(logits - golden.logits[at]).max() < TOLERANCE
        assert logits.argmax() == golden.logits[at].argmax()


def test_batched_decode_equals_single(golden):
    """Sequences of unequal length that decode together get the logits each would get alone."""
    model = Model(*hf_folder.load(golden.folder))
    lengths = [1, 33, 150]
    caches = [model.new_cache(200) for _ in lengths]
    for cache, length in zip(caches, lengths, strict=True):
        model.prefill(golden.tokens[:length], cache)
    for step in range(5):
        logits = model.decode([golden.tokens[length + step] for length in lengths], caches)
        expected = golden.logits[[length + step for length in lengths]]
        assert np.abs(logits - expected).max() < TOLERANCE


def test_cache_bounds_are_kept(golden):
    """A sequence cannot grow past its cache or the window, by prefill or by decode."""
    model = Model(*hf_folder.load(golden.folder), context=20)
    cache = model.new_cache(10)
    with pytest.raises(ValueError, match="do not fit a cache of 10"):
        model.extend(golden.tokens[:11], cache)
    model.extend(golden.tokens[:10], cache)
    with pytest.raises(ValueError, match="end of its cache"):
        model.decode([1], [cache])
    with pytest.raises(ValueError, match="do not fit"):
        model.extend(golden.tokens[:21], model.new_cache(100))
    with pytest.raises(EngineError, match="context must be between 1 and the model's 512"):
        Model(model.config, model.weights, context=513)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_failing_thread_does_not_hang_the_others(golden, rank):
    """When one thread fails in the middle of a pass, the pass fails, and the next pass is right again."""
    model = Model(*hf_folder.load(golden.folder, 3))
    lane = model._lanes[rank]
    feed_forward = lane._feed_forward

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    lane._feed_forward = fail
    with pytest.raises(MemoryError, match="no room"):
        model.extend(golden.tokens[:120], model.new_cache(200))
    lane._feed_forward = feed_forward
    assert np.abs(in_chunks(model, golden.tokens, [200]) - golden.logits).max() < TOLERANCE


@settings(max_examples=25, deadline=None)
@given(
    start=st.integers(0, 40), count=st.integers(1, 40), kv_heads=st.integers(1, 3), group=st.integers(1, 3),
    scale=st.sampled_from([0.1, 1.0, 30.0]),
)  # fmt: skip
def test_blocked_attention_equals_its_definition(start, count, kv_heads, group, scale):
    """softmax(q k^T) v over positions not after the query's, for any shape, also when scores are huge."""
    rng = np.random.default_rng(start * 1000 + count)
    config = dims(kv_heads, group)
    q = (scale * rng.standard_normal((count, kv_heads, group, 4))).astype(np.float32)
    keys, values = (rng.standard_normal((kv_heads, 100, 4)).astype(np.float32) for _ in range(2))
    out = np.empty_like(q)
    tolerance = 2e-5 * max(scale / 5, 1)  # float32 scores of hundreds are themselves rounded by 3e-5
    block = pytest.MonkeyPatch()
    with block.context() as patch:
        patch.setattr(attention, "QUERY_BLOCK", 8)
        patch.setattr(attention, "KEY_BLOCK", 5)
        attention.PrefillAttention(config)(q, keys, values, start, out)
    for row in range(count):
        seen = start + row + 1
        scores = np.einsum("kgh,ksh->kgs", q[row].astype(float), keys[:, :seen].astype(float))
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        expected = np.einsum("kgs,ksh->kgh", shares, values[:, :seen].astype(float))
        np.testing.assert_allclose(out[row], expected, atol=tolerance)
        alone = attention.decode_attention(q[row], keys[:, :seen], values[:, :seen])
        np.testing.assert_allclose(alone, expected, atol=tolerance)


def dims(kv_heads: int, group: int) -> ModelConfig:
    return ModelConfig("llama", 1, 8, kv_heads * group, kv_heads, 4, 8, 8, 128, 1e4, 1e-5, False, False)


def test_no_work_above_the_diagonal(monkeypatch):
    """The score products of a prefill cover the lower triangle of blocks and no key after a block's last query."""
    monkeypatch.setattr(attention, "QUERY_BLOCK", 8)
    monkeypatch.setattr(attention, "KEY_BLOCK", 8)
    seen = []
    keep = attention.PrefillAttention._scores
    monkeypatch.setattr(
        attention.PrefillAttention, "_scores", lambda self, q, k: seen.append(k.shape[1]) or keep(self, q, k)
    )
    keys = np.ones((1, 64, 4), np.float32)
    q = np.ones((32, 1, 1, 4), np.float32)
    attention.PrefillAttention(dims(1, 1))(q, keys, keys, 0, np.empty_like(q))
    assert len(seen) == 1 + 2 + 3 + 4
    assert set(seen) == {8}


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_gguf_gives_the_dequantised_weights(golden, write_gguf, kind):
    """A quantised file loads to exactly the weights of a float file that holds its dequantised values."""
    _, packed = gguf_file.load(gguf_file.GgufFile(write_gguf(golden, kind, name="q.gguf")))
    _, plain = gguf_file.load(gguf_file.GgufFile(write_gguf(golden, kind, name="f.gguf", as_f32=True)))
    for one, other in zip(arrays(packed), arrays(plain), strict=True):
        np.testing.assert_array_equal(one, other)


def arrays(weights: Weights) -> list[np.ndarray]:
    layers = [array for parts in weights.layers for part in parts for array in part.matrices]
    return [weights.embedding, weights.head, weights.final_norm, *layers]


@pytest.mark.parametrize(("kind", "tolerance"), [("F32", TOLERANCE), ("F16", 0.02), ("BF16", 0.2), ("Q8_0", 0.2)])
def test_gguf_logits_equal_the_folder(golden, write_gguf, kind, tolerance):
    """A GGUF file gives the folder's logits (llama's interleaved query and key rows included), up to its precision."""
    model = Model(*gguf_file.load(gguf_file.GgufFile(write_gguf(golden, kind))))
    expected = hf_folder.load(golden.folder)[0]
    # These are float32 in the file.
    assert model.config.rms_eps == pytest.approx(expected.rms_eps)
    assert model.config.rope_factors == (expected.rope_factors and pytest.approx(expected.rope_factors))
    assert replace(model.config, rms_eps=expected.rms_eps, rope_factors=expected.rope_factors) == expected
    logits = in_chunks(model, golden.tokens, [512])
    assert np.abs(logits - golden.logits).max() < tolerance


@pytest.mark.parametrize(("kind", "tolerance"), [("F32", TOLERANCE), ("F16", 0.02), ("BF16", 0.2)])
@pytest.mark.parametrize("shards", [1, 3])
def test_folders_in_narrow_types_and_shards(golden, golden_tensors, tmp_path, kind, tolerance, shards):
    """Safetensors in F32, F16 and BF16, whole or in shards, give the golden logits up to their precision."""
    write_folder(tmp_path, golden, golden_tensors(golden), kind, shards)
    model = Model(*hf_folder.load(tmp_path))
    assert np.abs(in_chunks(model, golden.tokens, [512]) - golden.logits).max() < tolerance


def write_folder(folder: Path, golden, tensors: dict[str, np.ndarray], kind: str, shards: int) -> None:
    (folder / "config.json").write_text((golden.folder / "config.json").read_text())
    names = sorted(tensors)
    files = ["model.safetensors"] if shards == 1 else [f"model-{n + 1}-of-{shards}.safetensors" for n in range(shards)]
    where = {name: files[index % len(files)] for index, name in enumerate(names)}
    for file in files:
        part = {name: tensors[name] for name in names if where[name] == file}
        write_safetensors(folder / file, part, kind)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], kind: str) -> None:
    """F32 and F16 by the format's own library; it has no NumPy type for BF16, so that header is renamed by hand."""
    if kind == "BF16":
        save_file({name: (values.view(np.uint32) >> 16).astype(np.uint16) for name, values in tensors.items()}, path)
        path.write_bytes(path.read_bytes().replace(b'"U16"', b'"BF16"'))
        # The longer name moves the data: the header's length is written anew.
        raw = path.read_bytes()
        header_end = raw.rindex(b"}", 0, 8 + int.from_bytes(raw[:8], "little") + len(tensors)) + 1
        body_at = 8 + int.from_bytes(raw[:8], "little") + len(tensors)
        path.write_bytes((body_at - 8).to_bytes(8, "little") + raw[8:header_end].ljust(body_at - 8) + raw[body_at:])
        return
    save_file({name: values.astype({"F32": "f4", "F16": "f2"}[kind]) for name, values in tensors.items()}, path)


def test_builtin_weights_follow_their_seed():
    """The same seed gives the same logits, another seed others, and none is far from unit scale."""
    logits = {}
    for run, seed in (("a", 0), ("b", 0), ("c", 1)):
        model = Model(builtin.CONFIG, builtin.random_weights(builtin.CONFIG, seed), context=64)
        logits[run] = model.prefill(list(range(60)), model.new_cache(60))
    np.testing.assert_array_equal(logits["a"], logits["b"])
    assert np.abs(logits["a"] - logits["c"]).max() > 0.1
    assert 0.3 < logits["a"].std() < 3

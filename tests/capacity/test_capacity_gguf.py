"""Cards from GGUF headers: sizes from the tensors, dimensions from the metadata, and damage told in one line."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadkit.capacity.card import Mla, Moe, Sliding
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.gguf_card import read
from loadkit.capacity.gguf_header import read_header
from loadkit.capacity.params import parameters

VOCABULARY = [f"<{i}>" for i in range(3000)]


def metadata(arch, layers, hidden, ffn, heads, kv_heads, context, **more):
    """The usual metadata of an architecture, a vocabulary among it."""
    own = {
        "block_count": layers,
        "embedding_length": hidden,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "context_length": context,
        "rope.freq_base": 1e6,
        **more,
    }
    head = {"general.architecture": arch, "tokenizer.ggml.tokens": VOCABULARY, "tokenizer.ggml.token_type": [1] * 3000}
    return head | {f"{arch}.{name}": value for name, value in own.items()}


def tensors(vocab, hidden, layers, block, tied=True):
    """Embedding, final norm, head unless tied, and every tensor of `block` for each layer."""
    whole = {"token_embd.weight": (hidden, vocab), "output_norm.weight": (hidden,)}
    if not tied:
        whole["output.weight"] = (hidden, vocab)
    return whole | {f"blk.{i}.{name}": shape for i in range(layers) for name, shape in block.items()}


def attention(hidden, heads, kv_heads, size, *norms, bias=()):
    """Projections of one layer with its norms and the biases named."""
    widths = {"attn_q": heads * size, "attn_k": kv_heads * size, "attn_v": kv_heads * size}
    block = {f"{name}.weight": (hidden, width) for name, width in widths.items()}
    block["attn_output.weight"] = (heads * size, hidden)
    block |= {f"{name}.bias": (widths.get(name, hidden),) for name in bias}
    return block | {f"{norm}.weight": (hidden,) for norm in norms}


def mlp(hidden, ffn):
    """A gated MLP."""
    return {"ffn_gate.weight": (hidden, ffn), "ffn_up.weight": (hidden, ffn), "ffn_down.weight": (ffn, hidden)}


def experts(hidden, ffn, count):
    """Routed experts and their router."""
    block = {f"ffn_{name}_exps.weight": (hidden, ffn, count) for name in ("gate", "up")}
    return block | {"ffn_down_exps.weight": (ffn, hidden, count), "ffn_gate_inp.weight": (hidden, count)}


QWEN = (
    metadata("qwen2", 24, 896, 4864, 14, 2, 32768),
    tensors(
        151936,
        896,
        24,
        attention(896, 14, 2, 64, "attn_norm", "ffn_norm", bias=("attn_q", "attn_k", "attn_v")) | mlp(896, 4864),
    ),
)
DEEPSEEK_META = {
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 32,
    "attention.kv_lora_rank": 64,
    "attention.q_lora_rank": 96,
    "rope.dimension_count": 16,
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 128,
    "leading_dense_block_count": 1,
}


def test_a_dense_file(gguf_file):
    """Qwen2.5-0.5B: the dimensions of the catalogue, and the exact size of its 16 bit tensors."""
    card = read(gguf_file(*QWEN))
    assert card.dims == replace(lookup("qwen2.5-0.5b").dims, context=32768)
    assert (card.name, card.params, card.bits, card.weight_bytes) == ("model", 494_032_768, 16, 2 * 494_032_768)


def test_quantised_tensors_count_their_scales(gguf_file):
    """A Q4_0 block is 18 bytes for 32 weights: 4.5 bits each."""
    card = read(gguf_file(*QWEN, kind=2))
    assert card.bits == 4.5
    assert card.weight_bytes == 494_032_768 * 18 // 32


def test_a_sliding_file_uses_the_pattern_of_its_architecture(gguf_file):
    """Gemma-3-27B: 52 of 62 layers slide, four norms per layer, normed queries and keys."""
    norms = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    block = attention(5376, 32, 16, 128, *norms) | mlp(5376, 21504)
    block |= {"attn_q_norm.weight": (128,), "attn_k_norm.weight": (128,)}
    more = {"attention.key_length": 128, "attention.value_length": 128, "attention.sliding_window": 1024}
    card = read(
        gguf_file(metadata("gemma3", 62, 5376, 21504, 32, 16, 131072, **more), tensors(262208, 5376, 62, block))
    )
    assert card.dims == lookup("gemma-3-27b").dims


def test_a_file_of_experts(gguf_file):
    """gpt-oss-20b: biases everywhere, sinks, 12 of 24 layers with a window of 128."""
    everywhere = ("attn_q", "attn_k", "attn_v", "attn_output")
    block = attention(2880, 64, 8, 64, "attn_norm", "post_attention_norm", bias=everywhere) | experts(2880, 2880, 32)
    block |= {f"ffn_{name}_exps.bias": (2880, 32) for name in ("gate", "up", "down")}
    block |= {"ffn_gate_inp.bias": (32,), "attn_sinks.weight": (64,)}
    more = {
        "attention.key_length": 64,
        "attention.value_length": 64,
        "attention.sliding_window": 128,
        "expert_count": 32,
        "expert_used_count": 4,
        "expert_feed_forward_length": 2880,
    }
    path = gguf_file(
        metadata("gpt-oss", 24, 2880, 2880, 64, 8, 131072, **more), tensors(201088, 2880, 24, block, False)
    )
    card = read(path)
    assert card.dims == lookup("gpt-oss-20b").dims
    assert card.params == 20_914_757_184


def deepseek(layers, heads=4, hidden=256, vocab=500):
    """Tensors of a small model with latent attention, one dense layer and `layers` - 1 routed ones."""
    latent = {
        "attn_norm.weight": (hidden,),
        "ffn_norm.weight": (hidden,),
        "attn_q_a.weight": (hidden, 96),
        "attn_q_a_norm.weight": (96,),
        "attn_q_b.weight": (96, heads * 48),
        "attn_kv_a_mqa.weight": (hidden, 64 + 16),
        "attn_kv_a_norm.weight": (64,),
        "attn_k_b.weight": (32, 64, heads),
        "attn_v_b.weight": (64, 32, heads),
        "attn_output.weight": (heads * 32, hidden),
    }
    shared = {f"ffn_{name}_shexp.weight": (hidden, 128) for name in ("gate", "up", "down")}
    found = tensors(vocab, hidden, layers, latent, tied=False)
    found |= {f"blk.0.{name}": shape for name, shape in mlp(hidden, 1024).items()}
    routed = experts(hidden, 128, 8) | shared
    return found | {f"blk.{i}.{name}": shape for i in range(1, layers) for name, shape in routed.items()}


def test_a_latent_file(gguf_file):
    """Head widths before compression are those of the *_mla fields, and every tensor is accounted for."""
    card = read(gguf_file(metadata("deepseek2", 3, 256, 1024, 4, 1, 4096, **DEEPSEEK_META), deepseek(3)))
    assert card.dims.mla == Mla(64, 16, 32, 32, 96)
    assert card.dims.moe == Moe(8, 2, 128, shared_ffn=128, dense_layers=1)
    assert parameters(card.dims).total == card.params


def test_layers_for_further_tokens_are_not_run(gguf_file):
    """A file that stores one more layer for speculation has the size of a plain decode without it."""
    meta = metadata("deepseek2", 4, 256, 1024, 4, 1, 4096, nextn_predict_layers=1, **DEEPSEEK_META)
    card = read(gguf_file(meta, deepseek(4)))
    assert card.dims.layers == 3
    assert card.params == parameters(card.dims).total


@pytest.mark.parametrize(
    ("more", "sliding"),
    [
        ({"attention.sliding_window": 512, "attention.sliding_window_pattern": [True] * 5 + [False] * 19}, (5, 512)),
        ({"attention.sliding_window": 512, "attention.sliding_window_pattern": 4}, (18, 512)),
        ({"attention.sliding_window": 512}, None),
        ({"attention.sliding_window": 32768, "attention.sliding_window_pattern": 4}, None),
        ({"attention.sliding_window": 0}, None),
    ],
)
def test_patterns_in_the_file(gguf_file, more, sliding):
    """A pattern per layer or every so many; a window as wide as the context, or in an architecture without, is none."""
    card = read(gguf_file(QWEN[0] | {f"qwen2.{name}": value for name, value in more.items()}, QWEN[1]))
    assert card.dims.sliding == (Sliding(*sliding) if sliding else None)


def test_numbers_per_layer_that_agree_are_one_number(gguf_file):
    """Newer files give head counts for each layer; where they differ the file is refused."""
    same = QWEN[0] | {"qwen2.attention.head_count_kv": [2] * 24}
    assert read(gguf_file(same, QWEN[1])).dims.kv_heads == 2
    with pytest.raises(CardError, match="head_count_kv differs from layer to layer"):
        read(gguf_file(QWEN[0] | {"qwen2.attention.head_count_kv": [2] * 23 + [4]}, QWEN[1]))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' is not known"),
        ({"qwen2.feed_forward_length": 9728}, "parameters are stated but its dimensions make"),
        ({"qwen2.embedding_length": "896"}, "embedding_length must be a whole number, it is '896'"),
        ({"qwen2.attention.head_count": 0}, "heads must be a whole number of at least 1"),
    ],
)
def test_files_that_contradict_themselves(gguf_file, meta, message):
    """What the metadata says is held against the tensors that are there."""
    with pytest.raises(CardError, match=message):
        read(gguf_file(QWEN[0] | meta, QWEN[1]))


def test_a_missing_number_and_a_missing_embedding(gguf_file):
    """The field is named; a further part of a split file has no embedding."""
    with pytest.raises(CardError, match=r"metadata qwen2\.block_count is missing"):
        read(gguf_file({key: value for key, value in QWEN[0].items() if "block_count" not in key}, QWEN[1]))
    with pytest.raises(CardError, match=r"no tensor token_embd\.weight"):
        read(gguf_file(QWEN[0], {"blk.0.attn_q.weight": (896, 896)}))
    with pytest.raises(CardError, match="tensor type 999 is not known"):
        read(gguf_file(*QWEN, kind=999))


def test_files_that_are_none(tmp_path: Path):
    """No file, another format, another version."""
    with pytest.raises(CardError, match="No such file"):
        read(tmp_path / "no.gguf")
    path = tmp_path / "a.gguf"
    for data, message in (
        (b"", "not a GGUF file"),
        (b"PK\x03\x04 and more", "not a GGUF file"),
        (b"GGUF\x01\0\0\0", "version 1 is not supported"),
        (b"GGUF\x03\0\0\0", "damaged or cut short"),
        (b"GGUF\x03\0\0\0" + b"\xff" * 16, "announces too many entries"),
    ):
        path.write_bytes(data)
        with pytest.raises(CardError, match=message):
            read(path)


def test_every_cut_is_told(gguf_file, tmp_path):
    """A header cut anywhere is a CardError, never a card and never another error."""
    whole = gguf_file(*QWEN).read_bytes()
    path = tmp_path / "cut.gguf"
    for size in range(0, len(whole) - 8, 997):
        path.write_bytes(whole[:size])
        with pytest.raises(CardError):
            read(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(4, 2000), value=st.integers(0, 255))
def test_a_changed_byte_never_crashes(gguf_file, at, value):
    """Whatever a damaged header says, the answer is a header or a CardError."""
    path = gguf_file(metadata("qwen2", 1, 8, 8, 1, 1, 64), tensors(9, 8, 1, mlp(8, 8)))
    data = bytearray(path.read_bytes())
    data[at] = value
    path.write_bytes(bytes(data))
    try:
        header = read_header(path)
    except CardError:
        return
    assert len(header.tensors) <= 5
    assert len(header.metadata) <= 10

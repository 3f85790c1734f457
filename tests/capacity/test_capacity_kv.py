"""Bytes of the cache: published growths, windows, states, blocks, splits and quantised values."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity import kv
from loadkit.capacity.card import Dimensions, ModelCard, Sliding
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError

GB, GIB = 1e9, 2**30
MIXED = Dimensions(
    layers=6, hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=128, vocab=99, tied=True, sliding=Sliding(4, 100)
)


@pytest.mark.parametrize(
    ("name", "kind", "growth"),
    [
        ("llama-3-70b", "fp8", 163_840),
        ("llama-3-70b", "bf16", 327_680),
        ("llama-3-70b", "q8_0", 174_080),
        ("llama-3-70b", "q4_0", 92_160),
        ("llama-3-70b", "mxfp4", 87_040),
        ("llama-3-8b", "bf16", 131_072),
        ("phi-3-mini-128k", "bf16", 393_216),
        ("qwen2.5-0.5b", "bf16", 12_288),
        ("qwen2.5-1.5b", "fp16", 28_672),
        ("qwen3-30b-a3b", "bf16", 98_304),
        ("mixtral-8x7b", "bf16", 131_072),
        ("glm-4.5-air", "bf16", 188_416),
        ("deepseek-v3", "bf16", 70_272),
        ("gpt-oss-20b", "bf16", 24_576),
        ("gpt-oss-120b", "bf16", 36_864),
        ("gemma-3-27b", "bf16", 81_920),
        ("qwen3-next-80b-a3b", "bf16", 24_576),
        ("mistral-7b-v0.1", "bf16", 0),
        ("deepseek-v4.1-flash", "bf16", 890),
    ],
)
def test_bytes_per_token(name, kind, growth):
    """What one more token costs a long sequence; only layers that attend to everything grow."""
    assert kv.per_token(lookup(name), kind) == growth


def test_a_sequence_of_llama_70b():
    """40 GiB for 128K tokens, 85.9 GB for 8 chats of 32K, 343.6 GB for a million."""
    card = lookup("llama-3-70b")
    assert kv.per_sequence(card, 131_072) == 42_949_672_960 == 40 * GIB
    assert 8 * kv.per_sequence(card, 32_768) / GB == pytest.approx(85.899, abs=0.001)
    assert kv.per_sequence(card, 1_048_576) / GB == pytest.approx(343.597, abs=0.001)


@pytest.mark.parametrize(("tokens", "megabytes"), [(131_072, 116.65), (1_048_576, 933.23)])
def test_a_stated_growth_goes_before_the_arithmetic(tokens, megabytes):
    """890 bytes per token, whatever type of cache is named."""
    card = lookup("deepseek-v4.1-flash")
    assert kv.per_sequence(card, tokens, "fp8") / 1e6 == pytest.approx(megabytes, abs=0.01)
    assert 327_680 / kv.per_token(card) == pytest.approx(368.2, abs=0.05)
    assert kv.per_token(replace(lookup("llama-3-70b"), kv_bytes_per_token=1000.0)) == 1000


@pytest.mark.parametrize(("name", "bytes_"), [("gpt-oss-120b", 4_836_556_800), ("gemma-3-27b", 11_173_625_856)])
def test_sliding_layers_stop_at_their_window(name, bytes_):
    """Gemma-3-27B needs 11.2 GB for 128K tokens; counting every layer as full would say 66.6 GB."""
    card = lookup(name)
    assert kv.per_sequence(card, 131_072) == bytes_
    full = replace(card, dims=replace(card.dims, sliding=None))
    if name == "gemma-3-27b":
        assert kv.per_sequence(full, 131_072) == 66_571_993_088


def test_a_linear_state_is_there_from_the_first_token():
    """36 layers x 32 heads x 128 x 128 at two bytes, 37.7 MB, at any length; float32 doubles it."""
    card = lookup("qwen3-next-80b-a3b")
    assert kv.state(card.dims) == 37_748_736
    assert kv.state(card.dims, 4) == 2 * 37_748_736
    assert kv.per_sequence(card, 16) == 37_748_736 + 16 * 24_576
    assert kv.state(MIXED) == 0


@pytest.mark.parametrize(("tokens", "reserved"), [(1, 16), (16, 16), (17, 32), (4095, 4096)])
def test_blocks(tokens, reserved):
    """A paged cache reserves whole blocks of 16 tokens."""
    assert kv.rounded(tokens) == reserved
    assert kv.per_sequence(lookup("llama-3-8b"), tokens) == reserved * 131_072


def test_compressed_layers():
    """DeepSeek-V4-Flash: 21 layers of 644 bytes for 4 tokens and 20 of 576 for 128 make 3471 bytes a token."""
    growth = kv.compressed_per_token([(21, 576 + 68, 4), (20, 576, 128)])
    assert growth == 3471
    assert growth == pytest.approx(4 * 890, rel=0.05)
    assert kv.per_token(lookup("deepseek-v4-flash")) == growth


def test_split_over_gpus():
    """Key heads are split and then copied; a latent has none and is copied to every GPU."""
    card = lookup("llama-3-70b")
    assert [kv.per_gpu_share(card, n) for n in (1, 2, 4, 8, 16)] == [1, 1 / 2, 1 / 4, 1 / 8, 1 / 8]
    assert [kv.per_gpu_share(lookup("deepseek-v3"), n) for n in (1, 8, 16)] == [1, 1, 1]
    for count in (0, 3, 12):
        with pytest.raises(CardError, match=f"8 key heads cannot be split over {count} GPUs"):
            kv.per_gpu_share(card, count)


def test_a_latent_against_the_heads_it_stands_for():
    """DeepSeek-V3: 1.4 %, not the 5 to 7 % of a comparison between two models."""
    assert kv.latent_ratio(lookup("deepseek-v3").dims) == pytest.approx(0.0140625, abs=1e-9)
    with pytest.raises(CardError, match="only latent attention"):
        kv.latent_ratio(MIXED)


def test_an_unknown_cache_type_is_named():
    """The message lists those that are known."""
    with pytest.raises(CardError, match="'int3' is not known, only fp32, bf16"):
        kv.per_token(lookup("llama-3-8b"), "int3")


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_more_tokens_never_take_less(first, second):
    """The cache of a sequence rises with its length, and never faster than if every layer were full."""
    card = ModelCard("m", "s", MIXED)
    shorter, longer = sorted((first, second))
    assert kv.per_sequence(card, shorter) <= kv.per_sequence(card, longer)
    assert kv.per_sequence(card, longer) <= kv.rounded(longer) * 6 * kv.layer_bytes(MIXED)
    assert kv.per_sequence(card, longer) >= longer * kv.per_token(card)

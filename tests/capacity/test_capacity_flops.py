"""Prefill operations: the crossover table, growth, local exponents, prefix caches, and the general rules."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity import flops
from loadkit.capacity.card import Dimensions, LinearAttention, Moe, Sliding
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import parameters

SMALL = Dimensions(layers=4, hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=128, vocab=1000, tied=True)
SHAPES = {
    "dense": SMALL,
    "experts": replace(SMALL, moe=Moe(8, 2, 32)),
    "sliding": replace(SMALL, sliding=Sliding(3, 100)),
    "linear": replace(SMALL, linear=LinearAttention(3, 2, 4, 8, 8)),
}
LENGTHS = st.integers(1, 2_000_000)


@pytest.mark.parametrize(
    ("name", "full", "causal"),
    [
        ("qwen2.5-0.5b", 8_320, 16_640),
        ("qwen2.5-1.5b", 15_232, 30_464),
        ("llama-3-8b", 26_624, 53_248),
        ("llama-3-70b", 52_224, 104_448),
    ],
)
def test_crossover_and_knee(name, full, causal):
    """T* = P / (L H h) with masked pairs skipped, half of it without; attention adds a quarter at T* / 4."""
    dims = lookup(name).dims
    assert flops.crossover(dims) == pytest.approx(causal, rel=1e-9)
    assert flops.crossover(dims, causal=False) == pytest.approx(full, rel=1e-9)
    assert flops.k25(dims) == pytest.approx(causal / 4, rel=1e-9)
    assert flops.k25(dims, causal=False) == pytest.approx(full / 4, rel=1e-9)


@pytest.mark.parametrize(("name", "times"), [("qwen2.5-0.5b", 95.165), ("llama-3-8b", 48.03), ("llama-3-70b", 33.45)])
def test_growth_from_8k_to_128k(name, times):
    """Not 256 times: that is the attention part alone, and the linear part grows 16 times."""
    dims = lookup(name).dims
    assert flops.growth(dims, 8192, 131_072) == pytest.approx(times, rel=0.001)
    assert flops.attention(dims, 131_072) / flops.attention(dims, 8192) == 256
    assert 16 < flops.growth(dims, 8192, 131_072) < 256


def test_the_drift_of_a_unit_price():
    """The article's 0.5B model: 8.4 % more per token at 1527 than at 123 tokens when causal, 16.6 % when not."""
    dims = lookup("qwen2.5-0.5b").dims
    assert flops.growth(dims, 123, 1527) / (1527 / 123) == pytest.approx(1.0837, abs=0.0005)
    assert flops.growth(dims, 123, 1527, causal=False) / (1527 / 123) == pytest.approx(1.1663, abs=0.0005)


@pytest.mark.parametrize(("name", "exponent"), [("llama-3-8b", 1.7111), ("qwen2.5-0.5b", 1.8873)])
def test_local_exponent_at_128k(name, exponent):
    """Between 1 and 2, and nearer to 2 for the model with the earlier crossover."""
    assert flops.local_exponent(lookup(name).dims, 131_072) == pytest.approx(exponent, rel=0.001)


@pytest.mark.parametrize(("tokens", "share"), [(32_768, 0.1215), (131_072, 0.1501)])
def test_a_prefix_cache_saves_less_than_its_share(tokens, share):
    """Nine tenths cached leave 12 % of Llama-3-70B's work at 32K and 15 % at 128K: new tokens attend to old ones."""
    assert flops.remaining(lookup("llama-3-70b").dims, tokens, 0.9) == pytest.approx(share, abs=0.0002)


def test_flops_of_a_published_prefill():
    """5000 tokens of Llama-3-70B on two H100 (FP8, 1979 TFLOPS each) in 0.40677 s is 0.446 of the peak."""
    work = flops.prefill(lookup("llama-3-70b").dims, 5000)
    assert work == pytest.approx(717_291_601_920_000, rel=1e-4)
    assert work / (0.40677 * 2 * 1979e12) == pytest.approx(0.446, rel=0.002)


def test_latent_attention_counts_queries_and_values_apart():
    """DeepSeek-V3: 128 heads whose queries are 192 wide and values 128."""
    dims = lookup("deepseek-v3").dims
    assert flops.attention(dims, 1000, causal=False) == 61 * 2 * 128 * (192 + 128) * 1000**2


def test_windows_keep_attention_down():
    """Mistral-7B-v0.1 has windows everywhere and never crosses; Gemma-3's ten full layers cross past 600K tokens."""
    assert flops.crossover(lookup("mistral-7b-v0.1").dims) is None
    assert flops.k25(lookup("mistral-7b-v0.1").dims) is None
    assert flops.crossover(lookup("mistral-7b-v0.1").dims, causal=False) == pytest.approx(26_624)
    assert flops.crossover(lookup("gemma-3-27b").dims) == pytest.approx(614_319, rel=1e-4)
    wide = replace(SMALL, sliding=Sliding(4, 100_000))
    assert flops.crossover(wide) == pytest.approx(flops.crossover(SMALL))


def test_a_linear_model_is_linear():
    """A state instead of attention in every layer: exponent 1 and no crossover."""
    dims = replace(SMALL, linear=LinearAttention(4, 2, 4, 8, 8))
    assert flops.local_exponent(dims, 10_000) == 1
    assert flops.crossover(dims) is None
    assert flops.linear_per_token(dims) == 2 * parameters(dims).linear + 4 * 4 * 6 * 8 * 8


@pytest.mark.parametrize("tokens", [0, -1])
def test_a_prefill_needs_a_token(tokens):
    """No length below one token has a cost."""
    with pytest.raises(CardError, match="at least one token"):
        flops.prefill(SMALL, tokens)


@pytest.mark.parametrize("hit", [-0.1, 1.0, 1.5])
def test_a_cache_hit_is_a_share(hit):
    """All of a prompt is never cached: the last token must be computed."""
    with pytest.raises(CardError, match="share from 0 to below 1"):
        flops.remaining(SMALL, 100, hit)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [True, False])
@given(first=LENGTHS, second=LENGTHS)
def test_growth_lies_between_linear_and_quadratic(shape, causal, first, second):
    """r <= F(b) / F(a) <= r^2 for r = b / a >= 1, and the way back is the inverse."""
    shorter, longer = sorted((first, second))
    ratio = longer / shorter
    times = flops.growth(SHAPES[shape], shorter, longer, causal)
    assert ratio * (1 - 1e-9) <= times <= ratio**2 * (1 + 1e-9)
    assert flops.growth(SHAPES[shape], longer, shorter, causal) == pytest.approx(1 / times)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [True, False])
@given(tokens=st.integers(10, 1_000_000))
def test_the_local_exponent_is_the_slope(shape, causal, tokens):
    """It is what a small step in length shows, between 1 and 2."""
    dims = SHAPES[shape]
    exponent = flops.local_exponent(dims, tokens, causal)
    step = math.log(flops.growth(dims, tokens * (1 - 1e-6), tokens * (1 + 1e-6), causal)) / math.log1p(2e-6)
    assert exponent == pytest.approx(step, abs=1e-3)
    assert 1 <= exponent <= 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [True, False])
def test_at_the_crossover_both_parts_are_equal(shape, causal):
    """By definition, and at the knee attention is a quarter of the linear part."""
    dims = SHAPES[shape]
    crossing, knee = flops.crossover(dims, causal), flops.k25(dims, causal)
    assert crossing is not None
    assert knee is not None
    assert flops.attention(dims, crossing, causal) == pytest.approx(flops.linear_per_token(dims) * crossing)
    assert flops.attention(dims, knee, causal) == pytest.approx(flops.linear_per_token(dims) * knee / 4)


@given(LENGTHS, st.floats(0, 0.99))
def test_what_remains_is_at_least_what_is_new(tokens, hit):
    """The part of the prompt that is not cached costs at least its share of the whole."""
    share = flops.remaining(SMALL, tokens, hit)
    assert 1 - hit <= share + 1e-12
    assert share <= 1

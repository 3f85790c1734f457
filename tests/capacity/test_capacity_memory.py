"""Whether a model and its chats fit, with the calculation shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.memory import GIB, Memory, both_units, fit, overhead_bytes, sequences_per_tier, weight_bytes


def test_running_sequences_of_a_published_table():
    """Llama-3.3-70B in FP8 on two H100: 86 sequences of 5500 tokens, where NVIDIA's plateau implies 87.

    Whole blocks of 16 tokens make 5504 of them, and the 86th lacks a fraction.
    """
    card = lookup("meta/llama-3.3-70b-instruct")
    answer = fit(card, Memory(80 * GIB, gpus=2), 5500, sequences=50, bits=8, kv="fp8", block=1)
    assert fit(card, Memory(80 * GIB, gpus=2), 5500, bits=8, kv="fp8").max_sequences == 85
    assert answer.overhead == pytest.approx(6.09 * GIB)
    assert answer.weights == 70_553_706_496
    assert answer.max_sequences == 86
    assert answer.fits
    assert answer.lacks is None


def test_not_even_one_sequence():
    """Llama-3.1-8B on an L4: 40,208 tokens of cache, so a request of 128K cannot run, and the answer says so."""
    card = lookup("llama-3.1-8b")
    answer = fit(card, Memory(22.49 * GIB, use=0.92), 131_072, bits=16.0036, overhead=0.83 * GIB)
    assert answer.weights == pytest.approx(14.96 * GIB, rel=1e-3)
    assert answer.pool_tokens == pytest.approx(40_208, rel=0.003)
    assert (answer.max_sequences, answer.fits, answer.lacks) == (0, False, "cache")
    assert answer.calculation[-1] == "not even one sequence of this length fits"


def test_eight_chats_of_32k():
    """The article's example: 80 GiB of cache beside 35 GB of 4 bit weights do not fit 80 GB."""
    answer = fit(lookup("llama-3-70b"), Memory(80e9), 32_768, sequences=8, bits=4)
    assert 8 * answer.per_sequence == 80 * GIB
    assert (answer.fits, answer.lacks, answer.max_sequences) == (False, "cache", 3)
    assert answer.calculation == (
        "budget   1 x 80.00 GB (74.51 GiB) x 0.9 = 72.00 GB (67.06 GiB)",
        "weights  35.28 GB (32.85 GiB)",
        "overhead 2.32 GB (2.16 GiB)",
        "left     34.40 GB (32.04 GiB) for the cache",
        "cache    8 x 10.74 GB (10.00 GiB) for 32768 tokens = 85.90 GB (80.00 GiB) > left",
        "most     3 sequences of 32768 tokens",
    )


def test_weights_that_do_not_fit():
    """70B at 16 bit on 80 GB lacks memory for weights, whatever the length."""
    answer = fit(lookup("llama-3-70b"), Memory(80e9), 1024)
    assert (answer.fits, answer.lacks, answer.max_sequences, answer.pool_tokens) == (False, "weights", 0, 0)
    assert answer.pool < 0


def test_most_sequences_per_tier():
    """Twice the length, half the sequences."""
    most = sequences_per_tier(lookup("llama-3-8b"), Memory(80 * GIB), [4096, 8192, 131_072], bits=8)
    assert most == {4096: 124, 8192: 62, 131_072: 3}


def test_a_latent_cache_is_copied_to_every_gpu():
    """Eight GPUs hold eight copies of DeepSeek-V3's latent, but one set of Llama's heads."""
    one = fit(lookup("deepseek-v3"), Memory(80e9), 1024).per_sequence
    assert fit(lookup("deepseek-v3"), Memory(80e9, gpus=8), 1024).per_sequence == 8 * one
    llama = lookup("llama-3-70b")
    assert fit(llama, Memory(80e9, gpus=8), 1024).per_sequence == fit(llama, Memory(80e9), 1024).per_sequence


def test_sequences_that_stop_growing_have_no_pool_in_tokens():
    """Every layer of Mistral-7B-v0.1 slides: beyond 4096 tokens a sequence takes no more."""
    memory = Memory(24e9)
    answer = fit(lookup("mistral-7b-v0.1"), memory, 16_384)
    assert answer.pool_tokens is None
    assert answer.per_sequence == fit(lookup("mistral-7b-v0.1"), memory, 4096).per_sequence


def test_weight_bytes():
    """At the bits asked for, else the exact size, else the card's own bits, else 16."""
    card = lookup("llama-3-8b")
    assert weight_bytes(card) == 2 * 8_030_261_248
    assert weight_bytes(card, 4.5) == 8_030_261_248 * 4.5 / 8
    assert weight_bytes(lookup("gpt-oss-20b")) == pytest.approx(12.8 * GIB)
    assert weight_bytes(lookup("deepseek-v3")) == 671_026_404_352


@pytest.mark.parametrize(
    ("name", "gpus", "gib"),
    [
        ("llama-3-8b", 1, 1.89 + 0.27),
        ("llama-3-8b", 4, 1.89 + 8.4),
        ("qwen2.5-7b", 1, 2.25 + 0.27),
        ("mixtral-8x7b", 1, 2.77),
        ("deepseek-v4.1-flash", 1, 2.77),
    ],
)
def test_overhead(name, gpus, gib):
    """llm-d-planner's calibration by kind of model and number of GPUs."""
    assert overhead_bytes(lookup(name), gpus) == pytest.approx(gib * GIB)


def test_both_units():
    """128K tokens of Llama-3-70B: 42.95 GB and 40 GiB are the same."""
    assert both_units(42_949_672_960) == "42.95 GB (40.00 GiB)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Memory(-1), "memory must be above 0"),
        (lambda: Memory(float("nan")), "memory must be above 0 bytes, it is nan"),
        (lambda: Memory(1, gpus=0), "at least one GPU"),
        (lambda: Memory(1, use=1.2), "share of memory"),
        (lambda: fit(lookup("llama-3-8b"), Memory(80e9), 0), "at least one sequence of one token"),
        (lambda: fit(lookup("llama-3-8b"), Memory(80e9), 10, sequences=0), "at least one sequence"),
        (lambda: fit(lookup("llama-3-8b"), Memory(80e9, gpus=3), 10), "cannot be split over 3 GPUs"),
    ],
)
def test_input_that_cannot_be_is_named(call, message):
    """Negative memory, no GPU, no sequence."""
    with pytest.raises(CardError, match=message):
        call()


@given(st.floats(1e9, 1e12), st.integers(1, 200_000), st.integers(1, 300))
def test_what_fits_fits(size, tokens, sequences):
    """fits is exactly: the cache of all sequences lies within what is left."""
    answer = fit(lookup("llama-3-8b"), Memory(size), tokens, sequences=sequences)
    assert answer.fits == (answer.per_sequence * sequences <= answer.pool)
    assert answer.fits == (answer.max_sequences >= sequences)
    assert (answer.lacks is None) == answer.fits

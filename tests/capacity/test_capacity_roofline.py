"""Bounds of decode: ridge, bandwidth, batches, experts, and what a measured rate says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity import roofline
from loadkit.capacity.card import Moe
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError

H100 = {"bytes_per_s": 3.35e12, "flops_per_s": 989e12}


def test_ridge_point():
    """An H100 computes 295.5 FP16 operations in the time it reads a byte."""
    assert roofline.ridge_point(990e12, 3.35e12) == pytest.approx(295.52, abs=0.01)


@pytest.mark.parametrize(
    ("clock", "bits", "rate"),
    [
        (2112e6, 64, 33.792e9),
        (2133e6, 64, 34.128e9),
        (2112e6, 32, 16.896e9),
        (528e6, 64, 8.448e9),
        (211.2e6, 64, 3.3792e9),
    ],
)
def test_bandwidth_of_double_data_rate_memory(clock, bits, rate):
    """Two transfers per clock: 2112 MHz and 64 bits are 33.8 GB/s, and 17 is half the bus or the factor forgotten."""
    assert roofline.dram_bandwidth(clock, bits) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "size", "bound"),
    [
        (17e9, 1.1e9, 15.4545),
        (33.792e9, 1.1e9, 30.72),
        (34.1e9, 1.1e9, 31.0),
        (25.8e9, 1.1e9, 23.4545),
        (8.448e9, 1.1e9, 7.68),
        (3350e9, 140e9, 23.929),
        (3350e9, 70e9, 47.857),
        (33.792e9, 494_032_768, 68.4),
    ],
)
def test_decode_bound(rate, size, bound):
    """Bandwidth over bytes: half the bytes, twice the bound."""
    assert roofline.decode_bound(rate, size) == pytest.approx(bound, rel=1e-3)


@pytest.mark.parametrize(
    ("tokens_per_s", "rate", "size", "share", "verdict"),
    [
        (41.58, 33.792e9, 494_032_768, 0.608, "plausible"),
        (4.98, 33.792e9, 5_977_245_696, 0.881, "suspicious"),
        (21.75, 102.4e9, 4.3e9, 0.913, "suspicious"),
        (0.018, 17.066e9, 8.982e9, 0.0095, "swapping"),
        (42, 17e9, 1.1e9, 2.718, "invalid"),
        (16.69, 17e9, 1_543_714_304, 1.5155, "invalid"),
    ],
)
def test_reading_of_a_measured_rate(tokens_per_s, rate, size, share, verdict):
    """Above the bound it is no decode rate, or bytes or bandwidth are wrong; near it look again; far below it swaps."""
    efficiency = roofline.efficiency(tokens_per_s, rate, size)
    assert efficiency == pytest.approx(share, rel=0.01)
    assert roofline.reading(efficiency) == verdict


@pytest.mark.parametrize(("batch", "touched"), [(1, 8), (8, 51.6199), (64, 125.9423)])
def test_a_batch_reads_more_experts(batch, touched):
    """8 of 128 experts for one token, nearly all of them for 64."""
    assert roofline.experts_touched(Moe(128, 8, 768), batch) == pytest.approx(touched, rel=1e-5)


@pytest.mark.parametrize(("batch", "ms", "rate"), [(8, 5.1216, 1562.01), (256, 24.9938, 10242.53)])
def test_decode_step_of_llama_8b_on_an_h100(batch, ms, rate):
    """Weights are read once for the batch and each cache once; memory stays the bound at 2048 tokens of context."""
    step = roofline.decode_step(lookup("llama-3-8b"), batch=batch, context=2048, **H100)
    assert step.seconds * 1e3 == pytest.approx(ms, rel=0.001)
    assert step.tokens_per_s == pytest.approx(rate, rel=0.001)
    assert step.bound == "memory"


def test_a_big_batch_of_short_sequences_computes():
    """With little cache to read, 2 P b operations take longer than the weights."""
    step = roofline.decode_step(lookup("llama-3-8b"), batch=1024, context=16, **H100)
    assert step.bound == "compute"
    assert step.seconds == pytest.approx(2 * 7_504_924_672 * 1024 / 989e12)


def test_weights_of_a_step():
    """A mixture of experts reads little for one token and nearly everything for many."""
    card = lookup("qwen3-30b-a3b")
    one, many = roofline.weights_per_step(card), roofline.weights_per_step(card, 1000)
    assert one == pytest.approx(2 * 3.042e9, rel=0.001)
    assert many == pytest.approx(2 * (30_532_122_624 - 151_936 * 2048), rel=0.001)
    assert roofline.weights_per_step(lookup("llama-3-8b"), 8) == roofline.weights_per_step(lookup("llama-3-8b"))
    assert roofline.weights_per_step(card, 1, bits=4) == one / 4


def test_a_card_without_dimensions_knows_one_token_only():
    """16B active in decode at 4 bit are 8 GB per token; how a batch spreads over experts is not published."""
    card = lookup("deepseek-v4.1-flash")
    assert roofline.weights_per_step(card, bits=4) == 8e9
    with pytest.raises(CardError, match="not published"):
        roofline.weights_per_step(card, 2)
    with pytest.raises(CardError, match="not published"):
        roofline.weights_per_step(lookup("deepseek-v4-flash"))


IMPOSSIBLE = {
    "no FLOP/s": lambda: roofline.ridge_point(0, 1),
    "negative bandwidth": lambda: roofline.ridge_point(1, -1),
    "bandwidth not a number": lambda: roofline.decode_bound(float("nan"), 1),
    "no bytes": lambda: roofline.decode_bound(1, 0),
    "no bus": lambda: roofline.dram_bandwidth(1, 0),
    "a step": lambda: roofline.decode_step(lookup("llama-3-8b"), batch=1, context=16, bytes_per_s=-1, flops_per_s=1),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_rates_and_sizes_are_positive(case):
    """A negative or missing figure is named, not computed with."""
    with pytest.raises(CardError, match="must be above 0"):
        IMPOSSIBLE[case]()


def test_an_empty_batch_is_refused():
    """No sequence, no step."""
    with pytest.raises(CardError, match="at least one sequence"):
        roofline.decode_step(lookup("llama-3-8b"), batch=0, context=16, **H100)


@given(st.integers(1, 512), st.integers(1, 64), st.integers(1, 2000))
def test_experts_touched_rise_to_all(experts, active, batch):
    """Never fewer than one token's, never more than all or than every token's apart."""
    moe = Moe(experts, min(active, experts), 1)
    touched = roofline.experts_touched(moe, batch)
    assert moe.active * (1 - 1e-9) <= touched <= min(experts, batch * moe.active) * (1 + 1e-9)

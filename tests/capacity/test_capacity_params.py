"""Parameter counts from dimensions: equal to the published ones, and a card that contradicts itself is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.capacity.card import Dimensions, LinearAttention, Mla, ModelCard, Moe, Sliding
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import check, parameters, total

SMALL = Dimensions(layers=4, hidden=64, heads=8, kv_heads=2, head_dim=8, ffn=128, vocab=1000, tied=True)

TOTALS = {
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "qwen2.5-7b": 7_615_616_512,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.2-3b": 3_212_749_824,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
    "phi-3-mini-128k": 3_821_079_552,
    "chatglm3-6b": 6_243_584_000,
    "tinyllama-1.1b": 1_100_048_384,
    "internlm2-1.8b": 1_889_110_016,
    "smollm2-135m": 134_515_008,
    "mistral-7b-v0.1": 7_241_732_096,
}
EXPERTS = {
    "qwen3-30b-a3b": (30.532e9, 3.353e9),
    "mixtral-8x7b": (46.703e9, 12.880e9),
    "gpt-oss-20b": (20.915e9, 3.608e9),
    "gpt-oss-120b": (116.83e9, 5.13e9),
    "qwen3-235b-a22b": (235.094e9, 22.191e9),
    "deepseek-v3": (671.0e9, 37.55e9),
}


@pytest.mark.parametrize(("name", "published"), TOTALS.items())
def test_dense_counts_are_exact(name, published):
    """Every weight, bias and norm of a dense model is counted, a tied head once."""
    assert parameters(lookup(name).dims).total == published


@pytest.mark.parametrize(("name", "counts"), EXPERTS.items())
def test_total_and_active_of_experts(name, counts):
    """All experts are stored and k of them are active; OpenAI leaves the input embedding out, the others count it."""
    card = lookup(name)
    counted = parameters(card.dims)
    assert counted.total == pytest.approx(counts[0], rel=0.002)
    assert counted.active(card.active_embedding) == pytest.approx(counts[1], rel=0.002)


def test_linear_weights_leave_out_embedding_head_and_vectors():
    """The P of prefill FLOPs: 0.358e9 of the 0.494e9 of Qwen2.5-0.5B."""
    counted = parameters(lookup("qwen2.5-0.5b").dims)
    assert counted.linear == 357_826_560
    assert counted.total - counted.linear == 151_936 * 896 + 24 * 1152 + (2 * 24 + 1) * 896


@pytest.mark.parametrize(("name", "count"), [("tinyllama-1.1b", 1_034_512_384), ("internlm2-1.8b", 1_699_579_904)])
def test_a_decode_step_does_not_read_the_input_embedding(name, count):
    """An untied embedding is looked up by row: the bytes per token of the vendors' board tables."""
    assert parameters(lookup(name).dims).read_per_step() == count


def test_a_tied_head_is_read():
    """The embedding of a tied model is its head, so all of Qwen2.5-1.5B is read for each token."""
    assert parameters(lookup("qwen2.5-1.5b").dims).read_per_step() == 1_543_714_304


def test_a_card_that_contradicts_its_count_is_refused():
    """Above 2 % the card names both counts; below, rounding of published counts is let through."""
    count = parameters(SMALL).total
    card = ModelCard("m", "test", SMALL, params=count)
    assert check(replace(card, params=round(count * 1.019))).dims == SMALL
    with pytest.raises(
        CardError, match=rf"m: {round(count * 1.03):,} parameters are stated .* make {count:,} \(-2.9%\)"
    ):
        check(replace(card, params=round(count * 1.03)))
    with pytest.raises(CardError, match="active are stated"):
        check(replace(card, active=count // 2))


def test_a_card_without_dimensions_has_its_stated_count():
    """552B at 4 bit are 276 GB whatever is active; what needs dimensions says that they are not published."""
    card = lookup("deepseek-v4.1-flash")
    assert total(card) * 4 / 8 == 276e9
    assert (card.active_prefill, card.active_decode, card.kv_bytes_per_token) == (8e9, 16e9, 890)
    with pytest.raises(CardError, match="dimensions are not published"):
        card.need()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers must be a whole number of at least 1, it is 0"),
        ({"hidden": -5}, "hidden must be"),
        ({"heads": 2.0}, "heads must be"),
        ({"layers": True}, "layers must be"),
        ({"tied": 1}, "tied must be true or false"),
        ({"kv_heads": 3}, "8 query heads do not divide by 3 key heads"),
        ({"sliding": Sliding(5, 16)}, "4 layers cannot hold 5 sliding and linear ones"),
        ({"sliding": Sliding(3, 16), "linear": LinearAttention(2, 1, 1, 8, 8)}, "4 layers cannot hold 5"),
        ({"sliding": Sliding(2, 0)}, "window must be"),
        ({"moe": Moe(4, 5, 16)}, "5 active experts of 4"),
        ({"moe": Moe(4, 2, 16, dense_layers=5)}, "5 dense layers of 4"),
        ({"moe": Moe(4, 2, 16, dense_layers=1), "ffn": 0}, "ffn must be at least 1 for 1 dense layers"),
        ({"mla": Mla(0, 8, 8, 8)}, "kv_lora_rank must be"),
        ({"context": 0}, "context must be"),
    ],
)
def test_dimensions_that_cannot_be_are_named(change, message):
    """One line says which number is wrong."""
    with pytest.raises(CardError, match=message):
        replace(SMALL, **change)


@pytest.mark.parametrize(
    "fields",
    [{"name": ""}, {"source": ""}, {"params": -1}, {"bits": 0}, {"kv_bytes_per_token": -890.0}, {"dims": None}],
)
def test_a_card_needs_a_source_and_positive_figures(fields):
    """A card without a source, with a negative figure or with nothing to compute from is none."""
    with pytest.raises(CardError):
        ModelCard(**{"name": "m", "source": "s", "dims": SMALL, **fields})


@given(
    layers=st.integers(1, 100),
    groups=st.integers(1, 8),
    kv_heads=st.integers(1, 16),
    experts=st.integers(1, 64),
    data=st.data(),
)
def test_the_accounts_are_ordered(layers, groups, kv_heads, experts, data):
    """linear <= active without embedding <= active <= total, and reading every expert reads all but the embedding."""
    active = data.draw(st.integers(1, experts))
    dims = replace(
        SMALL, layers=layers, heads=groups * kv_heads, kv_heads=kv_heads, tied=False, moe=Moe(experts, active, 32)
    )
    counted = parameters(dims)
    assert counted.linear <= counted.active(False) <= counted.active() <= counted.total
    assert counted.read_per_step(experts) == counted.total - counted.embedding
    assert counted.read_per_step() == counted.active(False)

"""What a card predicts for a run, and when it says nothing."""

import pytest

from loadkit.capacity import kv
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.errors import CardError
from loadkit.capacity.params import parameters
from loadkit.capacity.predict import find, predict, predict_ttft_ratio
from loadkit.engine import builtin

ENGINE = {
    "model": "loadkit-builtin",
    "dimensions": {
        "layers": 6,
        "hidden": 384,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 64,
        "ffn": 1024,
        "vocab": 261,
        "tied": False,
        "qkv_bias": False,
        "context": 32768,
    },
}


def test_prediction_by_name():
    """Weights, crossover and knee of Llama-3-8B, with the source of its dimensions."""
    assert predict(["meta-llama/Llama-3.1-8B-Instruct"]) == {
        "model": "Llama-3-8B",
        "source": lookup("llama-3-8b").source,
        "linear_params": 6_979_321_856,
        "crossover_tokens": pytest.approx(53_248),
        "k25_tokens": pytest.approx(13_312),
        "causal": True,
    }


def test_without_skipping_masked_pairs_the_knee_comes_at_half_the_length():
    """An engine that computes the whole square says causal False."""
    found = predict(["llama-3-8b"], causal=False)
    assert (found["k25_tokens"], found["causal"]) == (pytest.approx(6_656), False)


def test_prediction_from_what_the_target_told():
    """The engine's own dimensions go before any name, even one of the catalogue."""
    found = predict(["llama-3-8b"], ENGINE)
    linear = 6 * (384 * (6 + 4) * 64 + 384 * 384 + 3 * 384 * 1024)
    assert found["model"] == "loadkit-builtin"
    assert found["linear_params"] == linear
    assert found["crossover_tokens"] == pytest.approx(linear / (6 * 384))
    assert found["source"] == "the dimensions the target told"


def test_the_engine_tells_dimensions_that_can_be_read():
    """What the engine's ready line says is what this room reads, for its built-in model."""
    told = find([], {"model": builtin.NAME, "dimensions": builtin.CONFIG.dimensions})
    assert parameters(told.dims).total == builtin.CONFIG.parameters
    assert kv.per_sequence(told, 1024, "fp32") == builtin.CONFIG.kv_bytes(1024)


def test_the_target_may_tell_its_model_only():
    """Without dimensions its model name is looked up."""
    assert find([], {"model": "SmolLM2-135M-Instruct.Q4_1"}).name == "SmolLM2-135M"


@pytest.mark.parametrize(
    "dimensions", [{}, [], None, "x", {"layers": -1}, {**ENGINE["dimensions"], "heads": "6"}, {"layers": 1, "sort": 2}]
)
def test_dimensions_that_cannot_be_are_not_used(dimensions):
    """A foreign manifest may hold anything there; the name still counts."""
    assert predict(["qwen3-8b"], {"dimensions": dimensions})["model"] == "Qwen3-8B"
    assert predict([], {"dimensions": dimensions}) is None


@pytest.mark.parametrize("names", [[], ["sim"], ["gpt-4o", ""], ["llama-3-8b", "llama-3-70b"], [None, 7]])
def test_no_card_no_prediction(names):
    """An unknown name, and two names that disagree, predict nothing."""
    assert predict(names) is None


def test_two_names_of_one_card_agree():
    """An endpoint's alias and the server's own name of the model are often written differently."""
    assert predict(["llama3.1:8b", "meta-llama/Llama-3.1-8B-Instruct", "my-alias"])["model"] == "Llama-3-8B"


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "deepseek-v4.1-flash"])
def test_no_knee_no_prediction(name):
    """Windows in every layer never bend the curve; unpublished dimensions cannot say."""
    assert predict([name]) is None


def test_predicted_growth_of_ttft():
    """Operations alone: 48 times from 8K to 128K for Llama-3-8B, and the inverse backwards."""
    card = lookup("llama-3-8b")
    assert predict_ttft_ratio(card, 8192, 131_072) == pytest.approx(48.03, rel=1e-3)
    assert predict_ttft_ratio(card, 131_072, 8192) == pytest.approx(1 / 48.03, rel=1e-3)
    with pytest.raises(CardError, match="not published"):
        predict_ttft_ratio(lookup("deepseek-v4.1-flash"), 1000, 2000)

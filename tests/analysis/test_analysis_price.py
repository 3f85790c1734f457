"""The unit price along the ladder, against the published rows of two models on one machine."""

from functools import partial

import pytest

from loadkit.analysis.price import linearity, price
from loadkit.analysis.summary import summarise
from loadkit.capacity.catalogue import lookup
from loadkit.capacity.predict import predict_ttft_ratio

# Qwen2.5-0.5B in a NumPy engine: real tokens without BOS, TTFT in s, unit price and TPOT in ms.
HALF_B = (
    (123, 8.06, 65.53, 65.4),
    (279, 18.59, 66.63, 70.7),
    (539, 37.01, 68.66, 68.7),
    (799, 54.62, 68.36, 88.7),
    (1059, 75.10, 70.92, 73.1),
    (1527, 108.81, 71.26, 73.7),
)


@pytest.fixture
def half_b(request_of):
    """The summary of three equal rounds of the published rows, BOS inside the prompt tokens."""
    return summarise(
        request_of(
            tokens, 1, at=1000 * turn + i, ttft=1000 * ttft, tpot=tpot, output=10, prompt=tokens + 1,
            bos_tokens=1, unit_price_ms=1000 * ttft / tokens, round=turn, visit=10 * turn + i, target_tokens=tokens + 1,
        )
        for turn in (1, 2, 3)
        for i, (tokens, ttft, _, tpot) in enumerate(HALF_B)
    )  # fmt: skip


def test_the_published_rows_give_the_published_verdict(half_b):
    """Slope 1.0342, R2 0.9996, drift +8.7 %, crossover of a n + b n^2 at 22,019 tokens: stable and near-linear."""
    found = half_b["price"]
    assert found["slope"] == pytest.approx(1.0342, abs=1e-4)
    assert found["r2_linear"] == pytest.approx(0.9996, abs=1e-4)
    assert found["drift"] == pytest.approx(0.0875, abs=1e-4)
    assert found["quadratic"]["a_ms"] == pytest.approx(66.80, abs=0.01)
    assert found["quadratic"]["crossover_tokens"] == pytest.approx(22_019, abs=5)
    assert (found["verdict"], found["stable"], found["reason"]) == ("near-linear", True, None)
    assert "is stable (drift +8.7 %" in found["sentence"]
    assert "near-linear in prompt tokens (log-log slope 1.034;" in found["sentence"]


def test_prices_are_per_real_token_and_parallelism_is_one_by_one(half_b):
    """Lengths without BOS, the published prices to 0.1 ms, TPOT / price about 1: prompt tokens are read one by one."""
    tiers = half_b["price"]["tiers"]
    assert [tier["tokens"] for tier in tiers] == [row[0] for row in HALF_B]
    assert [tier["price_ms"] for tier in tiers] == pytest.approx([row[2] for row in HALF_B], abs=0.01)
    assert tiers[-1]["growth"] == pytest.approx(71.26 / 65.53, rel=1e-3)
    assert tiers[0]["parallelism"] == pytest.approx(65.4 / 65.53, rel=1e-3)
    assert tiers[0]["predicted_growth"] is None


def test_the_card_of_the_model_predicts_the_drift(half_b):
    """Causal attention of that model explains +8.4 % from 123 to 1527 tokens."""
    found = price(half_b["cells"], partial(predict_ttft_ratio, lookup("Qwen2.5-0.5B")))
    assert found["predicted_drift"] == pytest.approx(0.084, abs=0.001)
    assert found["tiers"][0]["predicted_growth"] == 1
    assert found["tiers"][-1]["predicted_growth"] == pytest.approx(1.084, abs=0.001)
    assert "the model card predicts a drift of +8.4 %" in found["sentence"]


def test_a_run_that_names_its_model_is_held_against_its_card(ladder):
    """The name in the answers finds the card; a name without one, or two models, give no prediction."""
    law = {100: 100.0, 200: 200.0, 400: 400.0}
    known = summarise(ladder(law, response_model="Qwen2.5-0.5B"))["price"]
    assert known["predicted_drift"] > 0
    assert summarise(ladder(law, response_model="nobody-9"))["price"]["predicted_drift"] is None


def test_neighbouring_tiers_have_their_own_slopes_and_readings(ladder):
    """Exponents 1, 1.1 and 1.7 between tiers, read as linear, linear and a rise."""
    law = {1000: 100.0, 2000: 200.0, 4000: 200 * 2**1.09, 8000: 200 * 2**1.09 * 2**1.7}
    steps = summarise(ladder(law))["price"]["local"]
    assert [step["exponent"] for step in steps] == pytest.approx([1.0, 1.09, 1.7])
    assert steps[0]["slope_ms_per_token"] == pytest.approx(0.1)
    assert [step["reading"].split(":")[0] for step in steps] == ["linear", "linear", "a rise above linear"]


@pytest.mark.parametrize(
    ("exponent", "name"),
    [(0.9, "sublinear"), (0.95, "near-linear"), (1.10, "near-linear"), (1.11, "superlinear"), (2.0, "superlinear")],
)
def test_exponents_have_names(exponent, name):
    """Near-linear is 0.95 to 1.10."""
    assert linearity(exponent) == name


def test_an_exponent_that_is_not_told_from_one_is_near_linear():
    """Exponents of 0.7 and 1.3 with a standard error of 0.2 are; with one of 0.1 they are not."""
    assert [linearity(e, 0.2) for e in (0.7, 1.3)] == ["near-linear", "near-linear"]
    assert [linearity(e, 0.1) for e in (0.7, 1.3)] == ["sublinear", "superlinear"]


def test_a_price_that_grows_is_not_stable(ladder):
    """TTFT with the square of the length: the price doubles with every doubling."""
    found = price(summarise(ladder({n: n * n / 100 for n in (100, 200, 400, 800)}))["cells"])
    assert (found["verdict"], found["stable"], found["drift"]) == ("superlinear", False, pytest.approx(7.0))


def test_two_tiers_have_numbers_and_no_verdict(ladder):
    """Too few tiers: slope and drift, no R2, no verdict, and the reason; two rounds say too_few_rounds."""
    two = summarise(ladder({100: 100.0, 200: 220.0}))["price"]
    assert (two["verdict"], two["stable"], two["r2_linear"], two["reason"]) == (None, None, None, "too_few_tiers")
    assert two["drift"] == pytest.approx(0.1)
    assert "No verdict on the unit price" in two["sentence"]
    few = summarise(ladder({100: 100.0, 200: 220.0, 400: 400.0}, count=2))["price"]
    assert (few["verdict"], few["reason"]) == (None, "too_few_rounds")


def test_invalid_cells_are_kept_out_of_the_price(ladder):
    """A tier of an unhealthy client is in no fit, whatever it would do to it."""
    law = {100: 100.0, 200: 200.0, 400: 400.0, 800: 80_000.0}
    sick = {"visits": [{"cell": "800x1", "validity": {"status": "invalid", "reasons": ["1 worker lost"]}}]}
    found = summarise(ladder(law), sick)["price"]
    assert [tier["tier_tokens"] for tier in found["tiers"]] == [100, 200, 400]
    assert (found["verdict"], found["slope"]) == ("near-linear", pytest.approx(1.0))


def test_an_empty_run_and_one_tier_have_no_price_verdict(ladder):
    """Nothing to divide, nothing raised."""
    assert summarise([])["price"]["tiers"] == []
    one = summarise(ladder({100: 100.0}))["price"]
    assert (len(one["tiers"]), one["slope"], one["reason"]) == (1, None, "too_few_tiers")

"""The growth of TTFT with length: exponent, verdict, and when there is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadkit.analysis.growth import growth
from loadkit.analysis.summary import summarise

# A published CPU run of a 0.5B model: real prompt tokens and TTFT in ms.
PUBLISHED = {123: 8060.0, 279: 18590.0, 539: 37010.0, 799: 54620.0, 1059: 75100.0, 1527: 108810.0}


def test_published_rows_are_near_linear(ladder):
    """Exponent 1.034, R2 of the straight line 0.9996, unit price 65.5 to 71.3 ms a token: linear, +8.7 %."""
    found = summarise(ladder(PUBLISHED))["growth"]
    assert found["exponent"] == pytest.approx(1.0342, abs=5e-4)
    assert found["r2_linear"] == pytest.approx(0.9996, abs=1e-4)
    assert found["price_exponent"] == pytest.approx(0.0342, abs=5e-4)
    assert found["verdict"] == "linear"
    assert found["sentence"] == (
        "TTFT grows with the prompt to the power 1.03 from 123 to 1527 tokens (linear); "
        "the unit price rises from 65.5 to 71.3 ms per token (+8.7 %)."
    )


@pytest.mark.parametrize(
    ("power", "verdict"), [(1.0, "linear"), (2.0, "faster than linear"), (1.5, "faster than linear"), (0.5, "slower")]
)
def test_a_power_law_gives_its_exponent(ladder, power, verdict):
    """TTFT = n ** p has exponent p between all tiers, and the unit price p - 1."""
    found = growth(summarise(ladder({n: float(n) ** power for n in (100, 200, 400, 800)}))["cells"])
    assert found["exponent"] == pytest.approx(power)
    assert found["price_exponent"] == pytest.approx(power - 1, abs=1e-9)
    assert [step["exponent"] for step in found["local_exponents"]] == pytest.approx([power] * 3)
    assert found["verdict"].startswith(verdict)


def test_one_power_is_not_said_of_a_curve_that_bends(ladder):
    """Where a knee was found the numbers stand, and neither linear nor stable is said of all tiers together."""
    law = {n: 20 + 0.01 * n + max(0, n - 1000) for n in (100, 200, 400, 700, 1000, 1400, 2000)}
    found = summarise(ladder(law))
    assert found["knee"]["length"]["kind"] == "hinge"
    for part in (found["growth"], found["price"]):
        assert (part["verdict"], part["reason"]) == (None, "bends")
        assert not {"linear", "stable"} & set(part["sentence"].replace("near-", "").split()[:8])
    assert "the bend among them" in found["growth"]["sentence"]
    assert found["price"]["stable"] is None


def test_a_fixed_cost_is_told_from_growth(ladder):
    """TTFT = 1000 + n: slower than linear, straight line found exactly, and the sentence names the fixed cost."""
    found = summarise(ladder({n: 1000.0 + n for n in (100, 200, 400, 800)}))["growth"]
    assert (found["verdict"], found["r2_linear"]) == ("slower than linear", pytest.approx(1))
    assert (found["intercept_ms"], found["slope_ms_per_token"]) == (pytest.approx(1000), pytest.approx(1))
    assert "falls from 11 to 2.25 ms per token (-79.5 %, a fixed cost shared by more tokens)" in found["sentence"]


def test_noise_is_not_growth(ladder):
    """Scatter that makes an exponent of 1.1 uncertain by 0.1 stays linear."""
    found = growth(summarise(ladder({100: 100.0, 120: 150.0, 150: 140.0, 200: 220.0}))["cells"])
    assert found["exponent"] == pytest.approx(1.0, abs=0.2)
    assert found["exponent_se"] > 0.1
    assert found["verdict"] == "linear"


@pytest.mark.parametrize("tiers", [0, 1, 2])
def test_too_few_tiers_have_no_verdict(ladder, tiers):
    """Under three tiers there is no verdict, and the sentence says how many answered."""
    found = summarise(ladder({100 * (i + 1): 50.0 * (i + 1) for i in range(tiers)}))["growth"]
    assert (found["verdict"], found["reason"], found["tiers"]) == (None, "too_few_tiers", tiers)
    assert ("no tier", "one tier", "2 tiers")[tiers] in found["sentence"]
    assert (found["exponent"] is not None) == (tiers == 2)


def test_too_few_rounds_have_no_verdict(ladder):
    """Two rounds give an exponent and no verdict."""
    found = summarise(ladder(PUBLISHED, count=2))["growth"]
    assert (found["verdict"], found["reason"]) == (None, "too_few_rounds")
    assert found["sentence"] == (
        "No verdict on how TTFT grows: 3 answered rounds on 3 tiers are needed (exponent so far 1.03)."
    )


def test_a_tier_with_too_few_rounds_is_left_out_and_named(ladder, request_of):
    """A longest tier that answered once does not bend the fit of the others."""
    records = [*ladder({100: 100.0, 200: 200.0, 400: 400.0}), request_of(800, 1, at=900, ttft=9999.0)]
    found = summarise(records)["growth"]
    assert (found["exponent"], found["verdict"]) == (pytest.approx(1), "linear")
    assert found["dropped"] == [{"tier_tokens": 800, "reason": "too_few_rounds: 1 of 3"}]


def test_tiers_without_an_answer_are_named(ladder, request_of):
    """A tier of errors, and one whose prompt tokens nobody counted, are left out with their reasons."""
    records = [
        *ladder({100: 100.0, 200: 200.0, 400: 400.0}),
        request_of(800, 1, outcome="context_length_exceeded"),
        request_of(900, 1, ttft=900.0, prompt_tokens=None),
    ]
    found = summarise(records)["growth"]
    assert found["dropped"] == [
        {"tier_tokens": 800, "reason": "no_answer"},
        {"tier_tokens": 900, "reason": "no_prompt_tokens"},
    ]
    assert found["tokens_last"] == 400


def test_invalid_cells_and_other_concurrencies_stay_out(ladder):
    """A cell that is invalid, or not at concurrency 1, never enters the fit."""
    cells = summarise(ladder({100: 100.0, 200: 200.0, 400: 400.0, 800: 9000.0, 1600: 9000.0}))["cells"]
    cells[3]["validity"] = {"status": "invalid", "reasons": ["lost worker"]}
    cells[4]["concurrency"] = 2
    found = growth(cells)
    assert found["exponent"] == pytest.approx(1)
    assert found["dropped"] == [{"tier_tokens": 800, "reason": "invalid"}]


@given(st.dictionaries(st.integers(1, 10**6), st.floats(1e-3, 1e7), max_size=6))
def test_any_curve_has_a_sentence(law):
    """Whatever the medians, there is one sentence, and a verdict exactly from three tiers on."""
    cells = [
        {
            "concurrency": 1,
            "tier_tokens": n,
            "ttft_ms": {"p50": ttft},
            "prompt_tokens": {"median": n},
            "unit_price_ms": ttft / n,
            "rounds": 3,
            "validity": {"status": "valid"},
        }
        for n, ttft in law.items()
    ]
    found = growth(cells)
    assert (found["verdict"] is not None) == (len(law) >= 3)
    assert found["sentence"].count("\n") == 0
    assert found["sentence"].endswith(".")


def test_a_price_that_falls_before_it_rises_is_told_so(ladder):
    """A fixed cost of 50 ms and a rise with length: the cheapest tier is named, not only the ends."""
    found = growth(summarise(ladder({128: 306.0, 512: 1000.0, 2048: 4900.0}))["cells"])
    assert found["price_lowest"]["tokens"] == 512
    assert "falls from 2.39 to 1.95 ms per token at 512 tokens" in found["sentence"]
    assert "rises to 2.39 from there (+22.5 %)" in found["sentence"]

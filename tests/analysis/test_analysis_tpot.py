"""TPOT along the ladder: flat or not, and what stands out is a note."""

import pytest

from loadkit.analysis.summary import summarise

PUBLISHED = {123: 65.4, 279: 70.7, 539: 68.7, 799: 88.7, 1059: 73.1, 1527: 73.7}


@pytest.fixture
def across(request_of):
    """tpot_across_tiers of three rounds with these TPOTs, {tier: ms}."""

    def build(tpots, rounds=3):
        rows = [
            request_of(tier, 1, at=100 * turn + i, ttft=70.0 * tier, tpot=tpot, round=turn, visit=10 * turn + i)
            for turn in range(1, rounds + 1)
            for i, (tier, tpot) in enumerate(tpots.items())
        ]
        return summarise(rows)["tpot_across_tiers"]

    return build


def test_the_published_rows_are_flat_with_one_outlier(across):
    """Median 71.9 ms, max over min 1.356, 1.127 without the tier of 799 tokens, which is a note and not a knee."""
    found = across(PUBLISHED)
    assert found["median_ms"] == pytest.approx(71.9)
    assert found["ratio"] == pytest.approx(1.356, abs=1e-3)
    assert found["ratio_without_outliers"] == pytest.approx(1.127, abs=1e-3)
    assert [tier["tier_tokens"] for tier in found["outliers"]] == [799]
    assert found["verdict"] == "flat"
    (note,) = found["notes"]
    assert note == "TPOT 88.7 ms at 799 tokens stands out from a median of 71.9 ms: jitter of one tier, not a knee"
    assert found["sentence"].startswith(
        "TPOT across the tiers is flat: median 71.9 ms, largest over smallest 1.36, 1.13"
    )


def test_a_trend_is_not_called_an_outlier(across):
    """TPOT that rises along the ladder is not flat, and no tier of it stands out alone."""
    found = across({128: 10.0, 256: 10.1, 512: 10.2, 1024: 20.0, 2048: 40.0})
    assert (found["verdict"], found["outliers"]) == ("not flat", [])
    ends = across({128: 30.0, 256: 10.1, 512: 10.2, 1024: 10.0, 2048: 10.1})
    assert (ends["verdict"], ends["outliers"]) == ("not flat", [])


def test_small_jitter_is_not_named(across):
    """A tier 2 % off among tiers 0.1 % apart stands out by deviations and matters to nobody."""
    found = across({128: 10.0, 256: 10.01, 512: 10.2, 1024: 10.0, 2048: 10.01})
    assert (found["verdict"], found["outliers"]) == ("flat", [])


def test_too_little_has_no_verdict(across):
    """Two tiers, or two rounds."""
    assert across({128: 10.0, 256: 10.0})["reason"] == "too_few_tiers"
    assert across({128: 10.0, 256: 10.0, 512: 10.0}, rounds=2)["reason"] == "too_few_rounds"
    assert summarise([])["tpot_across_tiers"]["verdict"] is None

"""Answers that came sooner than their prompts allow are found, and honest ones are left alone."""

import numpy as np
import pytest

from loadkit.analysis.plausible import implausible
from loadkit.analysis.strata import strata
from loadkit.analysis.summary import summarise

TIERS = (128, 512, 1024, 2048, 4096)
HONEST = {tier: 0.2 * tier + 20 for tier in TIERS}


def test_one_cached_repeat_makes_its_cell_suspect(ladder, request_of):
    """2048 tokens take 430 ms and once 45 ms: flagged as a cache hit, with both numbers in the reason."""
    rows = [*ladder(HONEST), request_of(2048, 1, at=900, ttft=45.0, round=4, visit=90)]
    cells = {cell["cell"]: cell for cell in summarise(rows)["cells"]}
    cell = cells["2048x1"]
    assert cell["implausible_ttft"] == {"count": 1, "fastest_ms": 45.0, "floor_ms": pytest.approx(429.6)}
    assert "prefix_cache_hit" in cell["cell_flags"]
    assert cell["validity"]["status"] == "suspect"
    assert cell["validity"]["reasons"] == [
        "1 of 4 answers came sooner than a prompt of this length allows "
        "(45 ms where the rest of the run gives 430 ms), as from a prefix cache"
    ]
    assert {name: c["validity"]["status"] for name, c in cells.items() if name != "2048x1"} == {
        f"{tier}x1": "valid" for tier in TIERS if tier != 2048
    }


def test_a_tier_that_was_cached_whole_is_found_by_the_other_tiers(ladder):
    """All repeats of 2048 tokens came in 45 ms, sooner than those of 512: the other tiers show it."""
    found = implausible(strata(ladder(HONEST | {2048: 45.0})))
    assert list(found) == [(2048, 1)]
    assert found[2048, 1].count == 3


def test_company_does_not_make_an_answer_come_sooner(ladder, request_of):
    """At concurrency 2 the same prompts come in a tenth of the time they take alone."""
    rows = [*ladder({1024: 225.0}), *(request_of(1024, 2, at=500, ttft=t, visit=9) for t in (22.0, 300.0))]
    found = implausible(strata(rows))
    assert (list(found), found[1024, 2].count, found[1024, 2].floor_ms) == ([(1024, 2)], 1, 225.0)


def test_a_wanted_cache_makes_no_cell_suspect(ladder):
    """Under --shared-prefix early answers are what the run is about: still told, not held against it."""
    cells = summarise(ladder(HONEST | {2048: 45.0}), {"plan": {"shared_prefix": 0.9}})["cells"]
    (cell,) = [cell for cell in cells if cell["tier_tokens"] == 2048]
    assert cell["implausible_ttft"]["count"] == 3
    assert cell["validity"]["status"] == "valid"


@pytest.mark.parametrize(
    "law",
    [
        {128: 1.0, 512: 1.2, 1024: 1.4, 2048: 1.9, 4096: 3.0},  # a fast server: a few ms are jitter
        {128: 100.0, 512: 101.0, 1024: 103.0, 2048: 9000.0, 4096: 12000.0},  # a break
        {128: 100.0, 512: 400.0, 1024: 1200.0, 2048: 4800.0, 4096: 20000.0},  # quadratic
        {128: 900.0, 512: 200.0, 1024: 400.0, 2048: 800.0, 4096: 1600.0},  # a cold first tier
        {128: 50.0, 512: 50.0, 1024: 50.0, 2048: 50.0, 4096: 50.0},  # a fixed cost
    ],
)
def test_curves_without_a_cache_are_left_alone(ladder, law):
    """Knees, breaks, fixed costs, cold starts and tiny times are no caches."""
    assert implausible(strata(ladder(law))) == {}


@pytest.mark.parametrize(("scatter", "alarms"), [(0.2, 0), (0.4, 1), (0.6, 3)])
def test_noise_is_left_alone(request_of, scatter, alarms):
    """An honest ladder with scatter on every answer, forty times: next to nothing is found, however large it is."""
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(40):
        rows = [
            request_of(tier, 1, at=10 * turn, ttft=ttft * rng.lognormal(0, scatter), round=turn, visit=turn)
            for turn in range(1, 6)
            for tier, ttft in HONEST.items()
        ]
        found += bool(implausible(strata(rows)))
    assert found <= alarms


def test_a_cached_repeat_is_found_among_scattered_ones(request_of):
    """A tenth of scatter, and one answer in a tenth of its time: found in each of forty runs."""
    rng = np.random.default_rng(6)
    for _ in range(40):
        rows = [
            request_of(tier, 1, at=10 * turn, ttft=ttft * rng.lognormal(0, 0.1), round=turn, visit=turn)
            for turn in range(1, 5)
            for tier, ttft in HONEST.items()
        ]
        found = implausible(strata([*rows, request_of(2048, 1, at=99, ttft=43.0, round=5, visit=9)]))
        assert (list(found), found[2048, 1].fastest_ms) == ([(2048, 1)], 43.0)


def test_too_few_tiers_say_nothing(ladder, request_of):
    """With one tier or three, a fast repeat may be anything; a cell of errors is passed over."""
    fast = request_of(128, 1, at=900, ttft=2.0, visit=90)
    assert implausible(strata([*ladder({128: 100.0}), fast])) == {}
    assert implausible(strata([*ladder({128: 100.0, 256: 200.0, 512: 400.0}), fast])) == {}
    assert implausible(strata([request_of(tier, 1) for tier in TIERS])) == {}

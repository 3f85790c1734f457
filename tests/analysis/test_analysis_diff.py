"""A difference between two runs: shown when it is there, seldom when it is not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.diff import FASTER, MIXED, SAME, SLOWER, ByRound, diff, ratio_of_medians, verdict
from loadkit.analysis.summary import summarise

SEEDS = 200
SHAPES = {
    "normal, 10 %": lambda rng, shape: 100 + 10 * rng.standard_normal(shape),
    "log-normal": lambda rng, shape: np.exp(0.5 * rng.standard_normal(shape)),
    "heavy tail": lambda rng, shape: 100 + 5 * np.abs(rng.standard_t(2, size=shape)),
}


def judged(a, b):
    """The verdict on rounds b against rounds a."""
    return verdict(ratio_of_medians(a, b)[1])


@pytest.mark.parametrize("shape", [(3, 1), (5, 1), (20, 1), (3, 4), (8, 4)])
@pytest.mark.parametrize("law", SHAPES)
def test_no_difference_is_seldom_shown_where_there_is_none(law, shape):
    """Two runs of one distribution: 'no difference shown' for at least 90 % of seeds, from three rounds on."""
    rng = np.random.default_rng(5)
    verdicts = [judged(*(SHAPES[law](rng, shape).tolist() for _ in "ab")) for _ in range(SEEDS)]
    assert verdicts.count(SAME) >= 0.9 * SEEDS


def test_rounds_that_share_a_disturbance_are_not_independent_requests():
    """Eight requests of a round late together are one reading: the false alarms stay under 10 %."""
    rng = np.random.default_rng(6)

    def run():
        return (100 * (1 + 0.1 * rng.standard_normal((5, 1))) * (1 + 0.01 * rng.standard_normal((5, 8)))).tolist()

    assert [judged(run(), run()) for _ in range(SEEDS)].count(SAME) >= 0.9 * SEEDS


@pytest.mark.parametrize(("factor", "expected"), [(1.3, SLOWER), (0.7, FASTER)])
def test_a_shift_of_30_percent_is_found_with_20_rounds(factor, expected):
    """n = 20 with a spread of 10 %: every seed finds it, in the right direction, and the interval holds the truth."""
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(SEEDS):
        a, b = (100 + 10 * rng.standard_normal((20, 1)) for _ in "ab")
        ratio, ci = ratio_of_medians(a.tolist(), (factor * b).tolist())
        assert verdict(ci) == expected
        assert ci[0] <= ratio <= ci[1]
        held += ci[0] <= factor <= ci[1]
    assert held >= 0.93 * SEEDS


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(1, 1e6), min_size=1, max_size=4), min_size=3, max_size=6),
    st.floats(0.01, 100),
)
def test_the_ratio_scales_and_repeats(rounds, factor):
    """Every time multiplied by f: the ratio is f, its interval holds it, and a repeat gives the same interval."""
    scaled = [[factor * value for value in values] for values in rounds]
    ratio, ci = ratio_of_medians(rounds, scaled)
    assert ratio == pytest.approx(factor)
    assert ci[0] <= ratio * (1 + 1e-9)
    assert ci[1] >= ratio * (1 - 1e-9)
    assert ratio_of_medians(rounds, scaled) == (ratio, ci)


def test_the_drawn_medians_are_those_of_resampled_rounds():
    """Against the plain way, rounds drawn and sorted: the same interval to the noise of drawing, at any round size."""
    rng = np.random.default_rng(8)
    a, b = ([(100 + 10 * rng.standard_normal(size)).tolist() for size in (1, 4, 2, 7, 3, 3)] for _ in "ab")

    def medians(rounds):
        for _ in range(4000):
            taken = sorted(value for i in rng.integers(len(rounds), size=len(rounds)) for value in rounds[i])
            yield taken[(len(taken) + 1) // 2 - 1]

    ratio, ci = ratio_of_medians(a, b)
    plain = np.log(list(medians(b))) - np.log(list(medians(a))) - np.log(ratio)
    t, z = 2.5706, 1.96
    expected = ratio * np.exp(np.quantile(plain, [0.025, 0.975]) * t / z * np.sqrt(6 / 5))
    assert ci == pytest.approx(expected, rel=0.02)


def test_many_requests_are_judged_in_little_time_and_memory():
    """20,000 requests in 1,000 rounds: places are thinned out, and a 1 % shift of a 10 % spread is still found."""
    rng = np.random.default_rng(9)
    a, b = (100 + 10 * rng.standard_normal((1000, 20)) for _ in "ab")
    assert judged(a.tolist(), (1.01 * b).tolist()) == SLOWER
    assert judged(a.tolist(), b.tolist()) == SAME


def test_requests_without_a_round_are_taken_in_turns(request_of):
    """Four requests of two streams are two rounds of two; warm-up and failures are no part of them."""
    records = [request_of(128, 2, ttft=float(ttft), round=0) for ttft in (10, 11, 20, 21)]
    records += [request_of(128, 2, ttft=99.0, phase="warmup"), request_of(128, 2, round=0)]
    rounds = ByRound()
    assert list(rounds.watch(records)) == records
    assert rounds.cells()["128x2"]["ttft_ms"] == [[10, 11], [20, 21]]


def found(a, b, manifest_b=None):
    """The diff of two lists of records."""
    rounds_a, rounds_b = ByRound(), ByRound()
    summary_a, summary_b = summarise(rounds_a.watch(a)), summarise(rounds_b.watch(b), manifest_b)
    return diff(rounds_a.cells(), summary_a, rounds_b.cells(), summary_b)


def test_a_cell_has_medians_ratios_and_a_verdict(ladder):
    """A server twice as slow to the first token and as fast after it; medians are those of the summary."""
    a = [row for n in range(3) for row in ladder({128: 100.0 + n}, tpot=10.0)]
    a = [{**row, "round": i + 1} for i, row in enumerate(a)]
    b = [{**row, "ttft_ms": 2 * row["ttft_ms"]} for row in a]
    (cell,) = found(a, b)["cells"]
    ttft, tpot = cell["metrics"]["ttft_ms"], cell["metrics"]["tpot_ms"]
    assert (ttft["a"]["p50"], ttft["b"]["p50"], ttft["a"]["rounds"], ttft["a"]["n"]) == (101, 202, 9, 9)
    assert ttft["a"]["ci"] == summarise(a)["cells"][0]["ttft_ms"]["ci"]
    assert (ttft["ratio"], ttft["verdict"], tpot["ratio"], tpot["verdict"]) == (pytest.approx(2), SLOWER, 1, SAME)
    assert cell["verdict"] == SLOWER


def test_prefill_and_decode_that_differ_apart_are_mixed(ladder):
    """Faster to the first token and slower after it is neither faster nor slower."""
    a = ladder({128: 100.0}, tpot=10.0)
    b = [{**row, "ttft_ms": 50.0, "tpot_ms": 20.0} for row in a]
    assert found(a, b)["cells"][0]["verdict"] == MIXED


@pytest.mark.parametrize(
    ("changed", "reasons"),
    [
        ({"outcome": "reset"}, {"no_answer"}),
        ({"prompt_tokens": 140}, {"prompt_lengths_differ"}),
        ({"output_tokens": 9}, {None, "output_lengths_differ"}),
        ({"ttft_ms": 0.0}, {None, "no_answer"}),
    ],
)
def test_what_gives_no_verdict_says_why(ladder, changed, reasons):
    """No answer, or other work than the other run did: no verdict on the metrics it touches."""
    a = ladder({128: 100.0})
    (cell,) = found(a, [{**row, **changed} for row in a])["cells"]
    assert {row["reason"] for row in cell["metrics"].values()} == reasons
    assert all((row["verdict"] is None) == (row["reason"] is not None) for row in cell["metrics"].values())


def test_two_rounds_are_too_few(ladder):
    """Fewer than three rounds on either side: no verdict."""
    a, b = ladder({128: 100.0}), ladder({128: 300.0}, count=2)
    (cell,) = found(a, b)["cells"]
    assert (cell["verdict"], cell["metrics"]["ttft_ms"]["reason"]) == (None, "too_few_rounds")


def test_an_invalid_cell_is_kept_out(ladder):
    """A cell whose client was saturated in one run has no verdict, however large the difference."""
    a, b = ladder({128: 100.0}), ladder({128: 300.0})
    visits = [{"visit": 0, "cell": "128x1", "validity": {"status": "invalid", "reasons": ["CPU"]}}]
    (cell,) = found(a, b, {"visits": visits})["cells"]
    assert (cell["verdict"], cell["validity"]["status"]) == (None, "invalid")
    assert cell["metrics"]["ttft_ms"]["reason"] == "invalid"


def test_cells_of_one_run_only_are_listed(ladder):
    """Tiers that the other run did not have are named, not compared."""
    result = found(ladder({128: 100.0, 256: 200.0}), ladder({256: 200.0, 512: 400.0}))
    assert ([cell["cell"] for cell in result["cells"]], result["only_a"], result["only_b"]) == (
        ["256x1"],
        ["128x1"],
        ["512x1"],
    )


@given(st.integers(0, 10**6), st.integers(3, 9), st.integers(3, 9), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_b_against_a_is_a_against_b_turned_over(seed, n, m, streams):
    """Ratio, interval and verdict do not depend on which run is named first, at the edge of a verdict neither."""
    rng = np.random.default_rng(seed)
    a, b = np.exp(0.2 * rng.standard_normal((n, streams))), 1.2 * np.exp(0.2 * rng.standard_normal((m, streams)))
    (there, ci), (back, turned) = ratio_of_medians(a.tolist(), b.tolist()), ratio_of_medians(b.tolist(), a.tolist())
    assert back == pytest.approx(1 / there)
    assert turned == pytest.approx([1 / ci[1], 1 / ci[0]])
    assert verdict(turned) == {SAME: SAME, FASTER: SLOWER, SLOWER: FASTER}[verdict(ci)]

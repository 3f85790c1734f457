"""The knee locator on curves whose law is known, what must not change its answer, and input that is hardly input."""

import json
import math
import time
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadkit.analysis.bend_words import sentence
from loadkit.analysis.bends import Point, entry
from loadkit.analysis.knee import Knee, locate

NEAR = (1.0, 1.012, 0.99, 1.004, 0.996)
"""Five repeats with about 1 % of noise, as factors."""
DOUBLING = [128.0 * 2**i for i in range(10)]
USERS = [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0]


def repeats(values):
    return [[value * factor for factor in NEAR] for value in values]


def of(x, law, **kwargs):
    return locate(x, repeats([law(v) for v in x]), **kwargs)


def hinge(x):
    return 40 + 0.1 * x + 0.3 * max(0.0, x - 3000)


def smooth(x):
    return 20 + 0.1 * x + 1e-6 * x * x


def step(x):
    return (40 + 0.1 * x) * (3 if x > 5000 else 1)


def slots(n):
    return (300 + 2 * n) * max(1.0, n / 20)


def rate_capped(n):
    return 50 * min(n, 20)


def rate_universal(n):
    return n / (1 + 0.5 * n / 20 + (n / 20) ** 2)


CURVES = {
    "hinge": (DOUBLING, hinge, "length", "ttft"),
    "smooth": (DOUBLING, smooth, "length", "ttft"),
    "break": (DOUBLING, step, "length", "ttft"),
    "queue": (USERS, slots, "concurrency", "latency"),
    "saturation": (USERS, rate_capped, "concurrency", "throughput"),
    "peak": (USERS, rate_universal, "concurrency", "throughput"),
    "none": (DOUBLING, lambda x: 900 + 0.1 * x, "length", "ttft"),
    "rising": (USERS, lambda n: 50 * n / (1 + n / 200), "concurrency", "throughput"),
}


def by_name(name):
    x, law, axis, metric = CURVES[name]
    return of(x, law, axis=axis, metric=metric)


def test_a_hinge_is_found_where_the_slope_changes():
    """f = 40 + 0.1 x + 0.3 (x - 3000)+: kind, place within 5 %, interval around it, the excess of 3 x 13508 / 41."""
    found = by_name("hinge")
    assert found.kind == "hinge"
    assert found.knee == pytest.approx(3000, rel=0.05)
    assert found.ci[0] < 3000 < found.ci[1]
    assert found.ci[1] / found.ci[0] < 1.3
    assert found.last_good == 2048
    assert found.probability > 0.999
    assert found.excess == pytest.approx(0.3 * (65536 - 3000) / (40 + 0.1 * 65536), rel=0.1)
    assert found.reason == ""


def test_a_smooth_bend_has_its_knee_at_k25():
    """K25 of a + b x + c x^2 is [b/4 + sqrt(b^2/16 + a c)] / (2 c)."""
    truth = (0.1 / 4 + math.sqrt(0.1**2 / 16 + 20 * 1e-6)) / 2e-6
    found = by_name("smooth")
    assert found.kind == "smooth"
    assert found.knee == pytest.approx(truth, rel=0.06)
    assert found.ci[0] < truth < found.ci[1]
    assert found.last_good == 16384


def test_a_break_is_the_whole_gap_with_its_geometric_mean():
    """A line that is multiplied by 3 somewhere between two tiers: nothing inside the gap is known."""
    found = by_name("break")
    assert found.kind == "break"
    assert found.ci == pytest.approx((4096, 8192))
    assert found.knee == pytest.approx(math.sqrt(4096 * 8192))
    assert found.last_good == 4096
    assert found.excess == pytest.approx(2, rel=0.05)


def test_a_full_batch_of_slots_is_a_hinge_in_concurrency():
    """Latency grows in proportion beyond 20 slots (Little's law)."""
    found = by_name("queue")
    assert found.kind == "hinge"
    assert found.knee == pytest.approx(20, rel=0.05)
    assert found.last_good == 16


def test_a_throughput_saturates_at_n90():
    """X = 50 min(N, 20) reaches 90 % of its supremum at 18."""
    found = by_name("saturation")
    assert found.kind == "saturation"
    assert found.knee == pytest.approx(18, rel=0.08)
    assert found.ci[0] < 18 < found.ci[1]
    assert found.last_good == 16


def test_soft_saturation_of_a_batching_server_has_its_n90_far_beyond_littles_point():
    """X = 900 N / (N + 5): N90 is 9 h = 45."""
    found = of([1, 2, 4, 8, 16, 32, 64, 128, 256], lambda n: 900 * n / (n + 5), axis="concurrency", metric="throughput")
    assert found.kind == "saturation"
    assert found.knee == pytest.approx(45, rel=0.2)
    assert found.ci[0] < 45 < found.ci[1]


def test_a_throughput_that_falls_again_is_a_peak():
    """The universal scalability law has its maximum at sqrt((1 - sigma) / kappa), here 20."""
    found = by_name("peak")
    assert found.kind == "peak"
    assert found.knee == pytest.approx(20, rel=0.05)


def test_a_plateau_is_no_peak():
    """A free fit of the law invents a maximum on any plateau: a visible fall is asked for."""
    flat = [min(n, 12) * (1 - 0.0003 * n) for n in USERS]
    assert locate(USERS, repeats(flat), axis="concurrency", metric="throughput").kind == "saturation"


@pytest.mark.parametrize(
    ("law", "reason"),
    [
        (lambda x: 0.1 * x, "linear"),
        (lambda x: 5000 + 0.1 * x, "linear"),
        (lambda x: 7.0, "linear"),
        (lambda x: 20 + x**0.6, "concave"),
        (lambda x: math.ceil(x / 150) * 15 + 1, "stairs"),
        (lambda x: 20 + 0.1 * x + 2.4e-7 * x * x, "excess_below_gate"),
    ],
    ids=["proportional", "fixed_cost", "constant", "concave", "padded", "slight_bend"],
)
def test_what_is_no_knee(law, reason):
    """Proportional, a fixed cost, constant, concave, padded to chunks, a bend of 16 % at the longest tier."""
    found = of(DOUBLING, law)
    assert (found.kind, found.knee, found.ci, found.last_good) == ("none", None, None, None)
    assert found.reason == reason
    assert found.probability < 0.5


def test_one_cached_tier_and_missing_top_tiers_are_no_knee():
    """A tier three times too fast is odd by itself; tiers that only failed are not there."""
    values = repeats([0.1 * x for x in DOUBLING])
    values[4] = [v / 3 for v in values[4]]
    assert locate(DOUBLING, values).kind == "none"
    assert locate(DOUBLING, [*values[:4], *repeats([0.1 * x for x in DOUBLING[4:8]]), [], [None]]).kind == "none"


def test_a_throughput_that_still_rises_has_no_knee():
    """N90 lies beyond the last tier, or nothing saturates at all."""
    assert by_name("rising").reason == "still_rising"
    assert of(USERS, lambda n: 50 * n, axis="concurrency", metric="throughput").reason == "linear"


def test_tokens_per_second_that_flatten_over_length_are_the_fixed_cost():
    """A rate over length is read as the time it stands for: an intercept is no knee."""
    assert of(DOUBLING, lambda x: x / (500 + 0.1 * x), axis="length", metric="throughput").reason == "linear"
    bent = of(DOUBLING, lambda x: x / hinge(x), axis="length", metric="throughput")
    assert bent.knee == pytest.approx(3000, rel=0.05)


def test_the_first_of_two_changes_is_the_knee():
    """A bend at 3000 and a step of factor 4 above 20000."""
    found = of(DOUBLING, lambda x: hinge(x) * (4 if x > 20000 else 1))
    assert found.knee == pytest.approx(3000, rel=0.15)


def test_a_knee_that_one_tier_alone_shows_is_marked():
    """Seen only at the last tier, with one tier before it, or below all tiers: the reason says so."""
    assert of(DOUBLING, lambda x: 0.1 * x * (4 if x > 40000 else 1)).reason == "one_tier_above"
    assert of(DOUBLING, lambda x: 40 + 0.1 * x + 0.5 * max(0.0, x - 200)).reason == "one_tier_below"
    steep = of(DOUBLING, lambda x: 1e-4 * x + 1e-4 * x * x)
    assert (steep.kind, steep.reason, steep.last_good) == ("smooth", "already_superlinear", None)
    assert steep.ci[0] == 0
    assert steep.ci[1] < 150


# What users met in the field.

SERIES = [1, 2, 4, 8, 16, 32, 64, 128]


@pytest.mark.parametrize("unit", [1, 1000])
def test_p73_the_knee_lies_between_16_and_32_in_any_unit(unit):
    """A real knee in concurrency, once in milliseconds and once in seconds."""
    ttft = [200, 204, 210, 222, 246, 900, 2300, 5100]
    found = locate(SERIES, [[v / unit] for v in ttft], axis="concurrency")
    assert found.last_good == 16
    assert 16 < found.knee < 32


@pytest.mark.parametrize("ttft", [[203, 206, 212, 224, 248, 296, 392, 584], [200, 203, 199, 201, 202, 198, 200, 201]])
def test_p74_straight_and_flat_series_have_no_knee(ttft):
    """Exactly 200 + 3 x, and flat noise."""
    assert locate(SERIES, [[v] for v in ttft], axis="concurrency").reason == "linear"


def test_p75_one_slow_round_does_not_move_the_knee():
    """One reading of 2500 among three at two users; the knee stays between 8 and 16."""
    rounds = [[100, 102, 101], [104, 2500, 103], [108, 107, 109], [116, 115, 117], [420, 410, 430], [1050, 1010, 1090]]
    found = locate(SERIES[:6], rounds, axis="concurrency")
    assert found.last_good == 8
    assert 8 < found.knee < 16


def test_p76_quadratic_prefill_is_a_smooth_bend_at_a_quarter_of_its_crossover():
    """2e-4 n + 3e-10 n^2 + 5 ms: linear and quadratic part are equal at 666667 tokens."""
    n = [4096, 32768, 131072, 524288, 1048576]
    ttft = [0.824233, 6.875723, 31.368361, 187.320972, 539.568688]
    found = locate(n, [[v] * 3 for v in ttft])
    assert found.kind == "smooth"
    assert 4 * found.knee == pytest.approx(666_667, rel=0.03)


# What must not change the answer.


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize(("by_x", "by_y"), [(8.0, 1.0), (1.0, 0.001), (1 / 3, 1e6)])
def test_the_unit_of_x_moves_the_knee_and_the_unit_of_y_does_not(name, by_x, by_y):
    """Scaling x scales knee, interval and last_good; scaling y changes nothing."""
    x, law, axis, metric = CURVES[name]
    before = by_name(name)
    after = locate(
        [v * by_x for v in x], [[v * by_y for v in r] for r in repeats([law(v) for v in x])], axis=axis, metric=metric
    )
    assert after.kind == before.kind
    assert after.probability == pytest.approx(before.probability, abs=1e-6)
    if before.knee is not None:
        assert after.knee == pytest.approx(before.knee * by_x, rel=1e-4)
        assert after.ci == pytest.approx([edge * by_x for edge in before.ci], rel=1e-4)
        assert after.last_good == pytest.approx(before.last_good * by_x)


@pytest.mark.parametrize("name", CURVES)
def test_the_order_of_tiers_and_repeats_does_not_matter(name):
    """Shuffled tiers, reversed repeats, and a tier given in two parts: the very same answer."""
    x, law, axis, metric = CURVES[name]
    ladder = [*zip(x, repeats([law(v) for v in x]), strict=True)]
    ladder[2:3] = [(ladder[2][0], ladder[2][1][:2]), (ladder[2][0], ladder[2][1][2:])]
    mixed = [(place, values[::-1]) for place, values in ladder[::2] + ladder[1::2][::-1]]
    assert locate(*zip(*mixed, strict=True), axis=axis, metric=metric) == by_name(name)


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("factor", [8.0, 0.3])
def test_one_outlier_repeat_at_any_tier_does_not_flip_the_kind(name, factor):
    """A repeat eight times too slow, or three times too fast, added to each tier in turn."""
    x, law, axis, metric = CURVES[name]
    clean = repeats([law(v) for v in x])
    before = by_name(name)
    for i in range(len(x)):
        spoilt = [[*values, values[0] * factor] if j == i else values for j, values in enumerate(clean)]
        found = locate(x, spoilt, axis=axis, metric=metric)
        assert found.kind == before.kind, f"outlier at {x[i]}"
        if before.knee is not None:
            assert abs(math.log2(found.knee / before.knee)) < 0.15


# Input that is hardly input.


@pytest.mark.parametrize(
    ("x", "samples"),
    [
        (None, None),
        ([], []),
        (5, 7),
        ("abcd", "abcd"),
        ([1, 2, 3], [[1], [2], [3]]),
        ([1, 1, 1, 1, 1], [[1], [2], [3], [4], [5]]),
        ([1, 2, 3, 4], [[], [], [], []]),
        ([1, 2, 3, 4], [[0, 0], [0], [-1], [float("nan"), None]]),
        ([0, -1, None, float("nan"), float("inf")], [[1], [2], [3], [4], [5]]),
        ([1, 2, 3, 4, 5], [[1], [2], [3]]),
        ([1, 2, 3, 4, 5], None),
    ],
)
def test_fewer_than_four_tiers_with_a_measurement_are_too_few(x, samples):
    """Nothing, too little, zeros, negatives, NaN, None, duplicates of one tier, missing samples: no exception."""
    assert locate(x, samples) == Knee("none", None, None, 0.0, None, None, "too_few_tiers")


def test_bad_values_beside_good_ones_are_left_out():
    """The answer is that of the good values alone."""
    x, law, _, _ = CURVES["hinge"]
    good = repeats([law(v) for v in x])
    worse = [[None, *values, float("nan"), 0, -3, "x", float("inf")] for values in good]
    assert locate([*x, 77, None], [*worse, [], [1]]) == locate(x, good)


def test_one_repeat_a_tier_and_plain_numbers_do():
    """Without repeats a noise of 5 % is taken; arrays and single numbers are taken for lists."""
    x, law, _, _ = CURVES["hinge"]
    values = [law(v) for v in x]
    found = locate(np.array(x), np.array(values))
    assert found == locate(x, [[v] for v in values])
    assert found.knee == pytest.approx(3000, rel=0.1)
    repeated = by_name("hinge").ci
    assert found.ci[1] / found.ci[0] > repeated[1] / repeated[0]


def test_all_equal_is_linear_and_a_flat_throughput_is_already_saturated():
    """The same value everywhere: a time without a knee, a throughput whose knee lies before the first tier."""
    assert locate([1, 2, 3, 4, 5], [[3, 3, 3]] * 5).reason == "linear"
    flat = locate([4, 8, 16, 32, 64], [[3, 3, 3]] * 5, axis="concurrency", metric="throughput")
    assert flat.kind == "saturation"
    assert flat.knee < 8


awkward = st.one_of(
    st.none(), st.floats(), st.integers(), st.text(max_size=3), st.floats(1e-3, 1e3), st.sampled_from([1.0, 2.0])
)

repeats_of_any = st.lists(st.floats(1e-3, 1e3) | awkward, min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(
    x=st.lists(st.floats(1, 1e6), min_size=4, max_size=9) | st.lists(awkward, max_size=9),
    samples=st.lists(repeats_of_any, min_size=4, max_size=9) | st.lists(awkward, max_size=9),
    axis=st.sampled_from(["length", "concurrency"]),
    metric=st.sampled_from(["ttft", "latency", "throughput"]),
)
def test_any_input_gets_an_answer(x, samples, axis, metric):
    """Never an exception: none with a reason, or a finite knee inside its interval; JSON takes it."""
    found = locate(x, samples, axis=axis, metric=metric)
    assert 0 <= found.probability <= 1
    if found.kind == "none":
        assert (found.knee, found.ci, found.last_good) == (None, None, None)
        assert found.reason
    else:
        assert 0 <= found.ci[0] <= found.knee <= found.ci[1] < math.inf
        assert found.probability >= 0.5
    assert json.loads(json.dumps(asdict(found), allow_nan=False))["kind"] == found.kind
    assert dict(found.items()) == asdict(found)


def test_a_call_is_quick():
    """A ladder of 12 tiers with two changes and 10 repeats, the slowest kind: the best of five, loosely."""
    x = [1000.0 * 1.5**i for i in range(12)]
    values = [[hinge(v) * (3 if v > 30000 else 1) * (1 + 0.001 * k) for k in range(10)] for v in x]
    fastest = math.inf
    for _ in range(5):
        started = time.perf_counter()
        locate(x, values)
        fastest = min(fastest, time.perf_counter() - started)
    assert fastest < 0.3


def test_more_tiers_than_can_be_told_apart_are_too_many():
    """A trace with a length for every request takes neither minutes nor gigabytes: it says to round the lengths."""
    x = range(1, 5000)
    found = entry([Point(float(n), [10.0 + n], suspect=False) for n in x], "length", "ttft")
    assert (found["kind"], found["reason"]) == ("none", "too_many_tiers")
    assert "4999 different values are too many to tell apart: round them" in sentence(found, "length", "ttft")

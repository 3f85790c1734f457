"""The parts of the knee locator: fits with coefficients >= 0, the likelihood of a tier, quantiles of a posterior."""

import numpy as np
import pytest

from loadkit.analysis.knee.candidates import Candidates
from loadkit.analysis.knee.fit import fit, nonnegative
from loadkit.analysis.knee.tiers import MOST_REPEATS, NOISE_UNKNOWN, TIER_SD, build, noise_of, thin
from loadkit.analysis.knee.verdict import quantiles

X = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


def spread(tiers, i):
    """Mean and standard deviation of the log value of a tier, from its likelihood."""
    logs = tiers.start[i] + tiers.step * np.arange(tiers.loglik.shape[1])
    weight = np.exp(tiers.loglik[i] - tiers.loglik[i].max())
    weight[weight < 0.01] = 0  # the long tails of odd tiers are not meant here
    mean = np.average(logs, weights=weight)
    return mean, np.sqrt(np.average((logs - mean) ** 2, weights=weight))


def test_least_squares_keeps_coefficients_at_or_above_zero():
    """Two terms: the free solution where it is feasible, else the best edge; a term that is zero everywhere gets 0."""
    line = np.stack([np.ones(3), np.array([0.0, 1.0, 2.0])], axis=-1)
    basis = np.stack([line, line, line * [1, 0]])
    targets = np.array([[1.0, 3.0, 5.0], [-1.0, 1.0, 3.0], [2.0, 4.0, 6.0]])
    expected = [[1, 2], [0, 1.4], [4, 0]]
    assert nonnegative(basis, targets) == pytest.approx(np.array(expected), abs=1e-6)


def test_a_fit_finds_the_coefficients_of_the_curve_behind_the_data():
    """3 + 2 x with a little noise in four repeats, one of them six times too slow."""
    rng = np.random.default_rng(5)
    samples = [np.exp(rng.normal(np.log(3 + 2 * x), 0.01, 4)) for x in X]
    samples[2][1] *= 6
    (coefficients,), loglik = (v if v.ndim == 1 else v.T for v in fit(build(X, samples), line_basis()))
    assert coefficients == pytest.approx([3, 2], rel=0.05)
    assert np.isfinite(loglik).all()


def line_basis():
    return np.stack([np.ones_like(X), X], axis=-1)[None]


def test_many_repeats_of_one_tier_do_not_pin_it_down():
    """The tier effect stays: however many repeats, the tier is not known better than its standard deviation."""
    rng = np.random.default_rng(3)
    few = build(X, [np.exp(rng.normal(0, 0.05, 4)) for _ in X])
    many = build(X, [np.exp(rng.normal(0, 0.05, 400)) for _ in X])
    assert spread(few, 0)[1] > spread(many, 0)[1] > TIER_SD
    assert spread(many, 0)[1] < 1.6 * TIER_SD


def test_an_outlier_hardly_moves_a_tier():
    """Five repeats at 100, one of them at 900: the likelihood stays with the four."""
    values = np.array([99.0, 100.0, 101.0, 100.5, 900.0])
    tiers = build(X, [values] * 5)
    assert np.exp(tiers.centre) == pytest.approx([100] * 5, rel=0.02)
    assert np.exp(spread(tiers, 0)[0]) == pytest.approx(100, rel=0.02)


def test_noise_is_pooled_over_tiers_and_outliers_do_not_count():
    """2 % of noise in eight repeats a tier, a tenth of them far off; without repeats the noise is taken as 5 %."""
    rng = np.random.default_rng(1)
    apart = [rng.normal(0, 0.02, 8) for _ in range(9)]
    for values in apart[::2]:
        values[0] += 1.5
    assert noise_of(apart) == pytest.approx([0.02] * 9, rel=0.35)
    assert noise_of([np.zeros(1)] * 5) == pytest.approx([NOISE_UNKNOWN] * 5)
    one_pair = noise_of([np.array([0.0, 2.0]), *[np.zeros(1)] * 4])
    assert one_pair.max() < 0.1


def test_very_many_repeats_are_thinned_to_their_quantiles():
    """A thousand evenly spaced values keep their middle and their spread."""
    kept = thin(np.linspace(0, 1, 1000))
    assert len(kept) == MOST_REPEATS
    assert np.median(kept) == pytest.approx(0.5)
    assert kept[0] == pytest.approx(0.5 / MOST_REPEATS, abs=1e-3)


def test_quantiles_are_those_of_overlapping_boxes():
    """A box [0, 1] and a box [0, 2] of equal weight: density 3/4 and 1/4, so the median is 2/3."""
    ones = np.ones(1)
    boxes = [Candidates("hinge", 0 * ones, high * ones, np.zeros(1), ones, ones.astype(bool)) for high in (1, 2)]
    low, middle, high = quantiles(boxes)
    assert middle == pytest.approx(2 / 3)
    assert low == pytest.approx(0.05 / 0.75)
    assert high == pytest.approx(2 - 0.05 / 0.25)

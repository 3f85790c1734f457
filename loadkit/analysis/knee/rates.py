"""The models of a throughput X over concurrency N, as residence times R = N / X (Little's law) up to a factor.

    constant   R = 1: X grows in proportion
    rounded    (1 + (N / h)^p)^(1/p), N90 = h (0.9^-p - 1)^(-1/p); batching servers have p from 1 to 1.4, and
               X = min(N, c) is the limit of a great p
    capped     1 + r N / S up to S slots, beyond in proportion to N, N90 = 0.9 S / (1 + r / 10)
    universal  1 + s N / P + (N / P)^2, the universal scalability law (Gunther): X has its maximum at P

N90 is the smallest N with 90 % of the greatest X. Each shape has one free factor; N90 or P is log-uniform.
"""

from dataclasses import replace

import numpy as np

from loadkit.analysis.knee.candidates import BEYOND, Candidates, places, without_knee
from loadkit.analysis.knee.fit import fit
from loadkit.analysis.knee.tiers import Array, Tiers

N90 = 0.9
FALL = 0.96  # a throughput that ends above this share of its maximum has not fallen: no peak
SHARPNESS = np.array([1.0, 1.15, 1.3, 1.5, 1.8, 2.2, 2.8, 3.6, 5.0, 7.0, 12.0, 40.0])
SHARPNESS_WEIGHTS = np.array([4, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]) / 15
FLATNESS = np.array([0.0, 0.3, 0.7, 1.2, 2.0, 3.5, 6.0, 10.0])
CONTENTION = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0])
WEIGHTS = {"constant": 0.1, "rounded": 0.5, "capped": 0.25, "universal": 0.25}


def candidates(tiers: Tiers) -> list[Candidates]:
    return [constant(tiers), rounded(tiers), capped(tiers), *universal(tiers)]


def constant(tiers: Tiers) -> Candidates:
    _, loglik = fit(tiers, np.ones((1, len(tiers.x), 1)))
    return without_knee("linear", np.log(WEIGHTS["constant"]) + loglik)


def rounded(tiers: Tiers) -> Candidates:
    low, high, knee = places(tiers.x[0], tiers.x[-1] * BEYOND)
    p = SHARPNESS[:, None, None]
    ratio = tiers.x / (knee[:, None] * (N90**-p - 1) ** (1 / p))
    shape = np.maximum(1, ratio) * (1 + np.minimum(ratio, 1 / ratio) ** p) ** (1 / p)
    return saturating(tiers, shape, WEIGHTS["rounded"] * SHARPNESS_WEIGHTS, low, high)


def capped(tiers: Tiers) -> Candidates:
    low, high, knee = places(tiers.x[0], tiers.x[-1] * BEYOND)
    r = FLATNESS[:, None, None]
    ratio = tiers.x * N90 / (knee[:, None] * (1 + (1 - N90) * r))
    shape = np.maximum(1, ratio) * (1 + r * np.minimum(1, ratio))
    return saturating(tiers, shape, WEIGHTS["capped"] * np.full(len(r), 1 / len(r)), low, high)


def universal(tiers: Tiers) -> list[Candidates]:
    """A peak where the throughput falls again within the tiers, else a saturation at N90 of the maximum."""
    last = tiers.x[-1]
    low, high, top = places(tiers.x[0], last * BEYOND)
    s = CONTENTION[:, None, None]
    ratio = tiers.x / top[:, None]
    shape = 1 + s * ratio + ratio**2
    found = saturating(tiers, shape, WEIGHTS["universal"] * np.full(len(s), 1 / len(s)), low, high)
    at_end = last / top / shape[..., -1] * (2 + CONTENTION[:, None])
    fallen = found.knee & (at_end.ravel() <= FALL)
    # N90 = P n with n / (1 + s n + n^2) = 0.9 / (2 + s), the lower root.
    half = ((2 + CONTENTION) / N90 - CONTENTION) / 2
    shift = np.repeat(np.log(half - np.sqrt(half**2 - 1)), len(top))
    low, high = found.low + shift, found.high + shift
    moved = replace(found, low=low, high=high, knee=(low + high) / 2 <= np.log(last))
    return [replace(found.kept(fallen), kind="peak"), moved.kept(~fallen)]


def saturating(tiers: Tiers, shape: Array, weights: Array, low: Array, high: Array) -> Candidates:
    """Candidates of shapes (variants, boxes, tiers): a knee where the box lies within the tiers."""
    _, loglik = fit(tiers, shape.reshape(-1, len(tiers.x), 1))
    weight = np.repeat(np.log(weights / len(low)), len(low)) + loglik
    low, high = np.tile(low, len(shape)), np.tile(high, len(shape))
    excess = shape[..., -1].ravel() - 1
    inside = (low + high) / 2 <= np.log(tiers.x[-1])
    return Candidates("saturation", low, high, weight, excess, inside, "still_rising")

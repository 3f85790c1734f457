"""What the repeats of each tier say about its true value: a likelihood on a grid of log values.

The repeats of tier i follow log y_ij = g_i + delta_i + noise, with g_i the log of the curve. Noise is a mixture: normal
with the standard deviation of the tier, or, for a share of OUTLIERS, exponential tails, longer on the slow side. The
tier effect delta_i ~ N(0, TIER_SD), shared by all repeats of a tier, is integrated out, so that many repeats of one
tier do not pass for as many independent readings of the curve.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Array = np.ndarray

TIER_SD = 0.015
OUTLIERS = 0.05
SLOW_SHARE = 0.85  # of the outliers
TAIL = 0.8  # mean excess of an outlier, in log units
NOISE_UNKNOWN = 0.05  # taken where repeats are missing
FEW_PAIRS = 10  # so many pairs of repeats, real or of unknown noise, make the pooled noise
NOISE_FLOOR = 0.005
POOLED_WEIGHT = 8  # pseudo degrees of freedom of the pooled noise in the noise of a tier
MOST_REPEATS = 32  # more are thinned to evenly spaced order statistics: the tier effect rules by then
FARTHEST = 2.5  # log distance from the median beyond which a repeat is as wrong as it can be
POINTS = 1024
FAST_TIER, SLOW_TIER = 0.04, 0.002  # chance that a whole tier reads far too low (a cache hit) or too high
TIER_TAIL = 0.6  # mean distance of such a tier, in log units


@dataclass(frozen=True)
class Tiers:
    """Tiers in ascending order, at least one: `x`, the log of the best value, and the log likelihood on a grid.

    `loglik[i, k]` belongs to the log value `start[i] + k step`; `weight[i, k]` is the curvature that a parabola
    through `centre[i]` needs for the same slope there (the weight of iteratively reweighted least squares).
    """

    x: Array
    centre: Array
    start: Array
    step: float
    loglik: Array
    weight: Array

    def __getitem__(self, part: slice) -> "Tiers":
        """Some of the tiers."""
        return Tiers(self.x[part], self.centre[part], self.start[part], self.step, self.loglik[part], self.weight[part])

    def at(self, logs: Array) -> Array:
        """Log likelihood of curves, rows of log values at the tiers: one number per row."""
        place = (logs - self.start) / self.step
        left = np.clip(place.astype(int), 0, self.loglik.shape[1] - 2)
        rows = np.arange(len(self.x))
        low, high = self.loglik[rows, left], self.loglik[rows, left + 1]
        return np.sum(low + (place - left) * (high - low), axis=-1)

    def weights(self, logs: Array) -> Array:
        """Least-squares weights of the tiers at these log values."""
        place = np.rint((logs - self.start) / self.step).astype(int)
        return self.weight[np.arange(len(self.x)), np.clip(place, 0, self.weight.shape[1] - 1)]


def build(x: Array, samples: Sequence[Array]) -> Tiers:
    """The likelihood of positive times at ascending distinct x."""
    logs = [thin(np.log(values)) for values in samples]
    medians = np.array([np.median(values) for values in logs])
    apart = [np.clip(values - median, -FARTHEST, FARTHEST) for values, median in zip(logs, medians, strict=True)]
    noise = noise_of(apart)
    reach = max(float(np.max(np.abs(values))) for values in apart) + 8 * max(TIER_SD, float(noise.max()))
    offsets = np.linspace(-reach, reach, POINTS)
    raw = np.array([np.sum(density(v[:, None] - offsets, s), axis=0) for v, s in zip(apart, noise, strict=True)])
    loglik = smear(raw, offsets)
    best = np.argmax(loglik, axis=1)
    return Tiers(
        x, medians + offsets[best], medians - reach, offsets[1] - offsets[0], loglik, pull(loglik, offsets, best)
    )


def thin(logs: Array) -> Array:
    """At most MOST_REPEATS order statistics of the repeats."""
    if len(logs) <= MOST_REPEATS:
        return logs
    return np.quantile(logs, (np.arange(MOST_REPEATS) + 0.5) / MOST_REPEATS)


def noise_of(apart: Sequence[Array]) -> Array:
    """Standard deviation of log repeats by tier: each tier's own, shrunk to the pooled one.

    Pooled: the 40 % quantile of the differences between repeats of a tier, which outliers hardly touch; for normal
    noise it is 0.7416 standard deviations. A tier's own: 1.4826 times the median distance from its median.
    """
    pairs = [np.abs(v[:, None] - v[None, :])[np.triu_indices(len(v), 1)] for v in apart]
    joined = np.concatenate(pairs)
    missing = np.full(max(0, FEW_PAIRS - len(joined)), 0.7416 * NOISE_UNKNOWN)
    pooled = float(np.quantile(np.concatenate([joined, missing]), 0.4)) / 0.7416
    free = np.array([len(v) - 1 for v in apart])
    own = np.array([1.4826 * np.median(np.abs(v)) if len(v) > 2 else pooled for v in apart])
    shrunk = np.sqrt((POOLED_WEIGHT * pooled**2 + free * own**2) / (POOLED_WEIGHT + free))
    return np.maximum(NOISE_FLOOR, shrunk)


def density(apart: Array, noise: float) -> Array:
    """Log density of a repeat this far, in log units, above the curve."""
    normal = (1 - OUTLIERS) / (noise * np.sqrt(2 * np.pi)) * np.exp(-0.5 * (apart / noise) ** 2)
    share = np.where(apart > 0, SLOW_SHARE, 1 - SLOW_SHARE)
    return np.log(normal + OUTLIERS * share / TAIL * np.exp(-np.abs(apart) / TAIL))


def smear(loglik: Array, offsets: Array) -> Array:
    """Integrates the tier effect out: the likelihoods convolved with N(0, TIER_SD) and, for a few tiers, long tails."""
    step = offsets[1] - offsets[0]
    reach = int(np.ceil(5 * TIER_SD / step))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / TIER_SD) ** 2)
    kernel /= kernel.sum()
    top = loglik.max(axis=1, keepdims=True)
    likelihood = np.exp(loglik - top)
    rows = [np.convolve(np.pad(row, reach, mode="edge"), kernel, mode="valid") for row in likelihood]
    above = offsets - offsets[np.argmax(loglik, axis=1)][:, None]
    share = np.where(above > 0, FAST_TIER, SLOW_TIER)
    area = np.sum(likelihood, axis=1, keepdims=True) * step
    tails = share * area / TIER_TAIL * np.exp(-np.abs(above) / TIER_TAIL)
    return np.log(rows + tails) + top


def pull(loglik: Array, offsets: Array, best: Array) -> Array:
    """The weights of `Tiers`: minus the slope over the distance from the best value, never quite 0."""
    step = offsets[1] - offsets[0]
    slope = np.gradient(loglik, step, axis=1)
    apart = offsets - offsets[best][:, None]
    near = np.abs(apart) < 1.5 * step
    weights = np.where(near, np.nan, -slope / np.where(near, 1.0, apart))
    rows = np.arange(len(loglik))
    left, right = np.clip(best - 2, 0, None), np.clip(best + 2, None, loglik.shape[1] - 1)
    peak = np.maximum(1.0, np.maximum(weights[rows, left], weights[rows, right]))[:, None]
    return np.clip(np.where(near, peak, weights), 0.001 * peak, peak)

from dataclasses import dataclass, replace

import numpy as np

from loadkit.analysis.knee.fit import fit
from loadkit.analysis.knee.tiers import Array, Tiers

GATE = 0.25  # excess over the low regime at the longest tier from which a bend is a knee
K25 = 0.25
N90 = 0.9
PLACES = 96
BEYOND = 8.0  # smooth knees and N90s are looked for up to so many times the longest tier
POWERS = np.array([0.3, 0.45, 0.6, 0.7, 0.8, 0.9])
SHARPNESS = np.array([1.0, 1.0,1.0,1.0,1.15, 1.3, 1.5, 1.8, 2.2, 2.8, 3.6, 5.0, 7.0, 12.0, 40.0])
FLATNESS = np.array([0.0, 0.3, 0.7, 1.2, 2.0, 3.5, 6.0, 10.0])
CONTENTION = np.array([0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0])
FALL = 0.96  # a throughput that ends above this share of its maximum has not fallen

PRIOR = {"constant": 0.1, "straight": 0.40, "concave": 0.08, "stairs": 0.02, "smooth": 0.18, "hinge": 0.12,"floor":.08, "break": 0.12,
  "rounded": 0.5, "capped": 0.25, "usl": 0.25}
PENALTY = {"smooth": 0.7, "hinge": 1.5,"floor":.7, "break": 3.0}


@dataclass(frozen=True)
class Hypotheses:
    """Candidates of one kind: boxes of log K, log weights (likelihood and prior), excess at the longest tier."""

    kind: str
    low: Array
    high: Array
    weight: Array
    excess: Array
    knee: Array
    """True where the candidate is a knee in range; the others count for `none`."""


def places(low: float, high: float, count: int = PLACES) -> tuple[Array, Array, Array]:
    """Edges and centres of boxes of equal width in log K: (low edges, high edges, K)."""
    edges = np.linspace(np.log(low), np.log(high), count + 1)
    return edges[:-1], edges[1:], np.exp((edges[:-1] + edges[1:]) / 2)


def straight(tiers: Tiers) -> Hypotheses:
    _, loglik = fit(tiers, line(tiers.x)[None])
    return nothing(np.log(PRIOR["straight"]) + loglik)


def concave(tiers: Tiers) -> Hypotheses:
    x = tiers.x / tiers.x[-1]
    basis = np.stack([np.broadcast_to(np.ones_like(x), (len(POWERS), len(x))), x ** POWERS[:, None]], axis=-1)
    _, loglik = fit(tiers, basis)
    return nothing(np.log(PRIOR["concave"] / len(POWERS)) + loglik)


def stairs(tiers: Tiers) -> Hypotheses:
    x = tiers.x
    chunk = x[0] * np.geomspace(0.25, 1.3, 40)[:, None]
    height = np.ceil(x / chunk) * chunk / x[-1]
    _, loglik = fit(tiers, np.stack([np.ones_like(height), height], axis=-1))
    return nothing(np.log(PRIOR["stairs"] / len(chunk)) + loglik)


def smooth(tiers: Tiers) -> Hypotheses:
    x, last = tiers.x, tiers.x[-1]
    low, high, knee = places(x[0], BEYOND * last)
    ratio = x / knee[:, None]
    basis = np.stack([1 + K25 * ratio**2, (ratio + K25 * ratio**2) * (knee[:, None] / last)], axis=-1)
    coefficients, loglik = fit(tiers, basis)
    at_knee = coefficients[:, 0] + coefficients[:, 1] * knee / last
    excess = K25 * at_knee * (last / knee) ** 2 / coefficients.sum(axis=1)
    weight = np.log(PRIOR["smooth"] / len(knee)) - PENALTY["smooth"] + loglik
    return Hypotheses("smooth", low, high, weight, excess, (excess >= GATE) & (knee <= last))


def hinge(tiers: Tiers) -> Hypotheses:
    x, last = tiers.x, tiers.x[-1]
    low, high, knee = places(x[0], last)
    bend = np.maximum(0, x - knee[:, None]) / (last - knee[:, None])
    basis = np.concatenate([np.broadcast_to(line(x), (len(knee), len(x), 2)), bend[..., None]], axis=-1)
    coefficients, loglik = fit(tiers, basis)
    excess = coefficients[:, 2] / np.maximum(coefficients[:, :2].sum(axis=1), 1e-12 * coefficients[:, 2])
    weight = np.log(PRIOR["hinge"] / len(knee)) - PENALTY["hinge"] + loglik - 1.0 * (knee > x[-2])
    return Hypotheses("hinge", low, high, weight, excess, excess >= GATE)


def floor(tiers: Tiers) -> Hypotheses:
    x, last = tiers.x, tiers.x[-1]
    low, high, knee = places(x[0], last)
    factor = np.maximum(1, x / knee[:, None])
    c, loglik = fit(tiers, np.stack([factor, np.broadcast_to(x/last,factor.shape)],axis=-1))
    excess = c[:,0]*(last / knee - 1)/np.maximum(c.sum(axis=1),1e-300)
    weight = np.log(PRIOR["floor"] / len(knee)) - PENALTY["floor"] + loglik - 1.0 * (knee > x[-2])
    return Hypotheses("hinge", low, high, weight, excess, excess >= GATE)


def step(tiers: Tiers) -> Hypotheses:
    x = tiers.x
    above = (np.arange(len(x)) > np.arange(len(x) - 1)[:, None]).astype(float)
    rise = above * (x - x[:-1, None]) / x[-1]
    basis = np.concatenate([np.broadcast_to(line(x), (*above.shape, 2)), above[..., None], rise[..., None]], axis=-1)
    coefficients, loglik = fit(tiers, basis)
    at = np.arange(len(x) - 1)
    extra = np.einsum("mk,mtk->mt", coefficients[:, 2:], basis[:, :, 2:])
    low = np.einsum("mk,mtk->mt", coefficients[:, :2], basis[:, :, :2])
    jump = coefficients[:, 2] / np.maximum(low[at, at], 1e-9 * coefficients[:, 2])
    width = np.diff(np.log(x))
    weight = np.log(PRIOR["break"] * width / np.log(x[-1] / x[0])) - PENALTY["break"] + loglik - 3 * np.exp(-(jump / .2)**2)
    excess = extra[:, -1] / np.maximum(low[:, -1], 1e-12 * extra[:, -1])
    return Hypotheses("break", np.log(x[:-1]), np.log(x[1:]), weight, excess, excess >= GATE)


def constant(tiers: Tiers) -> Hypotheses:
    _, loglik = fit(tiers, np.ones((1, len(tiers.x), 1)))
    return nothing(np.log(PRIOR["constant"]) + loglik)


def rounded(tiers: Tiers) -> Hypotheses:
    p = SHARPNESS[:, None, None]
    low, high, knee = places(tiers.x[0], BEYOND * tiers.x[-1])
    half = (N90**-p - 1) ** (1 / p) * knee[:, None]
    ratio = tiers.x / half
    shape = np.maximum(1, ratio) * (1 + np.minimum(ratio, 1 / ratio) ** p) ** (1 / p)
    return saturation(tiers, "rounded", shape, low, high)


def capped(tiers: Tiers) -> Hypotheses:
    """Concurrency capped at S slots, with batching: R = (1 + r N / S) up to S, then in proportion to N."""
    r = FLATNESS[:, None, None]
    low, high, knee = places(tiers.x[0], BEYOND * tiers.x[-1])
    slots = knee[:, None] * (1 + (1 - N90) * r) / N90
    ratio = tiers.x / slots
    shape = np.maximum(1, ratio) * (1 + r * np.minimum(ratio, 1))
    return saturation(tiers, "capped", shape, low, high)


def saturation(tiers: Tiers, name: str, shape: Array, low: Array, high: Array) -> Hypotheses:
    """Candidates from residence times `shape` (shapes, knees, tiers) whose N90 lies in the boxes."""
    _, loglik = fit(tiers, shape.reshape(-1, len(tiers.x), 1))
    weight = np.log(PRIOR[name] / len(loglik)) + loglik
    low, high = np.tile(low, len(shape)), np.tile(high, len(shape))
    excess = (shape[:, :, -1] / shape[:, :, 0]).ravel() - 1
    return Hypotheses("saturation", low, high, weight, excess, (low + high) / 2 <= np.log(tiers.x[-1]))


def usl(tiers: Tiers) -> list[Hypotheses]:
    x, last = tiers.x, tiers.x[-1]
    low, high, top = places(x[0], BEYOND * last)
    s = CONTENTION[:, None, None]
    ratio = x / top[:, None]
    shape = 1 + s * ratio + ratio**2
    _, loglik = fit(tiers, shape.reshape(-1, len(x), 1))
    weight = np.log(PRIOR["usl"] / len(loglik)) + loglik
    flat = np.repeat(CONTENTION, len(top))
    # N90 in units of the maximum: n / (1 + s n + n^2) = N90 / (2 + s)
    half = ((2 + flat) / N90 - flat) / 2
    share = half - np.sqrt(half**2 - 1)
    low, high, top = (np.tile(v, len(CONTENTION)) for v in (low, high, top))
    end = (last / top) / (shape[:, :, -1].ravel())
    falls = (top <= last) & (end <= FALL / (2 + flat))
    excess = (shape[:, :, -1] / shape[:, :, 0]).ravel() - 1
    n90 = np.log(share)
    zero = np.full_like(weight, -np.inf)
    return [Hypotheses("peak", low, high, np.where(falls, weight, zero), excess, falls),
            Hypotheses("saturation", low + n90, high + n90, np.where(falls, zero, weight), excess, ~falls & (top * share <= last))]


def line(x: Array) -> Array:
    """The terms of a + b x, as a (tiers, 2) basis."""
    return np.stack([np.ones_like(x), x / x[-1]], axis=-1)


def nothing(weight: Array) -> Hypotheses:
    """Candidates without a knee."""
    zero = np.zeros_like(weight)
    return Hypotheses("none", zero, zero, weight, zero, zero.astype(bool))


def times(tiers):
    single = [m(tiers) for m in (straight, concave, stairs, smooth, hinge, floor, step)]
    perfect = tiers.loglik.max(axis=1).sum()
    best = max(h.weight.max() for h in single)
    if perfect - best > TWO + 4 and len(tiers.x) > 5:
        single += twice(tiers)
    return single

TWO = 6.0
def twice(tiers):
    found = []
    n = len(tiers.x)
    for cut in range(4, n):
        head, tail = tiers[:cut], tiers[cut:]
        basis = np.stack([np.ones(n - cut), (tail.x - tail.x[0])/tail.x[-1]], axis=-1)
        _, rest = fit(tail, basis[None])
        for m in (smooth, hinge, floor, step):
            h = m(head)
            w = np.where(h.excess > .1, h.weight + rest[0] - TWO-np.log(n-4), -np.inf)
            found.append(replace(h, weight=w, knee=h.high<=np.log(tail.x[0]*1.001)))
    return found

def throughput(tiers):
    return [constant(tiers), rounded(tiers), capped(tiers), *usl(tiers)]

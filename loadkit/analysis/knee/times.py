"""The models of a time f over x (prompt length or concurrency), with L = a + b x the low regime; coefficients are >= 0.

    straight   L                           concave   a + b x^p, p < 1
    stairs     a + b (x rounded up to whole chunks), chunks about as long as the shortest prompt
    smooth     L + c x^2, with K25 where c K^2 = L(K) / 4
    hinge      L + d max(0, x - K)
    queue      a max(1, x / K) + b x: beyond K in proportion to x, as Little's law has it when all slots are taken
    step       L, and L + j + d (x - x_i) above tier i: K is anywhere in the gap above tier i
    twice      smooth, hinge or step on the lower tiers and any line on the upper ones: the knee is the first change

WEIGHTS are prior probabilities times what a free coefficient costs. K is log-uniform, a step uniform in its gap.
"""

from dataclasses import replace

import numpy as np

from loadkit.analysis.knee.candidates import BEYOND, GATE, Candidates, places, without_knee
from loadkit.analysis.knee.fit import fit
from loadkit.analysis.knee.tiers import Array, Tiers

K25 = 0.25
POWERS = np.array([0.3, 0.45, 0.6, 0.7, 0.8, 0.9])
CHUNKS = np.geomspace(0.25, 1.3, 40)  # in units of the shortest prompt
WEIGHTS = {
    "straight": 0.40,
    "concave": 0.08,
    "stairs": 0.05,
    "smooth": 0.10,
    "hinge": 0.027,
    "queue": 0.04,
    "step": 0.006,
    "step_at_end": 0.016,
    "twice": 0.0025,
}
ALREADY = 4.0  # a smooth knee is looked for from this far below the first tier
SMALL_JUMP = 0.3  # a step well under this share of L, with a bend above, is a hinge that happens to start at a tier
FIRST_EXCESS = 0.1  # the first of two changes must have shown this before the second comes
MOST_CUTS = 3  # of the places for a second change, the most promising ones are looked into
WORTH_IT = 4.0  # log units by which two changes must be able to beat one


def candidates(tiers: Tiers, axis: str) -> list[Candidates]:
    """All candidates; stairs come from padding prompts, so they belong to the length axis."""
    models = [straight, concave, smooth, hinge, queue, step, *([stairs] if axis == "length" else [])]
    once = [model(tiers) for model in models]
    best = max(float(found.weight.max()) for found in once)
    return once + twice(tiers, best)


def straight(tiers: Tiers) -> Candidates:
    """From one start for every tier that may be the odd one, so that no odd tier hides the line."""
    count = len(tiers.x)
    _, loglik = fit(tiers, np.broadcast_to(line(tiers.x), (count, count, 2)), 1 - 0.99 * np.eye(count))
    return without_knee("linear", np.log(WEIGHTS["straight"]) + loglik.max(keepdims=True))


def concave(tiers: Tiers) -> Candidates:
    power = (tiers.x / tiers.x[-1]) ** POWERS[:, None]
    _, loglik = fit(tiers, np.stack([np.ones_like(power), power], axis=-1))
    return without_knee("concave", np.log(WEIGHTS["concave"] / len(POWERS)) + loglik)


def stairs(tiers: Tiers) -> Candidates:
    chunk = tiers.x[0] * CHUNKS[:, None]
    padded = np.ceil(tiers.x / chunk) * chunk / tiers.x[-1]
    _, loglik = fit(tiers, np.stack([np.ones_like(padded), padded], axis=-1))
    return without_knee("stairs", np.log(WEIGHTS["stairs"] / len(CHUNKS)) + loglik)


def smooth(tiers: Tiers) -> Candidates:
    """With c = (a + b K) / (4 K^2) the model is linear in a and b for every K."""
    x, last = tiers.x, tiers.x[-1]
    low, high, knee = places(x[0] / ALREADY, last * BEYOND)
    ratio = x / knee[:, None]
    basis = np.stack([1 + K25 * ratio**2, (ratio + K25 * ratio**2) * knee[:, None] / last], axis=-1)
    (a, b), loglik = fit(tiers, basis)
    excess = K25 * (a + b * knee / last) * (last / knee) ** 2 / (a + b)
    weight = np.log(WEIGHTS["smooth"] / len(knee)) + loglik
    return Candidates("smooth", low, high, weight, excess, excess >= GATE)


def hinge(tiers: Tiers) -> Candidates:
    """K ends at the last tier but one: with one tier above it, a hinge looks like a step."""
    x, last = tiers.x, tiers.x[-1]
    low, high, knee = places(x[0], x[-2])
    bend = np.maximum(0, x - knee[:, None]) / (last - knee[:, None])
    basis = np.concatenate([np.broadcast_to(line(x), (*bend.shape, 2)), bend[..., None]], axis=-1)
    (a, b, d), loglik = fit(tiers, basis)
    excess = d / (a + b)
    return Candidates("hinge", low, high, np.log(WEIGHTS["hinge"] / len(knee)) + loglik, excess, excess >= GATE)


def queue(tiers: Tiers) -> Candidates:
    x, last = tiers.x, tiers.x[-1]
    low, high, knee = places(x[0], x[-2])
    factor = np.maximum(1, x / knee[:, None])
    (a, b), loglik = fit(tiers, np.stack([factor, np.broadcast_to(x / last, factor.shape)], axis=-1))
    excess = a * (last / knee - 1) / (a + b)
    return Candidates("hinge", low, high, np.log(WEIGHTS["queue"] / len(knee)) + loglik, excess, excess >= GATE)


def step(tiers: Tiers) -> Candidates:
    x, gaps = tiers.x, np.arange(len(tiers.x) - 1)
    above = (np.arange(len(x)) > gaps[:, None]).astype(float)
    rise = above * (x - x[:-1, None]) / x[-1]
    terms = np.stack([above, rise], axis=-1)
    (a, b, j, d), loglik = fit(tiers, np.concatenate([np.broadcast_to(line(x), terms.shape), terms], axis=-1))
    kind = np.where(gaps == gaps[-1], WEIGHTS["step_at_end"], WEIGHTS["step"])
    jump = j / (a + b * x[:-1] / x[-1])
    weight = np.log(kind * np.diff(np.log(x)) / np.log(x[-1] / x[0])) + loglik - 3 * np.exp(-((jump / SMALL_JUMP) ** 2))
    excess = (j + d * rise[:, -1]) / (a + b)
    return Candidates("break", np.log(x[:-1]), np.log(x[1:]), weight, excess, excess >= GATE)


def twice(tiers: Tiers, best: float) -> list[Candidates]:
    """The upper tiers follow a line of their own; only at the MOST_CUTS best places, if that can beat `best`."""
    count = len(tiers.x)
    cuts = []
    for cut in range(4, count):
        tail = tiers[cut:]
        _, rest = fit(tail, np.stack([np.ones_like(tail.x), (tail.x - tail.x[0]) / tail.x[-1]], axis=-1)[None])
        price = float(rest[0]) + np.log(WEIGHTS["twice"] / (count - 4))
        cuts.append((float(tiers.loglik[:cut].max(axis=1).sum()) + price, cut, price))
    found = []
    for bound, cut, price in sorted(cuts, reverse=True)[:MOST_CUTS]:
        if bound < best + WORTH_IT:
            break
        for model in (smooth, hinge, step):
            first = model(tiers[:cut])
            within = first.kept((first.excess >= FIRST_EXCESS) & (first.high <= np.log(tiers.x[cut - 1])))
            found.append(replace(within, weight=within.weight + price, knee=np.ones(len(within.low), bool)))
    return found


def line(x: Array) -> Array:
    """The terms of L, as a (tiers, 2) basis."""
    return np.stack([np.ones_like(x), x / x[-1]], axis=-1)

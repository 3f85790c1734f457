"""Fits many small linear models with coefficients >= 0 to the tier likelihoods at once."""

from itertools import combinations

import numpy as np

from loadkit.analysis.knee.tiers import Array, Tiers

ROUNDS = 5
RIDGE = 1e-9
FAINT = 1e-12  # a curve is nowhere taken to be less than this share of the data
TINY = 1e-290  # so that sums of coefficients can be divided by


def fit(tiers: Tiers, basis: Array, trust: Array | None = None) -> tuple[Array, Array]:
    """Maximum-likelihood coefficients, shape (terms, models), and log likelihoods of the curves of these bases.

    `basis` has shape (models, tiers, terms) and entries >= 0. Gauss-Newton on the logs: with f the last curve,
    log f' is f'/f - 1 + log f to first order, and a tier's likelihood is replaced by the parabola of iteratively
    reweighted least squares. The first f is the data, `trust` (models, tiers) times the first weights; the best round
    counts.
    """
    centre = np.broadcast_to(tiers.centre, basis.shape[:2])
    faintest = FAINT * np.exp(centre)
    logs = centre
    best, found = np.full(len(basis), -np.inf), np.zeros((len(basis), basis.shape[2]))
    for number in range(ROUNDS):
        root = np.sqrt(tiers.weights(logs))
        if number == 0 and trust is not None:
            root = root * trust
        scaled = basis * (root * np.exp(-logs))[..., None]
        coefficients = nonnegative(scaled, root * (1 + centre - logs))
        logs = np.log(np.maximum(np.matmul(basis, coefficients[..., None])[..., 0], faintest))
        loglik = tiers.at(logs)
        better = loglik > best
        best, found = np.where(better, loglik, best), np.where(better[:, None], coefficients, found)
    return np.maximum(found, FAINT * found.max(axis=1, keepdims=True) + TINY).T, best


def nonnegative(basis: Array, target: Array) -> Array:
    """Least squares with coefficients >= 0 for every model: all sets of terms are tried, the best feasible one wins.

    A term that is zero at all tiers gets the coefficient 0.
    """
    size = np.sqrt(np.sum(basis**2, axis=1))
    size = np.where(size > 0, size, np.inf)
    basis = basis / size[:, None, :]
    gram = np.matmul(basis.transpose(0, 2, 1), basis) + RIDGE * np.eye(basis.shape[2])
    right = np.matmul(basis.transpose(0, 2, 1), target[..., None])[..., 0]
    best, gain = np.zeros_like(right), np.zeros(len(right))
    terms = range(basis.shape[2])
    for chosen in (list(some) for count in range(1, len(terms) + 1) for some in combinations(terms, count)):
        solved = np.linalg.solve(gram[:, chosen][:, :, chosen], right[:, chosen, None])[..., 0]
        explained = np.sum(solved * right[:, chosen], axis=1)
        better = (explained > gain) & (solved.min(axis=1) >= 0)
        gain = np.where(better, explained, gain)
        candidate = np.zeros_like(right)
        candidate[:, chosen] = solved
        best = np.where(better[:, None], candidate, best)
    return best / size

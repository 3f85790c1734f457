"""Fits many small linear models with coefficients >= 0 to the tier likelihoods at once."""

from itertools import combinations

import numpy as np

from loadkit.analysis.knee.tiers import Array, Tiers

ROUNDS = 6
RIDGE = 1e-9


def fit(tiers: Tiers, basis: Array) -> tuple[Array, Array]:
    """Maximum-likelihood coefficients and log likelihoods of curves basis @ coefficients.

    `basis` has shape (models, tiers, terms), entries >= 0, each term positive somewhere. Gauss-Newton on the logs:
    with f the last curve, log f' is f'/f - 1 + log f to first order, and the likelihood of a tier is replaced by the
    parabola of iteratively reweighted least squares. The first curve is the data. The best round is returned.
    """
    centre = np.broadcast_to(tiers.centre, basis.shape[:2])
    logs = centre
    best, found = np.full(len(basis), -np.inf), np.zeros((len(basis), basis.shape[2]))
    for _ in range(ROUNDS):
        root = np.sqrt(tiers.weights(logs))
        scale = root * np.exp(-logs)
        coefficients = nonnegative(basis * scale[..., None], root * (1 + centre - logs))
        logs = np.log(np.maximum(np.einsum("mtk,mk->mt", basis, coefficients), 1e-12 * np.exp(centre)))
        loglik = tiers.at(logs)
        better = loglik > best
        best, found = np.where(better, loglik, best), np.where(better[:, None], coefficients, found)
    return found, best


def nonnegative(basis: Array, target: Array) -> Array:
    """Least squares with coefficients >= 0, for every model: the best feasible set of terms, all sets tried."""
    size = np.sqrt(np.einsum("mtk,mtk->mk", basis, basis))
    basis = basis / size[:, None, :]
    gram = np.einsum("mtk,mtl->mkl", basis, basis) + RIDGE * np.eye(basis.shape[2])
    right = np.einsum("mtk,mt->mk", basis, target)
    best, gain = np.zeros_like(right), np.zeros(len(right))
    terms = range(basis.shape[2])
    for chosen in (list(c) for k in range(1, len(terms) + 1) for c in combinations(terms, k)):
        solved = np.linalg.solve(gram[:, chosen][:, :, chosen], right[:, chosen, None])[..., 0]
        explained = np.einsum("mk,mk->m", solved, right[:, chosen])
        better = (solved >= 0).all(axis=1) & (explained > gain)
        gain = np.where(better, explained, gain)
        best[better] = 0
        best[np.ix_(better, chosen)] = solved[better]
    return best / size

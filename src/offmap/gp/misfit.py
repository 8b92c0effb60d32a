"""What a fit leaves that is no noise: residuals that the inputs explain beyond chance."""

from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float
from scipy.stats import f as f_distribution

from offmap.calls import at_each
from offmap.gp.expansion import AbstractGPs
from offmap.gp.straight import straight_terms

_SIGNIFICANCE = 1e-3  # less than this, and what is explained is no chance
_DEPENDENT = 1e-6  # singular values below this share of the largest are none
_POINTS = 3000  # of larger data sets
_FACTORS = 3  # of products that may explain a residual
_EACH = 4  # samples for each of them, at least
_ROUND_OFF = 1e-9  # of the outputs' spread: smaller misfits are none


def beyond_chance(residual: Float[np.ndarray, " N"], columns: Float[np.ndarray, "N k"]) -> float:
    """Sum of squares of what columns explain of a residual; 0 where it may be chance (F-test)."""
    length = np.linalg.norm(columns, axis=0)
    basis, size, _ = np.linalg.svd(columns[:, length > 0] / length[length > 0], full_matrices=False)
    basis = basis[:, size > _DEPENDENT * size[0]]
    terms, freedom = basis.shape[1], len(residual) - basis.shape[1]
    if freedom < terms:  # too few samples to tell what is explained from what is fitted
        return 0.0
    explained = float(np.sum((basis.T @ residual) ** 2))
    noise = max(float(residual @ residual) - explained, 1e-300) / freedom
    if f_distribution.sf(explained / terms / noise, terms, freedom) > _SIGNIFICANCE:
        return 0.0
    return max(explained - terms * noise, 0.0)


def strayed(
    gps: AbstractGPs, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"]
) -> Float[np.ndarray, " p"]:
    """By how much functions stray from straight ones, as a root mean square; 0 if they may bend.

    Told by products of at most three inputs, or of as many as there are samples for.
    """
    few = slice(None, None, -(-len(x) // _POINTS))
    x, y = x[few], y[few]
    z = gps.scaling.standardised_x(x)
    level, spread = np.zeros(y.shape[1]), np.asarray(gps.scaling.y_scale)
    if straight_terms(gps.kernel, z) is None:
        return level
    columns = [np.ones(len(z))]
    for factors in range(1, _FACTORS + 1):
        more = [np.prod(z[:, c], axis=1) for c in _choices(z.shape[1], factors)]
        if _EACH * (len(columns) + len(more)) > len(z):
            break
        columns += more
    residuals = (y - np.asarray(at_each(gps, x))).T
    for j, residual in enumerate(residuals):
        level[j] = np.sqrt(beyond_chance(residual, np.stack(columns, axis=1)) / len(residual))
    return np.where(level > _ROUND_OFF * spread, level, 0.0)


def _choices(d: int, factors: int) -> list[list[int]]:
    return [list(c) for c in combinations_with_replacement(range(d), factors)]

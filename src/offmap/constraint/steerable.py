"""Whether a control can change what a sum of terms adds up to: what it can is no constraint."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dpstrf
from scipy.stats import f as f_distribution

from offmap.constraint.library import products
from offmap.constraint.regression import Candidate, Search
from offmap.constraint.weights import row_of

_ROUND_OFF = 1e-9  # of the entries of an equation: a smaller residual is none
_RANK = 1e-4  # columns that are others but for this share of their length are no further ones,
_NUISANCE = 1e-6  # and among those whose part in a residual is taken out, but for this one
_CLEARLY = 2.0  # ratio of residuals of two equations, of which one is then clearly better obeyed


@dataclass(frozen=True)
class Standard:
    """What counts as obeyed, and as a residual that depends on the control."""

    tolerance: float = 3.0
    """Largest residual, in units of the expected one."""
    significance: float = 1e-6
    """p-value below which the residual is said to depend on u."""
    effect: float = 0.0
    """Share of the residual's variance that u must explain as well, to be said so."""
    matters: float = 0.0
    """What u must explain as a share of the motions that cancel out, to be said so: no robot obeys
    a law exactly."""
    acting: int | None = None
    """Number of controls that act at once, where past ones are among u; None: all."""


USUAL = Standard()


def depends_on_control(
    search: Search,
    candidate: Candidate,
    features: Float[np.ndarray, "N k"],
    functions: Float[np.ndarray, "N l"],
    u: Float[np.ndarray, "N m"],
    standard: Standard,
) -> bool:
    """F-tests: do u, u uᵀ or their products with G(x) explain the residual beyond functions of x?

    Few products see a plain dependence in much noise, many see one that changes with the state.
    """
    residual = search.values[:, candidate.support] @ candidate.weights
    whole = search.apart[np.ix_(candidate.support, candidate.support)]
    entries = float(candidate.weights @ whole @ candidate.weights)
    if np.mean(residual**2) < _ROUND_OFF**2 * entries:
        return False
    G = (features @ row_of(search, candidate))[:, :-1]
    G = G[:, np.abs(G).max(axis=0) > 1e-9]
    v = (u - u.mean(axis=0)) / np.maximum(u.std(axis=0), 1e-12)
    pairs = [v[:, i] * v[:, j] for i in range(v.shape[1]) for j in range(i, v.shape[1])]
    controls = np.concatenate([v, np.stack(pairs, axis=1)], axis=1)
    of_state = products(G, functions)
    nuisance = _orthonormal(np.concatenate([functions, of_state], axis=1))
    residual = residual - nuisance @ (nuisance.T @ residual)
    room = len(residual) - nuisance.shape[1]

    def explained_by(columns: np.ndarray) -> bool:
        if columns.shape[1] >= room:  # with many states there are more products than samples
            return False
        explained, terms = _explained(columns - nuisance @ (nuisance.T @ columns), residual)
        freedom = room - terms
        if terms == 0 or freedom < 1:
            return False
        left = max(float(residual @ residual) - explained, 1e-300)
        # As many regressors explain as large a share by chance, which does not count (adjusted R²).
        share = 1 - (left / freedom) / (float(residual @ residual) / room)
        if share < standard.effect or share * np.mean(residual**2) < standard.matters**2 * entries:
            return False
        chance = f_distribution.sf((explained / terms) / (left / freedom), terms, freedom)
        return bool(chance < standard.significance)

    tests = (controls, products(G, v), products(G, controls), products(of_state, controls))
    return any(explained_by(columns) for columns in tests)


def stands_for_control(search: Search, candidate: Candidate, u: Float[np.ndarray, "N m"]) -> bool:
    """Whether what an equation says of no velocity may as well be due to a control.

    A robot that was only driven at one speed obeys "the speed is .06" as well as "the speed is what
    was commanded": the first is no constraint, unless the second is clearly less well obeyed.
    """
    *moving, bias = (search.features @ row_of(search, candidate) * search.motion).T
    moving = np.sum(moving, axis=0)
    least = _CLEARLY * np.linalg.norm(moving + bias)
    columns = (column for column in bias * u.T if column.any())
    return any(np.linalg.norm(_without(moving, column)) <= least for column in columns)


def _without(values: Float[np.ndarray, " N"], column: Float[np.ndarray, " N"]) -> np.ndarray:
    """What is left of values once a multiple of the column is taken out."""
    return values - column * (column @ values) / (column @ column)


def _explained(
    columns: Float[np.ndarray, "N t"], residual: Float[np.ndarray, " N"]
) -> tuple[float, int]:
    """Squared length of the residual's projection onto the columns' span, and the span's rank.

    Pivoted Cholesky of their products has the ranks of pivoted QR, down to tolerances far above
    the root of round-off, at a fraction of the cost.
    """
    length = np.linalg.norm(columns, axis=0)
    columns = columns / np.where(length > 0, length, 1.0)
    factor, pivots, rank, _ = dpstrf(columns.T @ columns, tol=_RANK**2, lower=1)
    chosen = columns[:, pivots[:rank] - 1]
    told = solve_triangular(factor[:rank, :rank], chosen.T @ residual, lower=True)
    return float(told @ told), int(rank)


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(length > 0, length, 1.0)
    # Pivoted QR tells the rank as a singular value decomposition does, at a tenth of the cost.
    basis, triangle, _ = qr(scaled, mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diag(triangle))
    return basis[:, : int(np.sum(size > _NUISANCE * size[0]))]

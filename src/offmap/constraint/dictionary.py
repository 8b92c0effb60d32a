"""Constraints as short equations, found by exhaustive search over a small library of terms.

Every constraint is sought as Σ w_t φ_t(x) [ẋ; 1] = 0 with at most three terms, and a few more where
those clearly help, straight from measured pairs (x, ẋ): no f̂, no null space per state, no gauge, no
sign.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import qr
from scipy.stats import f as f_distribution

from offmap.constraint.equations import Equation, sentence
from offmap.constraint.library import Library
from offmap.constraint.search import (
    Candidate,
    Search,
    candidates,
    edges,
    grown,
    search_problem,
    worst_ratio,
)

_INDEPENDENT = 0.2  # least singular value of unit rows that count as different constraints
_FOLDS = 10


@dataclass(frozen=True)
class DictionaryRow:
    """One accepted equation."""

    weights: Float[np.ndarray, "k q"]
    standard_errors: Float[np.ndarray, "k q"]
    """Of the weights, the largest weight being fixed."""
    residual: float
    """Root mean square of the equation on the data, in units of the noise expected there."""


def discover(
    library: Library,
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    noise: Float[np.ndarray, " n"],
    *,
    groups: Int[np.ndarray, " N"] | None = None,
    max_terms: int = 3,
    tolerance: float = 3.0,
    significance: float = 1e-6,
    effect: float = 0.0,
    matters: float = 0.0,
) -> list[DictionaryRow]:
    """Short equations that every sample obeys, simplest first, none implied by the others.

    A sum of terms is accepted if its residual is what the noise in ẋ explains (within `tolerance`),
    if the residual does not depend on the control (F-test at `significance`: what a control can
    change is no constraint), if it raises the rank of the rows found so far, and if every
    combination of the rows is obeyed as they are.

    Args:
        library: the functions φ.
        features: φ at the N samples.
        xdot: measured derivatives.
        u: controls.
        noise: standard deviation of the noise in each component of ẋ.
        groups: samples whose errors may be alike, such as those of one trajectory; None: none are.
        max_terms: most terms in one equation, before it grows.
        tolerance: largest residual, in units of the expected one.
        significance: p-value below which the residual is said to depend on u.
        effect: share of the residual's variance that u must explain as well, to be said so.
        matters: what it must explain as a share of the motions that cancel out, to be said so: no
            robot obeys a law exactly.
    """
    held, groups = _held_out(features, groups)
    search = search_problem(library.terms(), features, xdot, noise, held)
    accepted: list[Candidate] = []

    def different(candidate: Candidate) -> bool:
        together = [*accepted, candidate]
        rows = np.stack([_row(search, one) for one in together])
        return _independent(rows, features, xdot) and worst_ratio(search, together) <= max(
            one.allowed for one in together
        )

    for candidate in candidates(search, max_terms, tolerance):
        if not different(candidate):
            continue
        for one in (grown(search, candidate, accepted), candidate):
            row = _row(search, one)
            if different(one) and not _depends_on_control(
                search, one, row, features, u, significance, effect, matters
            ):
                accepted.append(one)
                break
        if len(accepted) == xdot.shape[1]:
            break
    return [
        DictionaryRow(_row(search, one), _standard_errors(search, one, groups), one.ratio)
        for one in accepted
    ]


def _held_out(
    features: Float[np.ndarray, "N k"], groups: Int[np.ndarray, " N"] | None
) -> tuple[Bool[np.ndarray, "f N"], Int[np.ndarray, " N"]]:
    """Which samples are held out together: the edges of the data, or some groups at a time."""
    if groups is None:
        return edges(features), np.arange(len(features))
    groups = np.unique(groups, return_inverse=True)[1]
    if groups.max() == 0:  # there is nothing to hold one trajectory against
        return np.zeros((0, len(groups)), dtype=bool), groups
    return groups % _FOLDS == np.arange(min(_FOLDS, groups.max() + 1))[:, None], groups


def equation_of(row: DictionaryRow, library: Library) -> Equation:
    """The row as text, each estimated weight with its standard error."""
    velocities = (*(f"{name}'" for name in library.names), "")
    terms = []
    for k, j in zip(*np.nonzero(row.weights), strict=True):
        label = "·".join(part for part in (library.labels[k], velocities[j]) if part)
        terms.append((float(row.weights[k, j]), float(row.standard_errors[k, j]), label))
    return Equation(sentence(terms), row.residual, in_noise=True)


def inputs_of(row: DictionaryRow, library: Library) -> tuple[str, ...]:
    """Names of the states that the row's coefficients depend on."""
    used = {library.labels[k] for k in np.flatnonzero(np.any(row.weights != 0, axis=1))}
    return tuple(name for name in library.names if used & {name, f"sin({name})", f"cos({name})"})


def _row(search: Search, candidate: Candidate) -> Float[np.ndarray, "k q"]:
    """The equation as a matrix over (library function, entry of [ẋ; 1]), largest weight ±1."""
    support = candidate.support
    row = np.einsum("t,tkq->kq", candidate.weights / search.size[support], search.terms[support])
    first = search.terms[support[0]]
    return row / np.abs(row).max() * np.sign(row[first != 0][0])


def _standard_errors(
    search: Search, candidate: Candidate, groups: Int[np.ndarray, " N"]
) -> Float[np.ndarray, "k q"]:
    """Standard errors of the other weights once that of the largest term is fixed.

    Residuals within a group may be alike, and differ in size between groups: the sandwich over
    groups, which is White's where every sample is a group.
    """
    support = candidate.support
    raw = candidate.weights / search.size[support]
    row = np.einsum("t,tkq->kq", raw, search.terms[support])
    largest = int(np.argmax([np.abs(row[term != 0]).max() for term in search.terms[support]]))
    others = np.delete(np.arange(len(support)), largest)
    values = search.values[:, support] * search.size[support]
    residual = values @ (raw / np.abs(row).max())
    scores = np.zeros((groups.max() + 1, len(others)))
    np.add.at(scores, groups, values[:, others] * residual[:, None])
    inverse = np.linalg.inv(values[:, others].T @ values[:, others])
    count = len(scores)
    freedom = count / max(count - len(others), 1)
    covariance = freedom * inverse @ (scores.T @ scores) @ inverse
    variance = np.einsum("t,tkq->kq", np.diag(covariance), search.terms[support[others]] ** 2)
    fixed = search.terms[support[largest]] != 0
    return np.where(fixed, 0.0, np.sqrt(variance))


def _independent(rows: np.ndarray, features: np.ndarray, xdot: np.ndarray) -> bool:
    """Whether the rows are different constraints at a typical state."""
    if len(rows) > xdot.shape[1]:
        return False
    some = features[:: max(1, len(features) // 200)]
    G = np.einsum("ckj,sk->scj", rows, some)[:, :, :-1] * np.sqrt(np.mean(xdot**2, axis=0))
    length = np.linalg.norm(G, axis=2, keepdims=True)
    G = G / np.where(length > 0, length, 1.0)
    smallest = np.linalg.svd(G, compute_uv=False)[:, -1]
    return bool(np.median(smallest) > _INDEPENDENT)


def _depends_on_control(
    search: Search,
    candidate: Candidate,
    row: np.ndarray,
    features: np.ndarray,
    u: np.ndarray,
    significance: float,
    effect: float,
    matters: float,
) -> bool:
    """F-test: do products of G(x) with u and u uᵀ explain the residual beyond functions of x?"""
    residual = search.values[:, candidate.support] @ candidate.weights
    if np.sqrt(np.mean(residual**2)) < 1e-9 * np.abs(candidate.weights).max():
        return False
    G = (features @ row)[:, :-1]
    G = G[:, np.abs(G).max(axis=0) > 1e-9]
    v = (u - u.mean(axis=0)) / np.maximum(u.std(axis=0), 1e-12)
    pairs = [v[:, i] * v[:, j] for i in range(v.shape[1]) for j in range(i, v.shape[1])]
    controls = np.concatenate([v, np.stack(pairs, axis=1)], axis=1)
    of_state = _products(G, features)
    nuisance = _orthonormal(np.concatenate([features, of_state], axis=1))
    # With many states there are more products than samples: then fewer of them are tested.
    richest = (_products(of_state, controls), _products(G, controls), _products(G, v))
    room = len(residual) - nuisance.shape[1]
    tested = next((some for some in richest if some.shape[1] < room), richest[-1])
    tested = _orthonormal(tested - nuisance @ (nuisance.T @ tested), 1e-4)
    residual = residual - nuisance @ (nuisance.T @ residual)
    explained = tested.T @ residual
    freedom = len(residual) - nuisance.shape[1] - tested.shape[1]
    if freedom < 1 or tested.shape[1] == 0:
        return False
    left = max(float(residual @ residual - explained @ explained), 1e-300)
    # As many regressors explain as large a share by chance, which does not count (adjusted R²).
    by_chance = (left / freedom) / (residual @ residual / (freedom + tested.shape[1]))
    whole = search.apart[np.ix_(candidate.support, candidate.support)]
    entries = float(candidate.weights @ whole @ candidate.weights)
    moved = (1 - by_chance) * np.mean(residual**2)
    if 1 - by_chance < effect or moved < matters**2 * entries:
        return False
    statistic = (explained @ explained / tested.shape[1]) / (left / freedom)
    return bool(f_distribution.sf(statistic, tested.shape[1], freedom) < significance)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


def _orthonormal(columns: np.ndarray, tolerance: float = 1e-6) -> np.ndarray:
    length = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(length > 0, length, 1.0)
    # Pivoted QR tells the rank as a singular value decomposition does, at a tenth of the cost.
    basis, triangle, _ = qr(scaled, mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diag(triangle))
    return basis[:, : int(np.sum(size > tolerance * size[0]))]

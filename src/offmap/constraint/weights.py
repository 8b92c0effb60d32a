"""The weights of an equation: polished, tied where they are equal, and with standard errors."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from offmap.constraint.regression import Candidate, Search, as_good_as, least_ratio
from offmap.constraint.ties import tie_width

_ROUND_OFF = 1e-12


@dataclass(frozen=True)
class DictionaryRow:
    """One accepted equation."""

    weights: Float[np.ndarray, "k q"]
    standard_errors: Float[np.ndarray, "k q"]
    """Of the weights, the largest weight being fixed."""
    residual: float
    """Root mean square of the equation on the data, in units of the noise expected there."""


def finished(search: Search, candidate: Candidate, groups: Int[np.ndarray, " N"]) -> DictionaryRow:
    """An accepted candidate as a row; samples of a group have errors that may be alike."""
    errors = _standard_errors(search, candidate, groups)
    return DictionaryRow(row_of(search, candidate), errors, candidate.ratio)


def row_of(search: Search, candidate: Candidate) -> Float[np.ndarray, "k q"]:
    """The equation as a matrix over (library function, entry of [ẋ; 1]), largest weight ±1."""
    support = candidate.support
    row = np.einsum("t,tkq->kq", candidate.weights / search.size[support], search.terms[support])
    first = search.terms[support[0]]
    row = row / np.abs(row).max() * np.sign(row[first != 0][0])
    return np.where(np.abs(np.abs(row) - 1) < _ROUND_OFF, np.sign(row), row)


def _standard_errors(
    search: Search, candidate: Candidate, groups: Int[np.ndarray, " N"]
) -> Float[np.ndarray, "k q"]:
    """Standard errors of the other weights once that of the largest term is fixed."""
    terms = search.terms[candidate.support]
    variance = np.einsum("t,tkq->kq", _term_errors(search, candidate, groups) ** 2, terms**2)
    return np.where(terms[_largest(search, candidate)] != 0, 0.0, np.sqrt(variance))


def _term_errors(
    search: Search, candidate: Candidate, groups: Int[np.ndarray, " N"]
) -> Float[np.ndarray, " s"]:
    """Standard error of each term's weight, that of the largest and of those tied to it being 0.

    Residuals within a group may be alike, and differ in size between groups: the sandwich over
    groups, which is White's where every sample is a group.
    """
    support = candidate.support
    raw = candidate.weights / search.size[support]
    raw = raw / np.abs(np.einsum("t,tkq->kq", raw, search.terms[support])).max()  # as in `_row`
    free = _free(search, candidate)
    values = search.values[:, support] * search.size[support]
    residual = values @ raw
    scores = np.zeros((groups.max() + 1, len(free)))
    np.add.at(scores, groups, values[:, free] * residual[:, None])
    inverse = np.linalg.inv(values[:, free].T @ values[:, free])
    count = len(scores)
    freedom = count / max(count - len(free), 1)
    covariance = freedom * inverse @ (scores.T @ scores) @ inverse
    errors = np.zeros(len(support))
    errors[free] = np.sqrt(np.diag(covariance))
    return errors


def _largest(search: Search, candidate: Candidate) -> int:
    """Which term of a candidate has the largest weight; others may be tied to it."""
    size = np.abs(candidate.weights / search.size[candidate.support])
    size[list(candidate.tied)] = 0.0
    return int(np.argmax(size))


def _free(search: Search, candidate: Candidate) -> Int[np.ndarray, " f"]:
    """Terms whose weights are fitted: neither the largest nor tied to it."""
    fixed = [_largest(search, candidate), *candidate.tied]
    return np.setdiff1d(np.arange(len(candidate.support)), fixed)


def polished(search: Search, candidate: Candidate) -> Candidate:
    """The candidate after one step of Newton's method towards the least ratio.

    Products of terms lose half of the digits that the samples have. The residual of each sample
    does not, so that weights of exact data come out exact to round-off.
    """
    support, free = candidate.support, _free(search, candidate)
    here = np.ix_(support, support)
    residual = search.values[:, support] @ candidate.weights
    expected = max(float(candidate.weights @ search.noise[here] @ candidate.weights), 1e-300)
    noise = np.mean(residual**2) / expected * search.noise[here]
    slope = residual @ search.values[:, support] / len(residual) - noise @ candidate.weights
    curvature = (search.gram[here] - noise)[np.ix_(free, free)]
    if not len(free) or np.linalg.eigvalsh(curvature)[0] <= _ROUND_OFF * np.trace(curvature):
        return candidate
    weights = candidate.weights.copy()
    weights[free] -= np.linalg.solve(curvature, slope[free])
    return replace(candidate, weights=weights)


def tied(search: Search, candidate: Candidate, groups: Int[np.ndarray, " N"]) -> Candidate:
    """The candidate with weights that the data cannot tell from ± the largest set to it.

    Where a state is the rate of another one, both are in the same units: px' − vx = 0 has no weight
    to get wrong. One weight less is worth `tie_width` standard errors.
    """
    support, largest = candidate.support, _largest(search, candidate)
    raw = candidate.weights / search.size[support]
    width = tie_width(int(groups.max()) + 1)
    off = np.abs(np.abs(raw / raw[largest]) - 1)
    most = width * _term_errors(search, candidate, groups) + _ROUND_OFF
    near = np.setdiff1d(np.flatnonzero(off <= most), [largest])
    near = near[np.argsort(off[near] / most[near])]
    for count in range(len(near), 0, -1):
        # Weights may be sure together that are unsure one by one: what all of them cost decides.
        equal = _with_ties(search, candidate, raw, near[:count], largest)
        if _largest(search, equal) != largest:  # fitted again, another one is larger
            continue
        cost = (groups.max() + 1) * (equal.ratio**2 / candidate.ratio**2 - 1)
        if equal.ratio <= as_good_as(0.0) or cost <= count * width**2:
            return equal
    return candidate


def _with_ties(
    search: Search,
    candidate: Candidate,
    raw: Float[np.ndarray, " s"],
    tied: Int[np.ndarray, " e"],
    largest: int,
) -> Candidate:
    """The candidate with some weights equal to ± the largest, the others fitted again."""
    support, together = candidate.support, np.append(tied, largest)
    basis = np.delete(np.eye(len(support)), tied, axis=1)
    column = int(np.flatnonzero(basis[largest])[0])
    basis[together, column] = np.sign(raw[together]) * search.size[support[together]]
    basis[:, column] /= np.linalg.norm(basis[:, column])
    gram, noise = (
        basis.T @ matrix[np.ix_(support, support)] @ basis for matrix in (search.gram, search.noise)
    )
    ratio, weights = least_ratio(gram, noise, np.arange(basis.shape[1])[None])
    places = tuple(sorted(int(place) for place in tied))
    return replace(candidate, weights=basis @ weights[0], ratio=float(ratio[0]), tied=places)

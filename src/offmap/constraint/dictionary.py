"""Constraints as short equations, found by exhaustive search over a small library of terms.

Every constraint is sought as Σ w_t φ_t(x) [ẋ; 1] = 0 with at most three terms, and a few more where
those clearly help, straight from measured pairs (x, ẋ): no f̂, no null space per state, no gauge, no
sign.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import qr
from scipy.stats import f as f_distribution

from offmap.constraint.equations import Equation, sentence
from offmap.constraint.library import Library, products
from offmap.constraint.search import (
    Candidate,
    Search,
    as_good_as,
    candidates,
    edges,
    grown,
    least_ratio,
    search_problem,
    worst_ratio,
)

_INDEPENDENT = 0.2  # least singular value of unit rows that count as different constraints
_TOGETHER = 2.0  # noise in x, which `noise` leaves out, adds up where equations are combined
_CONTRADICTS = 0.05  # radians between an equation and the accepted ones that it does not belong to
_SAME_LAW = 0.7  # squared cosine between two equations about the same motions
_ROUND_OFF = 1e-12
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
    change is no constraint), if it raises the rank of the rows found so far, if every combination
    of the rows is obeyed as they are, and if nothing as short and as well obeyed contradicts it.

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
    obeyed = candidates(search, max_terms, tolerance)
    accepted: list[Candidate] = []
    lengths: list[int] = []

    def different(candidate: Candidate) -> bool:
        together = [*accepted, candidate]
        rows = np.stack([_row(search, one) for one in together])
        most = _TOGETHER * max(one.allowed for one in together)
        return _independent(rows, features, xdot) and worst_ratio(search, together) <= most

    def steerable(candidate: Candidate) -> bool:
        return _depends_on_control(search, candidate, features, u, significance, effect, matters)

    for candidate in obeyed:
        if not different(candidate):
            continue
        for one in (grown(search, candidate, accepted), candidate):
            if different(one) and not steerable(one):
                accepted.append(_polished(search, _tied(search, one, groups)))
                lengths.append(len(candidate.support))
                break
        if len(accepted) == xdot.shape[1]:
            break
    contested = _contested(search, accepted, lengths, obeyed, features, steerable)
    return [
        DictionaryRow(_row(search, one), _standard_errors(search, one, groups), one.ratio)
        for i, one in enumerate(accepted)
        if i not in contested
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


def _polished(search: Search, candidate: Candidate) -> Candidate:
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


def _tied(search: Search, candidate: Candidate, groups: Int[np.ndarray, " N"]) -> Candidate:
    """The candidate with weights that the data cannot tell from ± the largest set to it.

    Where a state is the rate of another one, both are in the same units: px' − vx = 0 has no weight
    to get wrong. By Schwarz's criterion, one weight less is worth √log N standard errors.
    """
    support, largest = candidate.support, _largest(search, candidate)
    raw = candidate.weights / search.size[support]
    log_count = np.log(groups.max() + 1)
    off = np.abs(np.abs(raw / raw[largest]) - 1)
    most = np.sqrt(log_count) * _term_errors(search, candidate, groups) + _ROUND_OFF
    near = np.setdiff1d(np.flatnonzero(off <= most), [largest])
    near = near[np.argsort(off[near] / most[near])]
    for count in range(len(near), 0, -1):
        # Weights may be sure together that are unsure one by one: what all of them cost decides.
        tied = _with_ties(search, candidate, raw, near[:count], largest)
        if _largest(search, tied) != largest:  # fitted again, another one is larger
            continue
        cost = (groups.max() + 1) * (tied.ratio**2 / candidate.ratio**2 - 1)
        if tied.ratio <= as_good_as(0.0) or cost <= count * log_count:
            return tied
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


def _contested(
    search: Search,
    accepted: list[Candidate],
    lengths: list[int],
    obeyed: list[Candidate],
    features: Float[np.ndarray, "N k"],
    steerable: Callable[[Candidate], bool],
) -> set[int]:
    """Places of accepted equations that another one, as short and as well obeyed, contradicts.

    With much noise, motions near rest obey vx' + g sin(φ) = 0 as well as the law that holds at
    every thrust. The data do not say which is true, and where there are none the two differ. An
    equation that grew is as short as what it grew from (`lengths`): held-out data wanted more.
    Angles are between normals as they are, units and all: so are predictions projected.
    """
    found: set[int] = set()
    if not accepted:
        return found
    some = features[:: max(1, len(features) // 200)]

    def normals(candidate: Candidate) -> Float[np.ndarray, "s n"]:
        G = (some @ _row(search, candidate))[:, :-1]
        length = np.linalg.norm(G, axis=1, keepdims=True)
        return G / np.where(length > 0, length, 1.0)

    rows = np.stack([normals(one) for one in accepted], axis=1)
    span = np.linalg.pinv(rows) @ rows
    for rival in obeyed:
        normal = normals(rival)
        alike = np.mean(np.einsum("scj,sj->sc", rows, normal) ** 2, axis=0)
        place = int(np.argmax(alike))  # of the one that it would stand in for
        one = accepted[place]
        if place in found or alike[place] < _SAME_LAW or len(rival.support) > lengths[place]:
            continue
        if rival.ratio > as_good_as(one.ratio) or np.isin(rival.support, one.support).all():
            continue  # what an equation grew from does not speak against it
        outside = normal - np.einsum("sij,sj->si", span, normal)
        if np.sqrt(np.mean(np.sum(outside**2, axis=1))) > _CONTRADICTS and not steerable(rival):
            found.add(place)
    return found


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
    features: np.ndarray,
    u: np.ndarray,
    significance: float,
    effect: float,
    matters: float,
) -> bool:
    """F-tests: do u, u uᵀ or their products with G(x) explain the residual beyond functions of x?

    Few products see a plain dependence in much noise, many see one that changes with the state.
    """
    residual = search.values[:, candidate.support] @ candidate.weights
    if np.sqrt(np.mean(residual**2)) < 1e-9 * np.abs(candidate.weights).max():
        return False
    G = (features @ _row(search, candidate))[:, :-1]
    G = G[:, np.abs(G).max(axis=0) > 1e-9]
    v = (u - u.mean(axis=0)) / np.maximum(u.std(axis=0), 1e-12)
    pairs = [v[:, i] * v[:, j] for i in range(v.shape[1]) for j in range(i, v.shape[1])]
    controls = np.concatenate([v, np.stack(pairs, axis=1)], axis=1)
    of_state = products(G, features)
    nuisance = _orthonormal(np.concatenate([features, of_state], axis=1))
    residual = residual - nuisance @ (nuisance.T @ residual)
    room = len(residual) - nuisance.shape[1]
    whole = search.apart[np.ix_(candidate.support, candidate.support)]
    entries = float(candidate.weights @ whole @ candidate.weights)

    def explained_by(columns: np.ndarray) -> bool:
        if columns.shape[1] >= room:  # with many states there are more products than samples
            return False
        tested = _orthonormal(columns - nuisance @ (nuisance.T @ columns), 1e-4)
        explained = float(np.sum((tested.T @ residual) ** 2))
        terms, freedom = tested.shape[1], room - tested.shape[1]
        if terms == 0 or freedom < 1:
            return False
        left = max(float(residual @ residual) - explained, 1e-300)
        # As many regressors explain as large a share by chance, which does not count (adjusted R²).
        share = 1 - (left / freedom) / (float(residual @ residual) / room)
        if share < effect or share * np.mean(residual**2) < matters**2 * entries:
            return False
        chance = f_distribution.sf((explained / terms) / (left / freedom), terms, freedom)
        return bool(chance < significance)

    tests = (controls, products(G, v), products(G, controls), products(of_state, controls))
    return any(explained_by(columns) for columns in tests)


def _orthonormal(columns: np.ndarray, tolerance: float = 1e-6) -> np.ndarray:
    length = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(length > 0, length, 1.0)
    # Pivoted QR tells the rank as a singular value decomposition does, at a tenth of the cost.
    basis, triangle, _ = qr(scaled, mode="economic", pivoting=True, check_finite=False)
    size = np.abs(np.diag(triangle))
    return basis[:, : int(np.sum(size > tolerance * size[0]))]

"""Constraints as short equations, found by exhaustive search over a small library of terms.

Every constraint is sought as Σ w_{kj} φ_k(x) [ẋ; 1]_j = 0 with at most three terms, straight from
measured pairs (x, ẋ): no f̂, no null space per state, no gauge, no sign. The library φ holds 1, each
state, and its sine and cosine.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.linalg import qr
from scipy.stats import f as f_distribution

from offmap.constraint.equations import Equation, sentence

_BLOCK = 40_000  # supports examined at once
_SHARE = 1e-3  # a term that contributes less than this share of the largest is not one
_INDEPENDENT = 0.2  # least singular value of unit rows that count as different constraints
_ROUND_OFF = 1e-14
_DEPENDENT = 1e-9  # determinant of unit terms below which they count as nearly dependent
_TELLING = 1 / 3  # a velocity with more noise than this share of its size obeys anything
_AS_GOOD = 2.0  # an equation with a residual up to this multiple of the best one's is as good
_EXACT = 0.3  # and so are all with a residual below this share of the noise expected


class Library(eqx.Module):
    """The functions φ(x): 1, each state, sines and cosines; an angle by its sine and cosine alone.

    An angle and the same angle after a full turn are one state: no constraint tells them apart.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    trigonometric: tuple[int, ...] = eqx.field(static=True)
    """States whose sine and cosine are offered: the declared angles, or all if none is declared."""
    angles: tuple[int, ...] = eqx.field(static=True, default=())
    """States that are known to be angles."""

    @property
    def plain(self) -> tuple[int, ...]:
        """States that are offered as they are."""
        return tuple(i for i in range(len(self.names)) if i not in self.angles)

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " k"]:
        """Value of every function at one state."""
        plain = x[jnp.array(self.plain, dtype=int)]
        trig = x[jnp.array(self.trigonometric, dtype=int)]
        return jnp.concatenate([jnp.ones(1), plain, jnp.sin(trig), jnp.cos(trig)])

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of every function; the constant has none."""
        angles = [self.names[i] for i in self.trigonometric]
        return (
            "",
            *(self.names[i] for i in self.plain),
            *(f"sin({name})" for name in angles),
            *(f"cos({name})" for name in angles),
        )


class DictionaryConstraint(eqx.Module):
    """Γ(x) = W φ(x): rows that are short sums of library terms."""

    library: Library
    weights: Float[Array, "c k q"]

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, "c q"]:
        """[G(x) g(x)]."""
        return jnp.einsum("ckj,k->cj", self.weights, self.library(x))


@dataclass(frozen=True)
class DictionaryRow:
    """One accepted equation."""

    weights: Float[np.ndarray, "k q"]
    standard_errors: Float[np.ndarray, "k q"]
    """Of the weights, the largest weight being fixed."""
    residual: float
    """Root mean square of the equation on the data, in units of the noise expected there."""


@dataclass(frozen=True)
class _Search:
    """The regression problem, scaled so that every term has unit size."""

    terms: Float[np.ndarray, "N q"]
    size: Float[np.ndarray, " q"]
    gram: Float[np.ndarray, "q q"]
    noise: Float[np.ndarray, "q q"]
    """wᵀ noise w is the variance that noise in ẋ gives to the residual of w."""
    column: Int[np.ndarray, " q"]
    """Which entry of [ẋ; 1] a term multiplies."""
    function: Int[np.ndarray, " q"]
    """Which library function a term has."""


def discover(
    library: Library,
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    noise: Float[np.ndarray, " n"],
    *,
    max_terms: int = 3,
    tolerance: float = 3.0,
    significance: float = 1e-6,
    effect: float = 0.0,
) -> list[DictionaryRow]:
    """Short equations that every sample obeys, simplest first, none implied by the others.

    A support is accepted if its residual is what the noise in ẋ explains (within `tolerance`), if
    the residual does not depend on the control (F-test at `significance`: what a control can
    change is no constraint), and if it raises the rank of the rows found so far.

    Args:
        library: the functions φ.
        features: φ at the N samples.
        xdot: measured derivatives.
        u: controls.
        noise: standard deviation of the noise in each component of ẋ.
        max_terms: most terms in one equation.
        tolerance: largest residual, in units of the expected one.
        significance: p-value below which the residual is said to depend on u.
        effect: share of the residual's variance that u must explain as well, to be said so.
    """
    search = _search(features, xdot, noise)
    n = xdot.shape[1]
    accepted: list[DictionaryRow] = []
    rows = np.zeros((0, features.shape[1], n + 1))
    settled: set[tuple[int, ...]] = set()
    for support, weights, ratio in _candidates(search, n, max_terms, tolerance):
        # What is obeyed with one term more is implied too, or that term obeys something shorter.
        if not settled.isdisjoint(_parts(support)):
            continue
        row = _row(search, support, weights, features.shape[1], n)
        enlarged = np.concatenate([rows, row[None]])
        if not _independent(enlarged, features, xdot):
            settled.add(tuple(support.tolist()))
            continue
        if _depends_on_control(search, support, weights, row, features, u, significance, effect):
            continue
        errors = _standard_errors(search, support, weights, features.shape[1], n)
        accepted.append(DictionaryRow(row, errors, ratio))
        rows = enlarged
        settled.add(tuple(support.tolist()))
        if len(rows) == n:
            break
    return accepted


def _parts(support: np.ndarray) -> Iterator[tuple[int, ...]]:
    """Every set of fewer of its terms."""
    for size in range(1, len(support)):
        yield from combinations(support.tolist(), size)


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


def _search(features: np.ndarray, xdot: np.ndarray, noise: np.ndarray) -> _Search:
    N, k = features.shape
    n = xdot.shape[1]
    extended = np.concatenate([xdot, np.ones((N, 1))], axis=1)
    terms = (features[:, :, None] * extended[:, None, :]).reshape(N, -1)
    size = np.sqrt(np.mean(terms**2, axis=0))
    size = np.where(size > 0, size, 1.0)
    terms = terms / size
    column = np.arange(k * (n + 1)) % (n + 1)
    function = np.arange(k * (n + 1)) // (n + 1)
    # A term φ_k ẋ_j inherits the noise of ẋ_j: two terms with the same j share it.
    variance = np.append(noise**2, 0.0)
    same = column[:, None] == column[None, :]
    energy = (features.T @ features / N)[np.ix_(function, function)]
    shared = same * variance[column][:, None] * energy / np.outer(size, size)
    return _Search(terms, size, terms.T @ terms / N, shared, column, function)


def _candidates(
    search: _Search, n: int, max_terms: int, tolerance: float
) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Supports whose residual the noise explains, with weights: fewest terms first."""
    # Noise explains whatever is said of a velocity that is mostly noise: "a' = 0" above all.
    told = np.diag(search.noise) < _TELLING**2
    active = np.flatnonzero((np.mean(search.terms**2, axis=0) > 0) & told)
    degree = (search.function > 0).astype(int) + (search.column < n)
    found = []
    for size in range(1, max_terms + 1):
        for block in _supports(active, size):
            block = block[np.any(search.column[block] < n, axis=1)]
            block = block[_may_be_obeyed(search, block, tolerance)]
            ratio, weights = _least_ratio(search, block)
            share = np.abs(weights) / np.abs(weights).max(axis=1, keepdims=True)
            good = (ratio <= tolerance) & (share.min(axis=1) > _SHARE)
            found += [
                (size, int(degree[s].sum()), float(r), s, w)
                for s, w, r in zip(block[good], weights[good], ratio[good], strict=True)
            ]
    # Noise may be far from what the dynamics took for it, and by another factor for each velocity:
    # "obeyed" means as good as the best equation of up to three terms about the same velocities.
    best: dict[int, float] = {}
    about = [_main_velocities(search, n, support, weights) for *_, support, weights in found]
    for velocities, item in zip(about, found, strict=True):
        for j in velocities:
            best[j] = min(item[2], best.get(j, np.inf))
    found = [
        item
        for velocities, item in zip(about, found, strict=True)
        if item[2] <= max(_AS_GOOD * max(best[j] for j in velocities), _EXACT)
    ]
    found.sort(key=lambda item: item[:3])
    return [(support, weights, ratio) for _, _, ratio, support, weights in found]


def _main_velocities(
    search: _Search, n: int, support: np.ndarray, weights: np.ndarray
) -> list[int]:
    """The velocities that weigh most in an equation, those half as heavy included."""
    column, weight = search.column[support], np.abs(weights)
    heaviest = weight[column < n].max()
    return [int(j) for j in np.unique(column[(column < n) & (weight >= 0.5 * heaviest)])]


def _supports(active: np.ndarray, size: int) -> Iterator[Int[np.ndarray, "S s"]]:
    """All sets of `size` terms, some at a time: thirteen states have thirty million of three."""
    sets = combinations(active.tolist(), size)
    while block := list(islice(sets, _BLOCK)):
        yield np.array(block, dtype=np.int32)


def _may_be_obeyed(
    search: _Search, supports: Int[np.ndarray, "S s"], tolerance: float
) -> Bool[np.ndarray, " S"]:
    """Supports of three terms whose ratio may be within tolerance, by a bound that costs little.

    The largest eigenvalue of gram⁻¹ noise is at most its trace, which for 3 × 3 has a closed form.
    """
    if supports.shape[1] != 3:
        return np.ones(len(supports), dtype=bool)
    i, j, k = supports.T
    gram, noise = search.gram, search.noise
    a, b, c = gram[i, i] + _ROUND_OFF, gram[j, j] + _ROUND_OFF, gram[k, k] + _ROUND_OFF
    d, e, f = gram[i, j], gram[i, k], gram[j, k]
    determinant = a * (b * c - f * f) - d * (d * c - e * f) + e * (d * f - b * e)
    trace = (
        (b * c - f * f) * noise[i, i]
        + (a * c - e * e) * noise[j, j]
        + (a * b - d * d) * noise[k, k]
        + 2 * (e * f - d * c) * noise[i, j]
        + 2 * (d * f - b * e) * noise[i, k]
        + 2 * (d * e - a * f) * noise[j, k]
    )
    # Where terms are nearly dependent the determinant is rounding, and the bound says nothing.
    return (determinant < _DEPENDENT) | (trace * tolerance**2 >= (1 - 1e-6) * determinant)


def _least_ratio(
    search: _Search, supports: Int[np.ndarray, "S s"]
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S s"]]:
    """min_w √(wᵀ gram w / wᵀ noise w) on each support, and the w that attains it."""
    gram = search.gram[supports[:, :, None], supports[:, None, :]]
    noise = search.noise[supports[:, :, None], supports[:, None, :]]
    gram = gram + _ROUND_OFF * np.eye(supports.shape[1])
    inverse = np.linalg.inv(np.linalg.cholesky(gram))
    values, vectors = np.linalg.eigh(inverse @ noise @ np.swapaxes(inverse, 1, 2))
    weights = np.einsum("sij,si->sj", inverse, vectors[:, :, -1])
    return 1 / np.sqrt(np.maximum(values[:, -1], 1e-300)), weights


def _row(
    search: _Search, support: np.ndarray, weights: np.ndarray, k: int, n: int
) -> Float[np.ndarray, "k q"]:
    """The equation as a matrix over (library function, entry of [ẋ; 1]), largest weight ±1."""
    row = np.zeros(k * (n + 1))
    row[support] = weights / search.size[support]
    row /= np.abs(row).max()
    return row.reshape(k, n + 1) * np.sign(row[support[0]])


def _standard_errors(
    search: _Search, support: np.ndarray, weights: np.ndarray, k: int, n: int
) -> Float[np.ndarray, "k q"]:
    """Least-squares standard errors of the other weights once the largest is fixed at ±1."""
    raw = weights / search.size[support]
    largest = int(np.argmax(np.abs(raw)))
    others = np.delete(np.arange(len(support)), largest)
    chosen = search.terms[:, support] * search.size[support]
    residual = chosen @ (raw / np.abs(raw[largest]))
    errors = np.zeros(k * (n + 1))
    if len(others):
        gram = chosen[:, others].T @ chosen[:, others]
        dof = max(len(residual) - len(others), 1)
        covariance = np.linalg.inv(gram) * (residual @ residual) / dof
        errors[support[others]] = np.sqrt(np.diag(covariance))
    return errors.reshape(k, n + 1)


def _independent(rows: np.ndarray, features: np.ndarray, xdot: np.ndarray) -> bool:
    """Whether the rows are different constraints at a typical state."""
    some = features[:: max(1, len(features) // 200)]
    G = np.einsum("ckj,sk->scj", rows, some)[:, :, :-1] * np.sqrt(np.mean(xdot**2, axis=0))
    length = np.linalg.norm(G, axis=2, keepdims=True)
    G = G / np.where(length > 0, length, 1.0)
    smallest = np.linalg.svd(G, compute_uv=False)[:, -1]
    return bool(np.median(smallest) > _INDEPENDENT)


def _depends_on_control(
    search: _Search,
    support: np.ndarray,
    weights: np.ndarray,
    row: np.ndarray,
    features: np.ndarray,
    u: np.ndarray,
    significance: float,
    effect: float,
) -> bool:
    """F-test: do products of G(x) with u and u uᵀ explain the residual beyond functions of x?"""
    residual = search.terms[:, support] @ weights
    if np.sqrt(np.mean(residual**2)) < 1e-9 * np.abs(weights).max():
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
    left_over = len(residual) - nuisance.shape[1]
    tested = next((some for some in richest if some.shape[1] < left_over), richest[-1])
    tested = _orthonormal(tested - nuisance @ (nuisance.T @ tested), 1e-4)
    residual = residual - nuisance @ (nuisance.T @ residual)
    explained = tested.T @ residual
    freedom = len(residual) - nuisance.shape[1] - tested.shape[1]
    if freedom < 1 or tested.shape[1] == 0:
        return False
    left = max(float(residual @ residual - explained @ explained), 1e-300)
    # Less what as many random columns explain: of 1,500 samples 500 of them explain a third.
    by_chance = left / freedom * (freedom + tested.shape[1])
    if 1 - by_chance / (residual @ residual) < effect:
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

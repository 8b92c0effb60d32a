"""Samples in which longer laws are sought: what is known of them, and what is left open."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from offmap.constraint.dictionary import MAX_TERMS, normals
from offmap.constraint.library import Library
from offmap.constraint.regression import (
    Candidate,
    Search,
    as_good_as,
    least_ratio,
    obeyed_up_to,
    search_problem,
    telling,
)
from offmap.constraint.steerable import Standard
from offmap.constraint.weights import DictionaryRow

_OPEN = 0.5  # share of a velocity that known laws must leave to have another one about it
_EXTRAPOLATES = 1.5  # residual at the held-out edge, in units of the one that is to be expected
_UNLUCKY = 4.0  # squared errors of weights that are not surprising, in units of their variances


@dataclass(frozen=True)
class Motions:
    """What is known of the samples, with the value of every product."""

    library: Library
    features: Float[np.ndarray, "N k"]
    xdot: Float[np.ndarray, "N n"]
    u: Float[np.ndarray, "N m"]
    noise: Float[np.ndarray, " n"]
    held: Bool[np.ndarray, "f N"]
    groups: Int[np.ndarray, " N"]
    depends: Bool[np.ndarray, "n n"]
    """Which states each velocity depends on."""
    spoken_of: Bool[np.ndarray, " n"]
    """Velocities that need no further law."""
    standard: Standard

    @property
    def count(self) -> int:
        """Samples, or groups of them, whose errors are not alike."""
        return int(self.groups.max()) + 1

    def search(self, terms: Sequence[np.ndarray]) -> Search:
        """Sums of these terms; nothing is held out."""
        whole = np.stack(terms)
        used = np.any(whole != 0, axis=(0, 2))
        none = np.zeros((0, len(self.xdot)), dtype=bool)
        search = search_problem(whole[:, used], self.features[:, used], self.xdot, self.noise, none)
        return replace(search, terms=whole, features=self.features)

    def term(self, function: int, entry: int) -> Float[np.ndarray, "k q"]:
        """A function times an entry of [ẋ; 1]."""
        term = np.zeros((self.features.shape[1], self.xdot.shape[1] + 1))
        term[function, entry] = 1.0
        return term


def singles(library: Library) -> int:
    """Functions that are no products; they come first."""
    return len(library.labels) - len(library.pairs)


def functions_of(motions: Motions, states: Bool[np.ndarray, " n"]) -> list[int]:
    """Functions of some states alone; sines only where angles are known."""
    library, single = motions.library, singles(motions.library)
    offered = set(range(single if library.angles else 1 + len(library.plain)))
    offered |= set(range(single, len(library.labels)))
    allowed = frozenset(np.flatnonzero(states).tolist())
    return [k for k, used in enumerate(library.states) if k in offered and used <= allowed]


def candidate_of(search: Search, support: Int[np.ndarray, " s"]) -> Candidate:
    """The sum on a support, with the weights by which it is best obeyed."""
    ratio, weights = least_ratio(search.gram, search.noise, support[None])
    return Candidate(support, weights[0], float(ratio[0]), float(obeyed_up_to(ratio)[0]))


def holds(motions: Motions, search: Search, support: Int[np.ndarray, " s"]) -> bool:
    """Whether a sum says something new, and held-out samples obey it as others do.

    Without products it is new only if it is longer than those that were tried before.
    """
    _, weights = least_ratio(search.gram, search.noise, support[None])
    products = np.any(search.terms[support][:, singles(motions.library) :])
    if not products and len(support) <= MAX_TERMS:
        return False
    if not telling(search, support[None], weights)[0]:
        return False
    values, all_of_it = search.values[:, support], np.arange(len(support))[None]
    noise = search.noise[np.ix_(support, support)]
    share = motions.count / len(motions.xdot)
    for part in motions.held:
        inside = values[~part].T @ values[~part] / np.sum(~part)
        outside = values[part].T @ values[part] / np.sum(part)
        ratios, weights = least_ratio(inside, noise, all_of_it)
        w, ratio = weights[0], max(float(ratios[0]), as_good_as(0.0))
        expected = max(float(w @ noise @ w), 1e-300)
        doubt = _doubt(inside, noise, w, float(ratios[0]), share * np.sum(~part))
        usual = ratio**2 + _UNLUCKY * float(np.sum(outside * doubt)) / expected
        if w @ outside @ w > _EXTRAPOLATES**2 * usual * expected:
            return False
    return True


def _doubt(
    gram: Float[np.ndarray, "s s"],
    noise: Float[np.ndarray, "s s"],
    weights: Float[np.ndarray, " s"],
    ratio: float,
    count: float,
) -> Float[np.ndarray, "s s"]:
    """Covariance of the weights of a sum, the largest of them being what it is."""
    free = np.delete(np.arange(len(weights)), int(np.argmax(np.abs(weights))))
    curvature = (gram - ratio**2 * noise)[np.ix_(free, free)]
    found = np.zeros_like(gram)
    variance = ratio**2 * float(weights @ noise @ weights) / count
    found[np.ix_(free, free)] = variance * np.linalg.pinv(curvature, hermitian=True)
    return found


def known_of(
    motions: Motions, rows: list[DictionaryRow], velocities: list[int]
) -> Float[np.ndarray, " v"]:
    """Cosines, in falling order, between some velocities and what the rows speak about."""
    shape = (len(rows), motions.features.shape[1], motions.xdot.shape[1] + 1)
    weights = np.array([row.weights for row in rows]).reshape(shape)
    G = normals(weights, motions.features, motions.xdot)
    part = (np.linalg.pinv(G) @ G)[:, velocities][:, :, velocities]
    return np.median(np.sqrt(np.clip(np.linalg.eigvalsh(part)[:, ::-1], 0, 1)), axis=0)


def left_open(motions: Motions, rows: list[DictionaryRow]) -> list[int]:
    """Velocities that the rows do not already tell, and no short sum is obeyed about."""
    moving = np.flatnonzero(np.any(motions.xdot != 0, axis=0) & ~motions.spoken_of).tolist()
    return [j for j in moving if known_of(motions, rows, [j])[0] ** 2 < 1 - _OPEN**2]

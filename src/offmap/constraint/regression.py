"""The regression behind short equations: terms at samples, and how well sums are obeyed."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

ALIKE = 1.15
"""Residuals of the same kind of sum up to this multiple of the best are alike,"""
EXACT = 0.3
"""and so are all below this share of the noise expected."""
_AS_GOOD = 2.0  # an equation with a residual up to this multiple of the best one's is as good
_TELLING = 0.7  # a sum says something if it is below this share of its entries, noise included
_CLEAR = 1 / 3  # a product with more noise than this share of its size obeys anything
_ROUND_OFF = 1e-14
_PAIR = 2  # products in a turned term


@dataclass(frozen=True)
class Search:
    """The regression problem, scaled so that every term has unit size."""

    values: Float[np.ndarray, "N t"]
    """Every term at every sample."""
    size: Float[np.ndarray, " t"]
    """By which it was divided."""
    gram: Float[np.ndarray, "t t"]
    """Mean products of terms."""
    held: Float[np.ndarray, "f t t"]
    """The same on each held-out part of the data,"""
    rest: Float[np.ndarray, "f t t"]
    """and on what is left without it."""
    noise: Float[np.ndarray, "t t"]
    """wᵀ noise w is the variance that noise in ẋ gives to the residual of w."""
    terms: Float[np.ndarray, "t k q"]
    """What each term is."""
    apart: Float[np.ndarray, "t t"]
    """wᵀ apart w is the mean square of w if its entries G_j ẋ_j and g have nothing in common."""
    features: Float[np.ndarray, "N k"]
    """φ at every sample,"""
    motion: Float[np.ndarray, "N q"]
    """and [ẋ; 1]."""

    @cached_property
    def active(self) -> Int[np.ndarray, " a"]:
        """Terms that are not mostly noise; of a turned pair, the entries: it may be noise."""
        present = np.mean(self.values**2, axis=0) > 0
        pair = self.frames.max(axis=1) > 1
        most = np.where(pair, _TELLING, _CLEAR) ** 2 * np.diag(self.apart)
        return np.flatnonzero(present & (np.diag(self.noise) < most))

    @cached_property
    def moving(self) -> np.ndarray:
        """Which terms have a velocity."""
        return np.any(self.has, axis=1)

    @cached_property
    def has(self) -> Bool[np.ndarray, "t n"]:
        """Which velocities a term has."""
        return np.any(self.terms[:, :, :-1] != 0, axis=1)

    @cached_property
    def degree(self) -> Int[np.ndarray, " t"]:
        """How complicated a term is: it may have a function of the state, a velocity or both."""
        function = np.any(self.terms[:, 1:] != 0, axis=(1, 2))
        return function.astype(int) + self.moving.astype(int)

    @cached_property
    def frames(self) -> Int[np.ndarray, "t n"]:
        """From which frame a term sees each component of ẋ: 0 it does not, 1 the world, 2 … others.

        In a turned pair the sine comes before the cosine; whether it stands with the earlier or the
        later component, and the sign between them, say which way the frame turns.
        """
        frames = self.has.astype(int)
        for term in np.flatnonzero(frames.sum(axis=1) == _PAIR):
            (sine, i), (_, j) = np.argwhere(self.terms[term, :, :-1])
            sign = np.prod(self.terms[term][self.terms[term] != 0]) * (1 if i < j else -1)
            frames[term, [i, j]] = 2 + 2 * sine + (sign > 0)
        return frames


@dataclass(frozen=True)
class Candidate:
    """A sum of terms that the noise explains."""

    support: Int[np.ndarray, " s"]
    weights: Float[np.ndarray, " s"]
    """Of the terms at unit size."""
    ratio: float
    """Root mean square of the sum, in units of what noise in ẋ gives it."""
    allowed: float
    """The largest ratio that counts as obeyed."""
    tied: tuple[int, ...] = ()
    """Terms whose weights are ± the largest one, rather than fitted."""


def search_problem(
    terms: Float[np.ndarray, "t k q"],
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    noise: Float[np.ndarray, " n"],
    held: Bool[np.ndarray, "f N"],
) -> Search:
    """Terms at the samples, their products, and what noise in ẋ adds to those."""
    extended = np.concatenate([xdot, np.ones((len(xdot), 1))], axis=1)
    by_entry = [(j, terms[:, :, j]) for j in range(extended.shape[1]) if terms[:, :, j].any()]
    moved = [features @ part.T * extended[:, j, None] for j, part in by_entry]
    values = sum(moved, start=np.zeros((len(xdot), len(terms))))
    size = np.sqrt(np.mean(values**2, axis=0))
    size = np.where(size > 0, size, 1.0)
    values = values / size
    apart = sum((part.T @ part for part in moved), start=np.zeros((len(terms),) * 2)) / len(xdot)
    # A term inherits the noise of the ẋ_j in it: two terms with the same j share it.
    energy = features.T @ features / len(features)
    variance = np.append(noise**2, 0.0)
    shared = sum(
        (variance[j] * (part @ energy @ part.T) for j, part in by_entry),
        start=np.zeros((len(terms),) * 2),
    )

    def products(chosen: np.ndarray) -> np.ndarray:
        return chosen.T @ chosen / len(chosen)

    def products_of(parts: np.ndarray) -> np.ndarray:
        each = [products(values[part]) for part in parts]
        return np.array(each).reshape(-1, len(terms), len(terms))

    return Search(
        values,
        size,
        products(values),
        products_of(held),
        products_of(~held),
        shared / np.outer(size, size),
        terms,
        apart / np.outer(size, size),
        features,
        extended,
    )


def edges(x: Float[np.ndarray, "N n"]) -> Bool[np.ndarray, "f N"]:
    """The lowest and the highest fifth of the samples in every direction they spread in."""
    spread = x[:, np.ptp(x, axis=0) > 0]
    low, high = np.quantile(spread, 0.2, axis=0), np.quantile(spread, 0.8, axis=0)
    parts = np.concatenate([(spread < low).T, (spread > high).T])
    return parts[parts.any(axis=1)]


def least_ratio(
    gram: Float[np.ndarray, "t t"],
    noise: Float[np.ndarray, "t t"],
    supports: Int[np.ndarray, "S s"],
) -> tuple[Float[np.ndarray, " S"], Float[np.ndarray, "S s"]]:
    """min_w √(wᵀ gram w / wᵀ noise w) on each support, and the w that attains it."""
    gram = gram[supports[:, :, None], supports[:, None, :]]
    noise = noise[supports[:, :, None], supports[:, None, :]]
    gram = gram + _ROUND_OFF * np.eye(supports.shape[1])
    inverse = np.linalg.inv(np.linalg.cholesky(gram))
    values, vectors = np.linalg.eigh(inverse @ noise @ np.swapaxes(inverse, 1, 2))
    weights = np.einsum("sij,si->sj", inverse, vectors[:, :, -1])
    return 1 / np.sqrt(np.maximum(values[:, -1], 1e-300)), weights


def errors_held_out(search: Search, supports: Int[np.ndarray, "S s"]) -> Float[np.ndarray, "S f"]:
    """Squared ratio on each held-out part, with the weights that the rest asks for."""
    noise = search.noise[supports[:, :, None], supports[:, None, :]]
    errors = []
    for own, others in zip(search.held, search.rest, strict=True):
        _, w = least_ratio(others, search.noise, supports)
        gram = own[supports[:, :, None], supports[:, None, :]]
        expected = np.einsum("si,sij,sj->s", w, noise, w)
        errors.append(np.einsum("si,sij,sj->s", w, gram, w) / np.maximum(expected, 1e-300))
    return np.stack(errors, axis=1)


def worst_ratio(search: Search, together: list[Candidate]) -> float:
    """Largest ratio of any combination of candidates.

    A constraint with something small added to it still has a small residual; that something alone,
    which is a combination of the two, has not.
    """
    weights = np.zeros((len(together), len(search.size)))
    for row, candidate in zip(weights, together, strict=True):
        row[candidate.support] = candidate.weights
    gram = weights @ search.gram @ weights.T
    noise = weights @ search.noise @ weights.T
    scale = np.sqrt(np.diag(noise))
    values, vectors = np.linalg.eigh(noise / np.outer(scale, scale))
    root = vectors / (np.sqrt(np.maximum(values, 1e-12)) * scale[:, None])
    return float(np.sqrt(max(np.linalg.eigvalsh(root.T @ gram @ root)[-1], 0.0)))


def as_good_as(ratio: float) -> float:
    """The largest residual of a sum that is as well obeyed as one with the residual `ratio`."""
    return max(ALIKE * ratio, EXACT)


def obeyed_up_to(best: Float[np.ndarray, "*S"]) -> Float[np.ndarray, "*S"]:
    """The largest residual that counts as obeyed where the best sum has this one."""
    return np.maximum(_AS_GOOD * best, EXACT)


def about(
    search: Search, supports: Int[np.ndarray, "S s"], weights: Float[np.ndarray, "S s"]
) -> Bool[np.ndarray, "S n"]:
    """The velocities that sums are about: those in their large terms."""
    weight = np.abs(weights) * search.moving[supports]
    large = weight >= 0.5 * weight.max(axis=1, keepdims=True, initial=0.0)
    return np.any(search.has[supports] & large[:, :, None], axis=1)


def telling(
    search: Search, supports: Int[np.ndarray, "S s"], weights: Float[np.ndarray, "S s"]
) -> Bool[np.ndarray, " S"]:
    """Which sums are much smaller than their entries G_j ẋ_j: there is something to be obeyed.

    A multiple of one velocity, where all that was measured of it is noise, is as small as noise.
    """
    apart = mean_square(search.apart, supports, weights)
    return mean_square(search.gram, supports, weights) < _TELLING**2 * apart


def mixed_frames(search: Search, supports: Int[np.ndarray, "S s"]) -> Bool[np.ndarray, " S"]:
    """Which sums see one component of ẋ from two frames, as the law of one robot seldom does."""
    frames = search.frames[supports]
    first = np.where(frames == 0, np.inf, frames).min(axis=1)
    return np.any((first < np.inf) & (frames.max(axis=1) > first), axis=1)


def mean_square(
    products: Float[np.ndarray, "t t"],
    supports: Int[np.ndarray, "S s"],
    weights: Float[np.ndarray, "S s"],
) -> Float[np.ndarray, " S"]:
    """wᵀ products w of each sum."""
    some = products[supports[:, :, None], supports[:, None, :]]
    return np.einsum("si,sij,sj->s", weights, some, weights)

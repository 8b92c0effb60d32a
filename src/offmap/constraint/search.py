"""Best-subset search: which few terms of a library add up to nothing but noise."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from offmap.constraint.regression import (
    ALIKE,
    EXACT,
    Candidate,
    Search,
    about,
    errors_held_out,
    least_ratio,
    mean_square,
    mixed_frames,
    obeyed_up_to,
    telling,
)

_BLOCK = 40_000  # supports examined at once
_MOST = 800_000  # supports of one size; beyond, only the best smaller ones are extended
_EXTENDED = 200
_SHARE = 1e-3  # a term that contributes less than this share of the largest is not one
_ALIKE_HELD_OUT = 1.05  # and errors on held-out parts up to this one


class Sums(NamedTuple):
    """Sums of equally many terms that the noise explains."""

    supports: Int[np.ndarray, "S s"]
    weights: Float[np.ndarray, "S s"]
    """Of the terms at unit size."""
    ratios: Float[np.ndarray, " S"]
    """Root mean square of each sum, in units of what noise in ẋ gives it."""


def candidates(search: Search, max_terms: int, tolerance: float) -> list[Candidate]:
    """Sums whose residual the noise explains.

    Those of the fewest terms come first, among them those that stay in one frame, among these the
    ones that do not follow from simpler ones, then those with the least residual; the simplest of
    those that are alike.
    """
    smaller = np.zeros((1, 0), dtype=np.int32)
    obeyed = []
    for size in range(1, max_terms + 1):
        supports = _supports(search.active, size, smaller)
        supports = supports[np.any(search.moving[supports], axis=1)]
        sums, ratios = _obeyed(search, supports, tolerance)
        obeyed.append(sums)
        smaller = supports[np.argsort(ratios)[:_EXTENDED]]
    implied = _implied(search, obeyed)
    found: list[Candidate] = []
    ranks: list[list[float]] = []
    for sums, follows, most in zip(obeyed, implied, _allowed(search, obeyed, implied), strict=True):
        good = sums.ratios <= most
        sums, follows = Sums(*(part[good] for part in sums)), follows[good]
        mixed, degree = (
            mixed_frames(search, sums.supports),
            search.degree[sums.supports].sum(axis=1),
        )
        behind = ~_level_with_best(search, sums, np.stack([mixed, follows], axis=1))
        terms = np.full(len(degree), sums.supports.shape[1])
        ranks += np.stack([terms, mixed, follows, behind, degree, sums.ratios], axis=1).tolist()
        found += [
            Candidate(support, weights, float(ratio), float(bar))
            for support, weights, ratio, bar in zip(*sums, most[good], strict=True)
        ]
    return [found[i] for i in sorted(range(len(found)), key=ranks.__getitem__)]


def _level_with_best(
    search: Search, sums: Sums, kinds: Bool[np.ndarray, "S k"]
) -> Bool[np.ndarray, " S"]:
    """Which sums are as good as the best of their kind, both on all data and on parts held out.

    Sums of one kind are about the same velocities. Whether a cosine that stays near 1 is there is
    told by where it is least near.
    """
    if not len(sums.ratios):
        return np.zeros(0, dtype=bool)
    kinds = np.concatenate([kinds, about(search, sums.supports, sums.weights)], axis=1)
    _, kind = np.unique(kinds, axis=0, return_inverse=True)
    level = _near_best(sums.ratios, kind, ALIKE)
    if len(search.held):
        some = np.flatnonzero(level)
        errors = errors_held_out(search, sums.supports[some]).mean(axis=1)
        errors = np.sqrt(np.maximum(errors, 0.0))  # exact sums leave round-off of either sign
        level[some] = _near_best(errors, kind[some], _ALIKE_HELD_OUT)
    return level


def _near_best(
    errors: Float[np.ndarray, " S"], kind: Int[np.ndarray, " S"], most: float
) -> Bool[np.ndarray, " S"]:
    """Which errors are at most this multiple of the least of their kind."""
    best = np.full(kind.max() + 1, np.inf)
    np.minimum.at(best, kind, errors)
    return errors <= np.maximum(most * best, EXACT)[kind]


def _obeyed(
    search: Search, supports: Int[np.ndarray, "S s"], tolerance: float
) -> tuple[Sums, Float[np.ndarray, " S"]]:
    """The sums on these supports that the noise explains, and the ratios of all."""
    blocks, ratios = [], []
    for block in np.array_split(supports, max(1, len(supports) // _BLOCK)):
        ratio, weights = least_ratio(search.gram, search.noise, block)
        ratios.append(ratio)
        share = np.abs(weights) / np.abs(weights).max(axis=1, keepdims=True)
        good = (ratio <= tolerance) & (share.min(axis=1) > _SHARE)
        good[good] &= telling(search, block[good], weights[good])
        blocks.append((block[good], weights[good], ratio[good]))
    return Sums(*(np.concatenate(part) for part in zip(*blocks, strict=True))), np.concatenate(
        ratios
    )


def _allowed(
    search: Search, obeyed: list[Sums], implied: list[Bool[np.ndarray, " _"]]
) -> list[Float[np.ndarray, " _"]]:
    """The largest ratio of each sum that counts as obeyed.

    Noise may be far from what the dynamics took for it, and by another factor for each velocity:
    "obeyed" means nearly as well as the best sum of few terms about the same velocities is, of
    those that do not follow from simpler ones.
    """
    mains = [about(search, sums.supports, sums.weights) for sums in obeyed]
    best = np.full(search.has.shape[1], np.inf)
    for sums, main, follows in zip(obeyed, mains, implied, strict=True):
        bars = np.where(main & ~follows[:, None], sums.ratios[:, None], np.inf)
        best = np.minimum(best, bars.min(axis=0, initial=np.inf))
    return [obeyed_up_to(np.where(main, best, 0.0).max(axis=1)) for main in mains]


def _implied(search: Search, obeyed: list[Sums]) -> list[Bool[np.ndarray, " _"]]:
    """Which sums follow from simpler ones that give their velocities by the state, as px' = vx.

    Velocities as these give them obey such a sum no worse than the measured ones do. It may be
    obeyed better than what it follows from, as vx py' = vy px' is where the errors of both
    velocities are alike: that is nothing to hold against px' = vx.
    """
    laws = _laws(search, obeyed)
    motion = search.motion.copy()
    for j, (_, _, law) in laws.items():
        motion[:, j] = search.features @ law
    left = np.zeros_like(search.values)
    for j in range(motion.shape[1]):
        left += search.features @ search.terms[:, :, j].T * motion[:, j, None]
    left /= search.size
    left = left.T @ left / len(left)
    implied = []
    for supports, weights, ratios in obeyed:
        degree = search.degree[supports].sum(axis=1)
        given = np.zeros((len(supports), search.has.shape[1]), dtype=bool)
        for j, (size, of_law, _) in laws.items():
            given[:, j] = (size < supports.shape[1]) | (
                (size == supports.shape[1]) & (of_law < degree)
            )
        stated = ~np.any(about(search, supports, weights) & ~given, axis=1)
        most = np.maximum(ratios, EXACT) ** 2 * mean_square(search.noise, supports, weights)
        implied.append(stated & (mean_square(left, supports, weights) <= most))
    return implied


def _laws(
    search: Search, obeyed: list[Sums]
) -> dict[int, tuple[int, int, Float[np.ndarray, " k"]]]:
    """Of each velocity that a sum gives by the state: terms, degree, weights of φ in the best."""
    laws: dict[int, tuple[int, int, np.ndarray]] = {}
    plain = (search.has.sum(axis=1) == 1) & (search.degree == 1)  # a velocity by itself
    for supports, weights, ratios in obeyed:
        single = plain[supports].sum(axis=1) * (search.moving[supports].sum(axis=1) == 1)
        for i in sorted(np.flatnonzero(single), key=ratios.__getitem__):
            support = supports[i]
            row = np.einsum("t,tkq->kq", weights[i] / search.size[support], search.terms[support])
            j = int(np.argmax(row[0, :-1] != 0))
            if j not in laws:
                degree = int(search.degree[support].sum())
                laws[j] = len(support), degree, -row[:, -1] / row[0, j]
    return laws


def _supports(
    active: Int[np.ndarray, " a"], size: int, smaller: Int[np.ndarray, "_ _s"]
) -> Int[np.ndarray, "S s"]:
    """All supports of a size, or extensions of the best smaller ones where that is too many."""
    count = 1
    for i in range(size):
        count = count * (len(active) - i) // (i + 1)
    if count <= _MOST:
        return np.array(list(combinations(active, size)), dtype=np.int32).reshape(-1, size)
    longer = np.concatenate(
        [np.repeat(smaller, len(active), axis=0), np.tile(active, len(smaller))[:, None]], axis=1
    )
    longer = np.sort(longer, axis=1)
    return np.unique(longer[np.all(np.diff(longer, axis=1) > 0, axis=1)], axis=0).astype(np.int32)

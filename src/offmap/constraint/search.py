"""Best-subset search: which few terms of a library add up to nothing but noise."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import t as t_distribution

_BLOCK = 40_000  # supports examined at once
_MOST = 800_000  # supports of one size; beyond, only the best smaller ones are extended
_EXTENDED = 200
_SHARE = 1e-3  # a term that contributes less than this share of the largest is not one
_ROUND_OFF = 1e-14
_ALIKE = 1.15  # residuals of the same kind of sum up to this multiple of the best are alike
_ALIKE_HELD_OUT = 1.05  # and errors on held-out parts up to this one
_PAIR = 2  # products in a turned term
_AS_GOOD = 2.0  # an equation with a residual up to this multiple of the best one's is as good
_EXACT = 0.3  # and so are all with a residual below this share of the noise expected
_TELLING = 0.7  # a sum says something if it is below this share of its entries, noise included
_CLEAR = 1 / 3  # a product with more noise than this share of its size obeys anything
_PARTS = 3  # held-out parts, at least, that can tell what is clear from what is chance
_LONGEST = 6  # terms of an equation that was found short and grew
_GAIN = 0.95  # a further term must leave at most this share of the held-out residual
_CHANCE = 0.01  # and have no more than this chance of it where none of all those tried is of use
_NEEDED = 3.0  # standard errors by which a term must help to stay


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


class Sums(NamedTuple):
    """Sums of equally many terms that the noise explains."""

    supports: Int[np.ndarray, "S s"]
    weights: Float[np.ndarray, "S s"]
    """Of the terms at unit size."""
    ratios: Float[np.ndarray, " S"]
    """Root mean square of each sum, in units of what noise in ẋ gives it."""


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
        mixed, degree = _mixed(search, sums.supports), search.degree[sums.supports].sum(axis=1)
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
    level = _near_best(sums.ratios, kind, _ALIKE)
    if len(search.held):
        some = np.flatnonzero(level)
        errors = _held_out(search, sums.supports[some]).mean(axis=1)
        errors = np.sqrt(np.maximum(errors, 0.0))  # exact sums leave round-off of either sign
        level[some] = _near_best(errors, kind[some], _ALIKE_HELD_OUT)
    return level


def _near_best(
    errors: Float[np.ndarray, " S"], kind: Int[np.ndarray, " S"], most: float
) -> Bool[np.ndarray, " S"]:
    """Which errors are at most this multiple of the least of their kind."""
    best = np.full(kind.max() + 1, np.inf)
    np.minimum.at(best, kind, errors)
    return errors <= np.maximum(most * best, _EXACT)[kind]


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


def as_good_as(ratio: float) -> float:
    """The largest residual of a sum that is as well obeyed as one with the residual `ratio`."""
    return max(_ALIKE * ratio, _EXACT)


def obeyed_up_to(best: Float[np.ndarray, "*S"]) -> Float[np.ndarray, "*S"]:
    """The largest residual that counts as obeyed where the best sum has this one."""
    return np.maximum(_AS_GOOD * best, _EXACT)


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


def about(
    search: Search, supports: Int[np.ndarray, "S s"], weights: Float[np.ndarray, "S s"]
) -> Bool[np.ndarray, "S n"]:
    """The velocities that sums are about: those in their large terms."""
    weight = np.abs(weights) * search.moving[supports]
    large = weight >= 0.5 * weight.max(axis=1, keepdims=True, initial=0.0)
    return np.any(search.has[supports] & large[:, :, None], axis=1)


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
        most = np.maximum(ratios, _EXACT) ** 2 * _mean_square(search.noise, supports, weights)
        implied.append(stated & (_mean_square(left, supports, weights) <= most))
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


def _mean_square(
    products: Float[np.ndarray, "t t"],
    supports: Int[np.ndarray, "S s"],
    weights: Float[np.ndarray, "S s"],
) -> Float[np.ndarray, " S"]:
    """wᵀ products w of each sum."""
    some = products[supports[:, :, None], supports[:, None, :]]
    return np.einsum("si,sij,sj->s", weights, some, weights)


def telling(
    search: Search, supports: Int[np.ndarray, "S s"], weights: Float[np.ndarray, "S s"]
) -> Bool[np.ndarray, " S"]:
    """Which sums are much smaller than their entries G_j ẋ_j: there is something to be obeyed.

    A multiple of one velocity, where all that was measured of it is noise, is as small as noise.
    """
    apart = _mean_square(search.apart, supports, weights)
    return _mean_square(search.gram, supports, weights) < _TELLING**2 * apart


def _mixed(search: Search, supports: Int[np.ndarray, "S s"]) -> Bool[np.ndarray, " S"]:
    """Which sums see one component of ẋ from two frames, as the law of one robot seldom does."""
    frames = search.frames[supports]
    first = np.where(frames == 0, np.inf, frames).min(axis=1)
    return np.any((first < np.inf) & (frames.max(axis=1) > first), axis=1)


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


def grown(search: Search, candidate: Candidate, known: list[Candidate]) -> Candidate:
    """The candidate with every further term that clearly lowers its residual on held-out data.

    A robot nearly obeys its textbook; what it does instead takes a few more terms than a search
    over all sums can try. A term that is of no more use beside a new one is dropped. What is a
    constraint by itself is no term of another. Data of too few parts leave it as it is.
    """
    if len(search.held) < _PARTS:
        return candidate
    active = search.active
    taken = [one.support[0] for one in known if len(one.support) == 1]
    active = np.setdiff1d(active, np.array(taken, dtype=int))
    for _ in range(_LONGEST):
        if candidate.ratio <= _EXACT or len(candidate.support) == _LONGEST:
            break
        longer = _longer(search, candidate, active)
        if longer is None:
            break
        candidate = _pruned(search, candidate, longer)
    return candidate


def _longer(
    search: Search, candidate: Candidate, active: Int[np.ndarray, " a"]
) -> Int[np.ndarray, " s"] | None:
    """The best support of one term more, if it is clearly better.

    Terms that leave the law the same at every state, seen from the same frame, are tried first:
    they are few, so that less speaks for chance. Others must be surer still.
    """
    more = np.setdiff1d(active, candidate.support)
    longer = np.concatenate([np.tile(candidate.support, (len(more), 1)), more[:, None]], axis=1)
    same = (search.frames[more].max(axis=1) > 1) | ~np.any(search.terms[more][:, 1:], axis=(1, 2))
    same &= ~_mixed(search, longer)
    for pool, chance in ((longer[same], _CHANCE), (longer[~same], _CHANCE / 10)):
        if not len(pool):
            continue
        certain = float(t_distribution.isf(chance / len(pool), len(search.held) - 1))
        better, errors = _clearly_better(search, pool, candidate.support[None], certain)
        if better.any():
            return pool[np.argmin(np.where(better, errors, np.inf))]
    return None


def _pruned(search: Search, candidate: Candidate, support: Int[np.ndarray, " s"]) -> Candidate:
    """The candidate on those terms of a support that held-out data clearly ask for."""
    while len(support) > 1:
        shorter = np.stack([np.delete(support, i) for i in range(len(support))])
        shorter = shorter[np.any(search.moving[shorter], axis=1)]
        needed, _ = _clearly_better(search, support[None], shorter, _NEEDED)
        if needed.all():
            break
        _, errors = _clearly_better(search, shorter, support[None], _NEEDED)
        support = shorter[np.argmin(np.where(needed, np.inf, errors))]
    ratio, weights = least_ratio(search.gram, search.noise, support[None])
    return replace(candidate, support=support, weights=weights[0], ratio=float(ratio[0]))


def _clearly_better(
    search: Search,
    supports: Int[np.ndarray, "S s"],
    others: Int[np.ndarray, "O o"],
    certain: float,
) -> tuple[Bool[np.ndarray, " P"], Float[np.ndarray, " S"]]:
    """Whether each support is clearly better on held-out data than each other, and its error.

    That is by `certain` standard errors over the held-out parts. Either there is one support and
    several others, or several supports and one other.
    """
    errors, against = _held_out(search, supports), _held_out(search, others)
    gain = against - errors
    doubt = gain.std(axis=1, ddof=1) / np.sqrt(gain.shape[1])
    enough = errors.mean(axis=1) < _GAIN**2 * against.mean(axis=1)
    return enough & (gain.mean(axis=1) > certain * doubt), errors.mean(axis=1)


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


def _held_out(search: Search, supports: Int[np.ndarray, "S s"]) -> Float[np.ndarray, "S f"]:
    """Squared ratio on each held-out part, with the weights that the rest asks for."""
    noise = search.noise[supports[:, :, None], supports[:, None, :]]
    errors = []
    for own, others in zip(search.held, search.rest, strict=True):
        _, w = least_ratio(others, search.noise, supports)
        gram = own[supports[:, :, None], supports[:, None, :]]
        expected = np.einsum("si,sij,sj->s", w, noise, w)
        errors.append(np.einsum("si,sij,sj->s", w, gram, w) / np.maximum(expected, 1e-300))
    return np.stack(errors, axis=1)


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

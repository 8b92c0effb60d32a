"""Laws with products of two states, where simpler ones leave more open than controls can move.

A quaternion turns by its products with the body's rates; thrust acts along an axis of the body,
whose direction is quadratic in the quaternion. Two kinds are sought: a velocity that is a sum of
products, ẋ_j = Σ w φ_a φ_b, and two velocities with products for coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from offmap.constraint.dictionary import (
    MAX_TERMS,
    USUAL,
    ShortLaws,
    Standard,
    depends_on_control,
    held_out,
    is_another,
    normals,
)
from offmap.constraint.library import Library
from offmap.constraint.search import (
    Candidate,
    Search,
    as_good_as,
    least_ratio,
    obeyed_up_to,
    search_problem,
    telling,
)
from offmap.constraint.ties import one_size, tie_width
from offmap.constraint.weights import DictionaryRow, finished, polished, row_of

_TERMS = 4  # most products that a velocity is a sum of
_BEAM = 200  # sums of each size that are extended
_ANY = 150  # functions up to which a velocity may be a sum of any, not only of what f depends on
_OPEN = 0.5  # share of a velocity that known laws must leave to have another one about it
_KNOWN = 0.95  # cosine to what is known of two velocities, beyond which there is no more to say
_SUM_OF_OTHERS = 0.01  # a function that others add up to within this share is none of its own
_COLUMNS = 4  # samples, at least, for each term of a sum that all terms of a kind are tried in
_EXTRAPOLATES = 1.5  # residual at the held-out edge, in units of the one inside


@dataclass(frozen=True)
class _Motions:
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


class _Law(NamedTuple):
    """An accepted sum."""

    parts: list[Float[np.ndarray, "k q"]]
    """What it is a sum of, weights within each part being fixed."""
    row: DictionaryRow


def discover_products(
    library: Library,
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    noise: Float[np.ndarray, " n"],
    short: ShortLaws,
    depends: Bool[np.ndarray, "n n"],
    *,
    groups: Int[np.ndarray, " N"] | None = None,
    standard: Standard = USUAL,
) -> tuple[Library, list[DictionaryRow]]:
    """The rows found so far and those that take products of two functions; and the library of all.

    Args:
        library: the functions of the known rows.
        features: their values at the N samples.
        xdot: measured derivatives.
        u: controls.
        noise: standard deviation of the noise in each component of ẋ.
        short: what was found without products; they have nothing to add about velocities that some
            short sum is obeyed about.
        depends: which states each component of ẋ depends on.
        groups: samples whose errors may be alike, such as those of one trajectory; None: none are.
        standard: what counts as obeyed.
    """
    whole = _with_products(library)
    first, second = np.array(whole.pairs, dtype=int).reshape(-1, 2).T
    held, groups = held_out(features, groups)
    features = np.concatenate([features, features[:, first] * features[:, second]], axis=1)
    motions = _Motions(
        whole, features, xdot, u, noise, held, groups, depends, short.spoken_of, standard
    )
    room = ((0, len(whole.pairs)), (0, 0))
    known = [
        replace(r, weights=np.pad(r.weights, room), standard_errors=np.pad(r.standard_errors, room))
        for r in short.rows
    ]
    laws: list[_Law] = []
    for sought in (_rates, _between_two):
        for parts in sought(motions, [*known, *(law.row for law in laws)]):
            row = _accepted(motions, [*known, *(law.row for law in laws)], parts)
            laws += [] if row is None else [_Law(parts, row)]
    return _without_unused(whole, [*known, *_with_common_weights(laws, motions.count)])


def _with_products(library: Library) -> Library:
    """All products of two: of states, and of sines and cosines where it is known of what."""
    single = len(library.plain) + (2 * len(library.trigonometric) if library.angles else 0)
    pairs = combinations_with_replacement(range(1, 1 + single), 2)
    return replace(library, pairs=tuple(pairs))


def _singles(library: Library) -> int:
    """Functions that are no products; they come first."""
    return len(library.labels) - len(library.pairs)


def _functions(motions: _Motions, states: Bool[np.ndarray, " n"]) -> list[int]:
    """Functions of some states alone; sines only where angles are known."""
    library, single = motions.library, _singles(motions.library)
    offered = set(range(single if library.angles else 1 + len(library.plain)))
    offered |= set(range(single, len(library.labels)))
    allowed = frozenset(np.flatnonzero(states).tolist())
    return [k for k, used in enumerate(library.states) if k in offered and used <= allowed]


def _rates(motions: _Motions, rows: list[DictionaryRow]) -> list[list[np.ndarray]]:
    """Velocities that are sums of few functions, those of the fewest terms first."""
    laws = []
    for j in _left_open(motions, rows):
        functions = _functions(motions, np.ones_like(motions.depends[j]))
        if len(functions) > _ANY:
            functions = _functions(motions, motions.depends[j])
        terms = [motions.term(0, j), *(motions.term(k, -1) for k in functions)]
        search = motions.search(terms)
        support, ratio = _shortest(search, motions.count)
        if ratio <= motions.standard.tolerance and _holds(motions, search, support):
            laws.append((len(support), one_size(search, support, motions.groups)))
    return [law for _, law in sorted(laws, key=lambda law: law[0])]


def _shortest(search: Search, count: int) -> tuple[Int[np.ndarray, " s"], float]:
    """The sum of the first term and a few others that Schwarz's criterion prefers."""
    functions = np.arange(1, search.terms.shape[0])
    best: tuple[float, np.ndarray, float] = (np.inf, np.zeros(1, dtype=int), np.inf)
    beam = np.zeros((1, 1), dtype=int)
    # Each term could have been any of them: what chance offers grows with their number.
    price = np.log(count) + 2 * np.log(max(len(functions), 1))
    for size in range(1, min(_TERMS, len(functions)) + 1):
        longer = np.concatenate(
            [np.repeat(beam, len(functions), axis=0), np.tile(functions, len(beam))[:, None]],
            axis=1,
        )
        longer = np.sort(longer, axis=1)
        longer = np.unique(longer[np.all(np.diff(longer, axis=1) > 0, axis=1)], axis=0)
        ratios, _ = least_ratio(search.gram, search.noise, longer)
        order = np.argsort(ratios)[:_BEAM]
        beam, ratio = longer[order], float(ratios[order[0]])
        score = 2 * count * np.log(max(ratio, as_good_as(0.0))) + price * size
        best = min(best, (score, beam[0], ratio), key=lambda found: found[0])
    return best[1], best[2]


def _between_two(motions: _Motions, rows: list[DictionaryRow]) -> list[list[np.ndarray]]:
    """Laws of two velocities, those that say most at every state first.

    All products of what the two depend on are tried in one sum, and what is not needed is dropped.
    """
    laws, single = [], _singles(motions.library)
    for i, j in combinations(_left_open(motions, rows), 2):
        if _known_of(motions, rows, [i, j])[0] > _KNOWN:
            continue
        states = motions.depends[i] | motions.depends[j]
        functions = _functions(motions, states)
        related = _functions(motions, states | _turn_with(motions, rows, states))
        kinds = [[k for k in some if k >= single] for some in (functions, related)]
        kinds.append(_of_their_own(motions, functions))
        found = [_of_one_kind(motions, (i, j), kind) for kind in kinds]
        if any(law is not None for law in found):
            _, law = min((law for law in found if law is not None), key=lambda law: law[0])
            laws.append((_says(motions, law), law))
    return [law for _, law in sorted(laws, key=lambda law: -law[0])]


def _turn_with(
    motions: _Motions, rows: list[DictionaryRow], states: Bool[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """States that the rates of some states are made of.

    A part of a unit quaternion follows from the others, and may have been dropped for that.
    """
    made_of = np.zeros_like(states)
    for row in rows:
        about = np.flatnonzero(np.any(row.weights[:, :-1] != 0, axis=0))
        if len(about) == 1 and states[about[0]]:
            for k in np.flatnonzero(np.any(row.weights != 0, axis=1)):
                made_of[list(motions.library.states[k])] = True
    return made_of


def _of_one_kind(
    motions: _Motions, velocities: tuple[int, int], functions: list[int]
) -> tuple[float, list[np.ndarray]] | None:
    """A law between two velocities, if there is one with these functions; lower scores are better.

    Where a state hardly changes, it times another one is much like that one alone. The law of
    fewest terms and of fewest weights is taken, by Schwarz's criterion.
    """
    terms = [motions.term(k, entry) for entry in (*velocities, -1) for k in functions]
    if not terms or len(terms) * _COLUMNS > len(motions.xdot):
        return None
    search, count = motions.search(terms), motions.count
    least, _ = least_ratio(search.gram, search.noise, np.arange(len(terms))[None])
    if least[0] > motions.standard.tolerance:
        return None
    support, ratio = _needed(search, count)
    moving = np.any(search.terms[support][:, :, list(velocities)] != 0, axis=(0, 1))
    if not moving.all() or not _holds(motions, search, support):
        return None
    law = one_size(search, support, motions.groups)
    weights = len(support) + len(law)
    return 2 * count * np.log(max(ratio, as_good_as(0.0))) + weights * np.log(count), law


def _needed(search: Search, count: int) -> tuple[Int[np.ndarray, " s"], float]:
    """The terms of a sum of all that Schwarz's criterion wants to keep, dropped one by one."""
    support = np.arange(search.terms.shape[0])
    ratios, weights = least_ratio(search.gram, search.noise, support[None])
    ratio, w = float(ratios[0]), weights[0]
    most = max(ratio, as_good_as(0.0)) ** 2
    while len(support) > 1:
        here = np.ix_(support, support)
        largest = int(np.argmax(np.abs(w)))
        free = np.delete(np.arange(len(support)), largest)
        expected = float(w @ search.noise[here] @ w)
        curvature = (search.gram[here] - ratio**2 * search.noise[here])[np.ix_(free, free)]
        inverse = np.linalg.pinv(curvature, hermitian=True)
        # What the sum grows by, to second order, if a weight is 0 and the others adapt.
        price = w[free] ** 2 / np.maximum(np.diag(inverse), 1e-300) / expected
        shorter = np.delete(support, free[int(np.argmin(price))])
        ratios, weights = least_ratio(search.gram, search.noise, shorter[None])
        dropped = search.terms.shape[0] - len(shorter)
        if float(ratios[0]) ** 2 > most * (1 + dropped * np.log(count) / count):
            break
        support, ratio, w = shorter, float(ratios[0]), weights[0]
    return support, ratio


def _of_their_own(motions: _Motions, functions: list[int]) -> list[int]:
    """Functions without sums of others: squares of a unit quaternion add up to 1."""
    own = list(functions)
    for k in functions:  # the simplest first
        others = motions.features[:, [other for other in own if other != k]]
        if not others.shape[1]:
            continue
        value = motions.features[:, k]
        left = value - others @ np.linalg.lstsq(others, value, rcond=None)[0]
        if np.linalg.norm(left) <= _SUM_OF_OTHERS * np.linalg.norm(value):
            own.remove(k)
    return own


def _holds(motions: _Motions, search: Search, support: Int[np.ndarray, " s"]) -> bool:
    """Whether a sum says something new, and held-out samples obey it as others do.

    Without products it is new only if it is longer than those that were tried before.
    """
    _, weights = least_ratio(search.gram, search.noise, support[None])
    products = np.any(search.terms[support][:, _singles(motions.library) :])
    if not products and len(support) <= MAX_TERMS:
        return False
    if not telling(search, support[None], weights)[0]:
        return False
    values, all_of_it = search.values[:, support], np.arange(len(support))[None]
    noise = search.noise[np.ix_(support, support)]
    for part in motions.held:
        inside = values[~part].T @ values[~part] / np.sum(~part)
        ratios, weights = least_ratio(inside, noise, all_of_it)
        expected = max(float(weights[0] @ noise @ weights[0]), 1e-300)
        outside = np.sqrt(np.mean((values[part] @ weights[0]) ** 2) / expected)
        if outside > _EXTRAPOLATES * max(float(ratios[0]), as_good_as(0.0)):
            return False
    return True


def _accepted(
    motions: _Motions, rows: list[DictionaryRow], law: list[np.ndarray]
) -> DictionaryRow | None:
    """The law as a row, if it is another one than those known and no control bends it."""
    search = motions.search([*(row.weights for row in rows), *law])
    accepted = [_candidate(search, np.array([i])) for i in range(len(rows))]
    candidate = polished(search, _candidate(search, len(rows) + np.arange(len(law))))
    mentioned = np.any(np.stack(law) != 0, axis=(0, 2))
    mentioned[: _singles(motions.library)] = True
    functions = motions.features[:, mentioned]
    controls = motions.u.shape[1]
    if not is_another(search, accepted, candidate, motions.features, motions.xdot, controls):
        return None
    if depends_on_control(
        search, candidate, motions.features, functions, motions.u, motions.standard
    ):
        return None
    return finished(search, candidate, motions.groups)


def _with_common_weights(laws: list[_Law], count: int) -> list[DictionaryRow]:
    """The rows, with weights of different rows that data cannot tell apart made equal.

    Gravity is the same along both axes of a body. As for weights of one row, by Schwarz's
    criterion.
    """
    rows = [law.row for law in laws]
    free = []
    for i, law in enumerate(laws):
        for part in law.parts:
            largest = np.unravel_index(np.argmax(np.abs(part)), part.shape)
            error = law.row.standard_errors[largest]
            free += [(i, part != 0, abs(law.row.weights[largest]), error)] if error > 0 else []
    size, error = (np.array([one[k] for one in free]) for k in (2, 3))
    for i, part, own, own_error in free:
        alike = np.abs(size - own) <= tie_width(count) * np.hypot(error, own_error)
        common = float(np.average(size[alike], weights=error[alike] ** -2.0))
        weights = np.where(part, rows[i].weights * common / own, rows[i].weights)
        rows[i] = replace(rows[i], weights=weights)
    return rows


def _candidate(search: Search, support: Int[np.ndarray, " s"]) -> Candidate:
    ratio, weights = least_ratio(search.gram, search.noise, support[None])
    return Candidate(support, weights[0], float(ratio[0]), float(obeyed_up_to(ratio)[0]))


def _known_of(
    motions: _Motions, rows: list[DictionaryRow], velocities: list[int]
) -> Float[np.ndarray, " v"]:
    """Cosines, in falling order, between some velocities and what the rows speak about."""
    shape = (len(rows), motions.features.shape[1], motions.xdot.shape[1] + 1)
    weights = np.array([row.weights for row in rows]).reshape(shape)
    G = normals(weights, motions.features, motions.xdot)
    part = (np.linalg.pinv(G) @ G)[:, velocities][:, :, velocities]
    return np.median(np.sqrt(np.clip(np.linalg.eigvalsh(part)[:, ::-1], 0, 1)), axis=0)


def _left_open(motions: _Motions, rows: list[DictionaryRow]) -> list[int]:
    """Velocities that the rows do not already tell, and no short sum is obeyed about."""
    moving = np.flatnonzero(np.any(motions.xdot != 0, axis=0) & ~motions.spoken_of).tolist()
    return [j for j in moving if _known_of(motions, rows, [j])[0] ** 2 < 1 - _OPEN**2]


def _says(motions: _Motions, law: list[np.ndarray]) -> float:
    """How much of its usual size G keeps where it is small: at 0 a law says nothing."""
    search = motions.search(law)
    row = row_of(search, _candidate(search, np.arange(len(law))))
    length = np.linalg.norm(normals(row[None], motions.features, motions.xdot)[:, 0], axis=1)
    return float(np.quantile(length, 0.1) / np.sqrt(np.mean(length**2)))


def _without_unused(
    library: Library, rows: list[DictionaryRow]
) -> tuple[Library, list[DictionaryRow]]:
    """The same rows over the products that they have."""
    single = _singles(library)
    used = np.any([np.any(row.weights != 0, axis=1) for row in rows], axis=0)
    used = np.flatnonzero(used | (np.arange(len(library.labels)) < single))
    pairs = tuple(library.pairs[k - single] for k in used[single:])
    smaller = replace(library, pairs=pairs)
    return smaller, [
        DictionaryRow(row.weights[used], row.standard_errors[used], row.residual) for row in rows
    ]

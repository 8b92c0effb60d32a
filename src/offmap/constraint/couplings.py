"""Laws between two velocities, whose coefficients are products of functions of the state."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from offmap.constraint.dictionary import normals
from offmap.constraint.motions import (
    Motions,
    candidate_of,
    functions_of,
    holds,
    known_of,
    left_open,
    singles,
)
from offmap.constraint.regression import Search, as_good_as, least_ratio
from offmap.constraint.ties import one_size
from offmap.constraint.weights import DictionaryRow, row_of

_KNOWN = 0.95  # cosine to what is known of two velocities, beyond which there is no more to say
_SUM_OF_OTHERS = 0.01  # a function that others add up to within this share is none of its own
_PAIR = 2
_COLUMNS = 4  # samples, at least, for each term of a sum that all terms of a kind are tried in


class _Kind(NamedTuple):
    """Functions of the state that a law may have: as factors of velocities, and by themselves."""

    masses: list[int]
    forces: list[int]


def between_two(motions: Motions, rows: list[DictionaryRow]) -> list[list[np.ndarray]]:
    """Laws of two velocities, those that say most at every state first.

    All products of what the two depend on are tried in one sum, and what is not needed is dropped.
    """
    laws = []
    for i, j in combinations(left_open(motions, rows), 2):
        if known_of(motions, rows, [i, j])[0] > _KNOWN:
            continue
        states = motions.depends[i] | motions.depends[j]
        found = [_of_one_kind(motions, (i, j), kind) for kind in _kinds(motions, rows, states)]
        if any(law is not None for law in found):
            _, law = min((law for law in found if law is not None), key=lambda law: law[0])
            laws.append((_says(motions, law), law))
    return [law for _, law in sorted(laws, key=lambda law: -law[0])]


def _kinds(
    motions: Motions, rows: list[DictionaryRow], states: Bool[np.ndarray, " n"]
) -> list[_Kind]:
    """Functions that laws which depend on some states may be made of."""
    if motions.library.thirds:
        return [_machine(motions, rows, states)]
    single, functions = singles(motions.library), functions_of(motions, states)
    related = functions_of(motions, states | _turn_with(motions, rows, states))
    kinds = [[k for k in some if k >= single] for some in (functions, related)]
    kinds.append(_of_their_own(motions, functions))
    return [_Kind(kind, kind) for kind in kinds]


def _machine(motions: Motions, rows: list[DictionaryRow], states: Bool[np.ndarray, " n"]) -> _Kind:
    """The form of Lagrange's equations: masses that depend on places, products of two speeds.

    Beside these, what depends on places alone (weight, springs), and damping.
    """
    library, single = motions.library, singles(motions.library)
    fast = _speeds(motions, rows)
    functions = functions_of(motions, states)
    factors = {k: (k,) if k < single else library.pairs[k - single] for k in functions}
    speeds = {k: sum(library.states[f] <= fast for f in factors[k]) for k in functions if k > 0}
    masses = [k for k in functions if k < single and not speeds.get(k)]
    forces = [k for k in functions if len(factors[k]) == 1 or speeds[k] == _PAIR]
    return _Kind(masses, forces)


def _speeds(motions: Motions, rows: list[DictionaryRow]) -> frozenset[int]:
    """States that rows say are the rates of others: q' = w."""
    plain, found = {1 + i: state for i, state in enumerate(motions.library.plain)}, set[int]()
    for row in rows:
        told = np.argwhere(row.weights != 0)
        if len(told) == _PAIR and told[0, 0] == 0 and told[1, 0] in plain:
            found.add(plain[int(told[1, 0])])
    return frozenset(found)


def _turn_with(
    motions: Motions, rows: list[DictionaryRow], states: Bool[np.ndarray, " n"]
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
    motions: Motions, velocities: tuple[int, int], kind: _Kind
) -> tuple[float, list[np.ndarray]] | None:
    """A law between two velocities, if there is one with these functions; lower scores are better.

    Where a state hardly changes, it times another one is much like that one alone. The law of
    fewest terms and of fewest weights is taken, by Schwarz's criterion.
    """
    terms = [motions.term(k, entry) for entry in velocities for k in kind.masses]
    terms += [motions.term(k, -1) for k in kind.forces]
    if not terms or len(terms) * _COLUMNS > len(motions.xdot):
        return None
    search, count = motions.search(terms), motions.count
    least, _ = least_ratio(search.gram, search.noise, np.arange(len(terms))[None])
    if least[0] > motions.standard.tolerance:
        return None
    support, ratio = _needed(search, count)
    moving = np.any(search.terms[support][:, :, list(velocities)] != 0, axis=(0, 1))
    if not moving.all() or not holds(motions, search, support):
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
        price = w[free] ** 2 / np.maximum(np.diag(inverse) * expected, 1e-300)
        shorter = np.delete(support, free[int(np.argmin(price))])
        ratios, weights = least_ratio(search.gram, search.noise, shorter[None])
        dropped = search.terms.shape[0] - len(shorter)
        if float(ratios[0]) ** 2 > most * (1 + dropped * np.log(count) / count):
            break
        support, ratio, w = shorter, float(ratios[0]), weights[0]
    return support, ratio


def _of_their_own(motions: Motions, functions: list[int]) -> list[int]:
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


def _says(motions: Motions, law: list[np.ndarray]) -> float:
    """How much of its usual size G keeps where it is small: at 0 a law says nothing."""
    search = motions.search(law)
    row = row_of(search, candidate_of(search, np.arange(len(law))))
    length = np.linalg.norm(normals(row[None], motions.features, motions.xdot)[:, 0], axis=1)
    return float(np.quantile(length, 0.1) / np.sqrt(np.mean(length**2)))

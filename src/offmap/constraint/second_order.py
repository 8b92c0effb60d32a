"""Laws with products of states, where simpler ones leave more open than controls can move.

A quaternion turns by its products with the body's rates; thrust acts along an axis of the body,
whose direction is quadratic in the quaternion. Two kinds are sought: a velocity that is a sum of
products, ẋ_j = Σ w φ_a φ_b, and two velocities with products for coefficients. Where that is not
enough, products of three are offered too: what turns is flung outwards, by r ω² or sin(q) ω².
"""

from dataclasses import replace
from itertools import chain, combinations_with_replacement
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from offmap.constraint.couplings import between_two
from offmap.constraint.dictionary import ShortLaws, held_out, is_another
from offmap.constraint.library import Library
from offmap.constraint.motions import Motions, candidate_of, singles
from offmap.constraint.rates import rates
from offmap.constraint.steerable import USUAL, Standard, depends_on_control
from offmap.constraint.ties import tie_width
from offmap.constraint.weights import DictionaryRow, finished, polished

_PAIRS = 2
_MOST = 400  # functions of the state, products of three among them


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
    order: int = 2,
) -> tuple[Library, list[DictionaryRow]]:
    """The rows found so far and those that take products of functions; and the library of all.

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
        order: the most functions in a product; nothing is sought if that makes too many products.
    """
    whole = with_products(library, order)
    if order > _PAIRS and len(whole.labels) > _MOST:
        return library, short.rows
    held, groups = held_out(features, groups)
    further = whole.pairs[len(library.pairs) :]
    room = ((0, len(further)), (0, 0))
    products = [np.prod(features[:, list(factors)], axis=1) for factors in further]
    features = np.column_stack([features, *products])
    motions = Motions(
        whole, features, xdot, u, noise, held, groups, depends, short.spoken_of, standard
    )
    known = [
        replace(r, weights=np.pad(r.weights, room), standard_errors=np.pad(r.standard_errors, room))
        for r in short.rows
    ]
    laws: list[_Law] = []
    for sought in (rates, between_two):
        for parts in sought(motions, [*known, *(law.row for law in laws)]):
            row = _accepted(motions, [*known, *(law.row for law in laws)], parts)
            laws += [] if row is None else [_Law(parts, row)]
    return _without_unused(whole, [*known, *_with_common_weights(laws, motions.count)])


def with_products(library: Library, order: int) -> Library:
    """All products of so many: of states, and of sines and cosines where it is known of what."""
    plain = 1 + len(library.plain)
    single = range(1, singles(library) if library.angles else plain)
    each = (combinations_with_replacement(single, n) for n in range(_PAIRS, order + 1))
    further = (factors for factors in chain.from_iterable(each) if factors not in library.pairs)
    return replace(library, pairs=(*library.pairs, *further))


def _accepted(
    motions: Motions, rows: list[DictionaryRow], law: list[np.ndarray]
) -> DictionaryRow | None:
    """The law as a row, if it is another one than those known and no control bends it."""
    search = motions.search([*(row.weights for row in rows), *law])
    accepted = [candidate_of(search, np.array([i])) for i in range(len(rows))]
    candidate = polished(search, candidate_of(search, len(rows) + np.arange(len(law))))
    mentioned = np.any(np.stack(law) != 0, axis=(0, 2))
    mentioned[: singles(motions.library)] = True
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


def _without_unused(
    library: Library, rows: list[DictionaryRow]
) -> tuple[Library, list[DictionaryRow]]:
    """The same rows over the products that they have."""
    single = singles(library)
    used = np.any([np.any(row.weights != 0, axis=1) for row in rows], axis=0)
    used = np.flatnonzero(used | (np.arange(len(library.labels)) < single))
    pairs = tuple(library.pairs[k - single] for k in used[single:])
    smaller = replace(library, pairs=pairs)
    return smaller, [
        DictionaryRow(row.weights[used], row.standard_errors[used], row.residual) for row in rows
    ]

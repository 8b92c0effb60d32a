"""Constraints as short equations, found by exhaustive search over a small library of terms.

Every constraint is sought as Σ w_t φ_t(x) [ẋ; 1] = 0 with at most three terms, and a few more where
those clearly help, straight from measured pairs (x, ẋ): no f̂, no null space per state, no gauge, no
sign.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from offmap.constraint.equations import Equation, sentence
from offmap.constraint.growth import grown
from offmap.constraint.library import Library
from offmap.constraint.regression import (
    Candidate,
    Search,
    about,
    as_good_as,
    edges,
    search_problem,
    worst_ratio,
)
from offmap.constraint.search import candidates
from offmap.constraint.steerable import (
    USUAL,
    Standard,
    depends_on_control,
    stands_for_control,
)
from offmap.constraint.weights import DictionaryRow, finished, polished, row_of, tied

MAX_TERMS = 3
"""Most terms in a short equation, before it grows."""
_INDEPENDENT = 0.2  # least singular value of unit rows that count as different constraints,
_EXPECTED = 0.05  # and of those that there must be, as controls are fewer than states
_TOGETHER = 2.0  # noise in x, which `noise` leaves out, adds up where equations are combined
_CONTRADICTS = 0.05  # radians between an equation and the accepted ones that it does not belong to
_SAME_LAW = 0.7  # squared cosine between two equations about the same motions
_FOLDS = 10
_BATCH = 500  # candidates examined at once,
_SAMPLES = 200  # at about so many samples


class ShortLaws(NamedTuple):
    """What the search for short equations found."""

    rows: list[DictionaryRow]
    spoken_of: Bool[np.ndarray, " n"]
    """Velocities that some sum was obeyed about, whether it was accepted or not."""


def discover(
    library: Library,
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    noise: Float[np.ndarray, " n"],
    *,
    groups: Int[np.ndarray, " N"] | None = None,
    max_terms: int = MAX_TERMS,
    standard: Standard = USUAL,
) -> ShortLaws:
    """Short equations that every sample obeys, simplest first, none implied by the others.

    A sum of terms is accepted if its residual is what the noise in ẋ explains (within a tolerance),
    if the residual does not depend on the control (an F-test: what a control can change is no
    constraint), if it raises the rank of the rows found so far, if every combination
    of the rows is obeyed as they are, and if nothing as short and as well obeyed contradicts it.
    Where there are more than controls leave room for, none may stand for a control.

    Args:
        library: the functions φ.
        features: φ at the N samples.
        xdot: measured derivatives.
        u: controls.
        noise: standard deviation of the noise in each component of ẋ.
        groups: samples whose errors may be alike, such as those of one trajectory; None: none are.
        max_terms: most terms in one equation, before it grows.
        standard: what counts as obeyed.
    """
    held, groups = held_out(features, groups)
    search = search_problem(library.terms(), features, xdot, noise, held)
    obeyed = candidates(search, max_terms, standard.tolerance)
    accepted: list[Candidate] = []
    lengths: list[int] = []

    def steerable(candidate: Candidate) -> bool:
        return depends_on_control(search, candidate, features, features, u, standard)

    for candidate in _promising(search, obeyed, accepted, features, xdot, u.shape[1]):
        for one in (grown(search, candidate, accepted), candidate):
            another = is_another(search, accepted, one, features, xdot, u.shape[1])
            if another and not steerable(one):
                accepted.append(polished(search, tied(search, one, groups)))
                lengths.append(len(candidate.support))
                break
        if len(accepted) == xdot.shape[1]:
            break
    contested = _contested(search, accepted, lengths, obeyed, features, steerable)
    acting = u.shape[1] if standard.acting is None else standard.acting
    if len(accepted) > xdot.shape[1] - acting:
        contested |= {i for i, one in enumerate(accepted) if stands_for_control(search, one, u)}
    return ShortLaws(
        [finished(search, one, groups) for i, one in enumerate(accepted) if i not in contested],
        _spoken_of(search, obeyed),
    )


def _spoken_of(search: Search, obeyed: list[Candidate]) -> Bool[np.ndarray, " n"]:
    """Velocities that a sum is about, rather than has beside others that cancel out anyway."""
    spoken = np.zeros(search.has.shape[1], dtype=bool)
    for candidate in obeyed:
        spoken |= about(search, candidate.support[None], candidate.weights[None])[0]
    return spoken


def held_out(
    features: Float[np.ndarray, "N k"], groups: Int[np.ndarray, " N"] | None
) -> tuple[Bool[np.ndarray, "f N"], Int[np.ndarray, " N"]]:
    """Which samples are held out together: the edges of the data, or some groups at a time."""
    if groups is None:
        return edges(features), np.arange(len(features))
    groups = np.unique(groups, return_inverse=True)[1]
    if groups.max() == 0:  # there is nothing to hold one trajectory against
        return np.zeros((0, len(groups)), dtype=bool), groups
    return groups % _FOLDS == np.arange(min(_FOLDS, groups.max() + 1))[:, None], groups


def is_another(
    search: Search,
    accepted: list[Candidate],
    candidate: Candidate,
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    controls: int,
) -> bool:
    """Whether a candidate raises the rank, and all combinations with those accepted are obeyed.

    Rows may come near each other as long as there are fewer than so many controls must leave: front
    and rear wheels of a car point much the same way. Beyond, what is near is the same law again.
    """
    together = [*accepted, candidate]
    rows = np.stack([row_of(search, one) for one in together])
    least = _EXPECTED if len(together) <= xdot.shape[1] - controls else _INDEPENDENT
    most = _TOGETHER * max(one.allowed for one in together)
    return _apart(rows, features, xdot) > least and worst_ratio(search, together) <= most


def _promising(
    search: Search,
    obeyed: list[Candidate],
    accepted: list[Candidate],
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
    controls: int,
) -> Iterator[Candidate]:
    """Those that are others than the accepted ones, which may become more on the way.

    The least singular value of unit rows is at most the distance of one from the span of the rest:
    that is asked first, of many at once.
    """
    scale = np.sqrt(np.mean(xdot**2, axis=0))
    for some in _batches(obeyed):
        normal = _unit_normals(search, some, features, scale)
        far, known = np.ones(len(some), dtype=bool), 0
        for i, one in enumerate(some):
            if len(accepted) > known:
                rows = _unit_normals(search, accepted, features, scale)
                span, _ = np.linalg.qr(np.swapaxes(rows, 1, 2))
                outside = normal - (normal @ span) @ np.swapaxes(span, 1, 2)
                far = np.median(np.linalg.norm(outside, axis=2), axis=0) > _EXPECTED
                known = len(accepted)
            if far[i] and is_another(search, accepted, one, features, xdot, controls):
                yield one


def _batches(candidates: list[Candidate]) -> Iterator[list[Candidate]]:
    return (candidates[i : i + _BATCH] for i in range(0, len(candidates), _BATCH))


def _unit_normals(
    search: Search,
    some: list[Candidate],
    features: Float[np.ndarray, "N k"],
    scale: Float[np.ndarray, " n"],
) -> Float[np.ndarray, "s c n"]:
    """Directions of G at some samples, velocities in units of `scale`; 0 where a law is silent."""
    weights = np.zeros((len(some), len(search.size)))
    for row, one in zip(weights, some, strict=True):
        row[one.support] = one.weights / search.size[one.support]
    used = np.flatnonzero(weights.any(axis=0))
    at = features[:: max(1, len(features) // _SAMPLES)]
    terms = np.swapaxes(search.terms[used, :, :-1], 1, 2) @ at.T * scale[:, None]
    G = np.tensordot(weights[:, used], terms, 1).transpose(2, 0, 1)
    return _unit(G)


def _unit(G: Float[np.ndarray, "s c n"]) -> Float[np.ndarray, "s c n"]:
    """Rows of length 1, or 0 where they are."""
    length = np.linalg.norm(G, axis=2, keepdims=True)
    return G / np.where(length > 0, length, 1.0)


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
    functions = np.flatnonzero(np.any(row.weights != 0, axis=1))
    used = frozenset[int]().union(*(library.states[k] for k in functions))
    return tuple(library.names[i] for i in sorted(used))


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
    raw = np.ones(search.has.shape[1])
    rows = _unit_normals(search, accepted, features, raw)
    span = np.linalg.pinv(rows) @ rows
    worst, longest = max(as_good_as(one.ratio) for one in accepted), max(lengths)
    rivals = [one for one in obeyed if one.ratio <= worst and len(one.support) <= longest]
    for some in _batches(rivals):
        normal = _unit_normals(search, some, features, raw)
        alike = np.mean((normal @ np.swapaxes(rows, 1, 2)) ** 2, axis=0)
        outside = np.mean(np.sum((normal - normal @ span) ** 2, axis=2), axis=0)
        close = (alike.max(axis=1) >= _SAME_LAW) & (np.sqrt(outside) > _CONTRADICTS)
        for i in np.flatnonzero(close):
            rival, place = some[i], int(np.argmax(alike[i]))  # of the one it would stand in for
            one = accepted[place]
            if place in found or len(rival.support) > lengths[place]:
                continue
            if rival.ratio > as_good_as(one.ratio) or np.isin(rival.support, one.support).all():
                continue  # what an equation grew from does not speak against it
            if not steerable(rival):
                found.add(place)
    return found


def normals(
    rows: Float[np.ndarray, "c k q"],
    features: Float[np.ndarray, "N k"],
    xdot: Float[np.ndarray, "N n"],
) -> Float[np.ndarray, "s c n"]:
    """G at some samples, in units of the velocities."""
    some = features[:: max(1, len(features) // _SAMPLES)]
    return np.einsum("ckj,sk->scj", rows[:, :, :-1], some) * np.sqrt(np.mean(xdot**2, axis=0))


def _apart(rows: np.ndarray, features: np.ndarray, xdot: np.ndarray) -> float:
    """How different constraints are at a typical state: the least singular value of unit rows."""
    if len(rows) > xdot.shape[1]:
        return 0.0
    smallest = np.linalg.svd(_unit(normals(rows, features, xdot)), compute_uv=False)[:, -1]
    return float(np.median(smallest))

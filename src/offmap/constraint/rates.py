"""Velocities that the state gives: sums of a few products of two functions, or of more terms."""

import numpy as np
from jaxtyping import Int

from offmap.constraint.motions import Motions, functions_of, holds, left_open, singles
from offmap.constraint.regression import Search, as_good_as, least_ratio
from offmap.constraint.ties import one_size
from offmap.constraint.weights import DictionaryRow

_TERMS = 4  # most products that a velocity is a sum of
_BEAM = 200  # sums of each size that are extended
_ANY = 150  # functions up to which a velocity may be a sum of any, not only of what f depends on


def rates(motions: Motions, rows: list[DictionaryRow]) -> list[list[np.ndarray]]:
    """Velocities that are sums of few functions, those of the fewest terms first.

    Where a velocity is no such sum, one function of the state times it may be: cos(θ) ψ' for the
    yaw of a body that pitches by θ.
    """
    laws = []
    for j in left_open(motions, rows):
        functions = functions_of(motions, np.ones_like(motions.depends[j]))
        own = functions_of(motions, motions.depends[j])
        if len(functions) > _ANY:
            functions = own
        law = _told(motions, j, [0], functions)
        if law is None and not motions.library.thirds:
            single = singles(motions.library)
            law = _told(motions, j, [k for k in own if 0 < k < single], functions)
        laws += [] if law is None else [law]
    return [law for _, law in sorted(laws, key=lambda law: law[0])]


def _told(
    motions: Motions, velocity: int, factors: list[int], functions: list[int]
) -> tuple[int, list[np.ndarray]] | None:
    """The law of one velocity times one of these factors that Schwarz's criterion likes best."""
    told = [motions.term(k, -1) for k in functions]
    found = []
    for factor in factors:
        search = motions.search([motions.term(factor, velocity), *told])
        score, support, ratio = _shortest(search, motions.count)
        if ratio <= motions.standard.tolerance and holds(motions, search, support):
            found.append((score, factor, search, support))
    if not found:
        return None
    _, _, search, support = min(found, key=lambda each: each[:2])
    return len(support), one_size(search, support, motions.groups)


def _shortest(search: Search, count: int) -> tuple[float, Int[np.ndarray, " s"], float]:
    """Score and sum of the first term and a few others that Schwarz's criterion prefers."""
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
    return best

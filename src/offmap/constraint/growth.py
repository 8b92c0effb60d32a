"""Further terms for an equation that was found short, where held-out data clearly ask for them."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import t as t_distribution

from offmap.constraint.regression import (
    EXACT,
    Candidate,
    Search,
    errors_held_out,
    least_ratio,
    mixed_frames,
)

_PARTS = 3  # held-out parts, at least, that can tell what is clear from what is chance
_LONGEST = 6  # terms of an equation that was found short and grew
_GAIN = 0.95  # a further term must leave at most this share of the held-out residual
_CHANCE = 0.01  # and have no more than this chance of it where none of all those tried is of use
_NEEDED = 3.0  # standard errors by which a term must help to stay


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
        if candidate.ratio <= EXACT or len(candidate.support) == _LONGEST:
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
    same &= ~mixed_frames(search, longer)
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
    errors, against = errors_held_out(search, supports), errors_held_out(search, others)
    gain = against - errors
    doubt = gain.std(axis=1, ddof=1) / np.sqrt(gain.shape[1])
    enough = errors.mean(axis=1) < _GAIN**2 * against.mean(axis=1)
    return enough & (gain.mean(axis=1) > certain * doubt), errors.mean(axis=1)

"""How long the columns of a tangent frame are: so that their coordinates are what is commanded.

An orthonormal frame measures a motion by the rates of all states. The axle of a tractor moves at
the speed that is commanded, but the faster its trailer swings, the faster all states together: the
coordinate would depend on the angle between the two. Measured by the tractor alone, it does not.
"""

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
from jaxtyping import Float

from offmap.calls import at_each
from offmap.tangent import TangentFrame, far_states

_DEGREE = 3  # of the polynomials in u that a coordinate may be
_ROWS = 10  # samples for each unknown; with fewer, the polynomials are lines
_GAIN = 0.9  # most of the unexplained variance that leaving out a state may leave
_SHORT = 0.2  # least length of a column, as a share of its greatest
_FLOOR = 1e-12  # unexplained shares below this leave nothing to improve


def commanded_scale(
    frame: TangentFrame,
    x: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    xdot: Float[np.ndarray, "N n"],
) -> TangentFrame:
    """The frame, measured by those states whose rates make its coordinates functions of u.

    States are left out one after the other, as long as polynomials in u explain the coordinates
    better without them and no column comes near vanishing, at any heading and well beyond the data.
    """
    basis, _ = at_each(frame, x)
    far, _ = at_each(frame, far_states(frame, x))
    squares, far_squares = np.asarray(basis) ** 2, np.asarray(far) ** 2
    a = np.asarray(at_each(frame.coordinates, x, xdot))
    n, r = squares.shape[1:]
    explained, _ = np.linalg.qr(_polynomials(u))

    def unexplained(states: list[int]) -> float:
        y = a * np.sqrt(np.sum(squares[:, states], axis=1))
        y = y - y.mean(axis=0)
        spread = np.sum(y**2, axis=0)
        left = np.sum((y - explained @ (explained.T @ y)) ** 2, axis=0)
        return float(np.mean(left / np.where(spread > 0, spread, 1.0)))

    def vanishes(states: list[int]) -> bool:
        length = np.sqrt(np.sum(far_squares[:, states], axis=1))
        return bool(np.any(length.min(axis=0) <= _SHORT * length.max(axis=0)))

    kept = list(range(n))
    share = unexplained(kept)
    while len(kept) > r and share > _FLOOR:
        fewer = [[i for i in kept if i != out] for out in kept]
        shares = {tuple(states): unexplained(states) for states in fewer if not vanishes(states)}
        best = min(shares, key=lambda states: shares[states], default=None)
        if best is None or shares[best] > _GAIN * share:
            break
        kept, share = list(best), shares[best]
    return frame if len(kept) == n else replace(frame, measured=tuple(kept))


def _polynomials(u: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N terms"]:
    """All products of up to three controls, in units of their spread."""
    spread = u.std(axis=0)
    scaled = (u - u.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    one = np.ones((len(u), 1))
    for degree in range(_DEGREE, 0, -1):
        factors = np.concatenate([one, scaled], axis=1)
        chosen = list(combinations_with_replacement(range(factors.shape[1]), degree))
        if degree == 1 or _ROWS * len(chosen) <= len(u):
            return np.prod(factors[:, np.array(chosen)], axis=2)
    return one

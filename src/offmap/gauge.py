"""Which of many equivalent tangent frames: the one whose coordinates are what is commanded.

A constraint says which motions are possible, not in what units, nor from where, to measure them. An
orthonormal frame whose origin is the slowest motion measures by all states and from rest. But

- a falling quadrotor does not rest: with gravity left out, its coordinate is thrust alone;
- the axle of a tractor moves at the speed that is commanded, while the rates of all states together
  also depend on how its trailer swings: measured by the tractor alone, the coordinate is the speed;
- where the trailer's rate depends on speed and on turn rate at once, an orthonormal basis mixes the
  two: with the motions of the tractor for columns, which the trailer follows, it does not;
- equations that hold in every attitude may all vanish in one, beyond which the direction that they
  leave open has turned about: a short sum for that direction, where there is one, tells which way.

Each is taken where it makes the coordinates easier to explain by the controls alone; a sum for the
direction also where it does not make that harder.
"""

from dataclasses import replace
from itertools import combinations_with_replacement

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from offmap.calls import at_each
from offmap.constraint import DictionaryConstraint
from offmap.pattern import Pattern, pattern_of, ways_to_follow
from offmap.tangent import Guide, TangentFrame, closed_form, far_states

_DEGREE = 3  # of the polynomials in u that a coordinate may be
_ROWS = 10  # samples for each unknown; with fewer, the polynomials are lines
_GAIN = 0.8  # most of the unexplained variance that a change of gauge may leave
_CLEAR = 0.1  # most that it may leave where columns vanish at some heading
_SHORT = 0.5  # least length of a column, as a share of its greatest
_VANISHING = 0.2  # the same for a direction among the data, and for a column clearly of use
_SAMPLES = 3000  # on which gauges are compared
_CONSTANT = 1e-24  # share of a coordinate's squares that is round-off
_FLOOR = 1e-12  # unexplained shares below this leave nothing to improve
_POINTS = 500  # at which sums are fitted
_NULL = 0.02  # a singular value below this share of the next is taken for 0
_FOLLOWED = 0.1  # least share of a row of G that is about the state that follows by it
_TINY = 1e-300
_SAME = 1e-6  # a guide that changes columns by less is of no use


def commanded_gauge(
    frame: TangentFrame,
    x: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    xdot: Float[np.ndarray, "N n"],
    mentions: Bool[np.ndarray, "c n"] | None = None,
) -> TangentFrame:
    """The frame whose coordinates of the motions xdot are best explained by the controls u.

    `mentions` says which entries of G are ever other than 0, if that is known.
    """
    every = max(1, len(x) // _SAMPLES)
    x, u, xdot = x[::every], u[::every], xdot[::every]
    explained, _ = np.linalg.qr(polynomials(u))

    def unexplained(frame: TangentFrame) -> float:
        share = share_left(np.asarray(at_each(frame.coordinates, x, xdot)), explained)
        return share if np.isfinite(share) else np.inf

    # A closed form that agrees with the march among the data may not beyond a state where all rows
    # vanish; a guide then says which of the two is right.
    near = frame if mentions is None or frame.pattern else closed_form(frame, mentions, x)
    pattern = None if near is None else near.pattern
    if near is not None and pattern is not None and pattern.rows:
        pull, guide = _pull(near, pattern, x), _guide(near, pattern, x)
        options = [
            replace(near if way else frame, pull=origin, guide=way)
            for way in ((None,) if guide is None else (guide, None))
            for origin in ((None,) if pull is None else (None, pull))
        ]
        shares = [unexplained(option) for option in options]
        level = max(min(shares), _FLOOR) / _GAIN
        good = (option for option, share in zip(options, shares, strict=True) if share <= level)
        best = next(good, frame)
        frame = replace(frame, pull=best.pull)
    else:
        best = frame
    fewer = _measured_by_fewer(frame, x, xdot, explained)
    if unexplained(fewer) <= _GAIN * unexplained(best):
        best = fewer
    if mentions is None or unexplained(best) <= _FLOOR:
        return best
    options = [best, *_led_by_some(frame, mentions, x)]
    shares = [unexplained(option) for option in options]
    level = max(min(shares), _FLOOR) / _GAIN
    return next(o for o, share in zip(options, shares, strict=True) if share <= level)


def share_left(a: Float[np.ndarray, "N r"], explained: Float[np.ndarray, "N k"]) -> float:
    """Share of the coordinates' variance that is outside the span of some functions of u."""
    size = np.sum(a**2, axis=0)
    a = a - a.mean(axis=0)
    spread = np.sum(a**2, axis=0)
    left = np.sum((a - explained @ (explained.T @ a)) ** 2, axis=0)
    varies = spread > _CONSTANT * size
    return float(np.mean(np.where(varies, left / np.where(varies, spread, 1.0), 0.0)))


def _pull(frame: TangentFrame, pattern: Pattern, x: np.ndarray) -> Array | None:
    """The constant motion that comes nearest to what all rows allow, such as free fall."""
    rest = np.asarray(_rest(frame, pattern, x[:: max(1, len(x) // _POINTS)]))
    G, g = rest[:, :, :-1].reshape(-1, len(pattern.states)), rest[:, :, -1].ravel()
    if not np.any(g):
        return None
    pull = np.zeros(x.shape[1])
    pull[list(pattern.states)] = np.linalg.lstsq(G, -g, rcond=None)[0]
    return jax.device_put(pull)


def _guide(frame: TangentFrame, pattern: Pattern, x: np.ndarray) -> Guide | None:
    """The sum of library terms that is at a right angle to all rows at all states.

    None if there is no such sum, or no single one, or if it comes near vanishing among the data or
    changes nothing.
    """
    if not isinstance(frame.gamma, DictionaryConstraint):
        return None
    some = x[:: max(1, len(x) // _POINTS)]
    weights = np.asarray(frame.gamma.weights)[list(pattern.rows)]
    used = np.flatnonzero(np.any(weights != 0, axis=(0, 2)))
    G = np.asarray(_rest(frame, pattern, some))[:, :, :-1]
    phi = np.asarray(at_each(frame.gamma.library, some))[:, used]
    size = np.sqrt(np.mean(phi**2, axis=0))
    size = np.where(size > 0, size, 1.0)
    unknowns = len(pattern.states) * len(used)
    across = np.einsum("pcs,pk->pcsk", G, phi / size).reshape(-1, unknowns)
    _, singular, vectors = np.linalg.svd(across, full_matrices=False)
    if unknowns < 2 or len(singular) < unknowns or singular[-1] > _NULL * singular[-2]:
        return None
    sums = np.zeros((x.shape[1], weights.shape[1]))
    sums[np.ix_(np.array(pattern.states), used)] = vectors[-1].reshape(-1, len(used)) / size
    column = pattern.free.index(-1)
    direction = np.asarray(at_each(frame.gamma.library, some)) @ sums.T
    own = np.asarray(at_each(frame, some)[0])[:, :, column]
    along = np.sum(direction * own, axis=1)
    if np.min(np.abs(along)) <= _VANISHING * np.max(np.abs(along)):
        return None
    sums *= np.sign(np.median(along)) / np.sqrt(np.mean(along**2))
    guide = Guide(frame.gamma.library, jax.device_put(sums), column)
    far, guided = far_states(frame, x), replace(frame, guide=guide)
    changed = np.asarray(at_each(guided, far)[0]) - np.asarray(at_each(frame, far)[0])
    return guide if np.max(np.abs(changed)) > _SAME else None


def _led_by_some(
    frame: TangentFrame, mentions: Bool[np.ndarray, "c n"], x: np.ndarray
) -> list[TangentFrame]:
    """Frames in which some states follow the others, fewest first.

    No row that is followed, nor the direction of those that lead, comes near vanishing well beyond
    the data.
    """
    far, found = far_states(frame, x), []
    G = np.abs(np.asarray(at_each(frame.gamma, far))[:, :, :-1])
    share = G / np.maximum(np.linalg.norm(G, axis=2, keepdims=True), _TINY)
    for follows in ways_to_follow(mentions):
        pattern = pattern_of(mentions, follows)
        if pattern is None or any(share[:, i, j].min() <= _FOLLOWED for i, j in follows):
            continue
        led = TangentFrame(frame.gamma, frame.origin, frame.basis, frame.periodic, pattern=pattern)
        if pattern.rows:
            rest = _rest(led, pattern, far)[:, :, :-1]
            area = np.prod(np.linalg.svd(rest, compute_uv=False), axis=1)
            if area.min() <= _VANISHING * area.max():
                continue
            pull = _pull(led, pattern, x)
            found += [led] if pull is None else [replace(led, pull=pull), led]
        else:
            found.append(led)
    return found


def _rest(frame: TangentFrame, pattern: Pattern, x: np.ndarray) -> np.ndarray:
    """What the rates that are told leave of the other rows of Γ, at each state."""
    return np.asarray(_rest_at(frame.gamma, pattern, x))


@eqx.filter_jit
def _rest_at(gamma, pattern, x):
    return jax.vmap(lambda x: pattern.rest(gamma(x))[0])(x)


def _measured_by_fewer(
    frame: TangentFrame, x: np.ndarray, xdot: np.ndarray, explained: np.ndarray
) -> TangentFrame:
    """The frame measured by those states whose rates make its coordinates functions of u.

    States are left out one after the other, as long as that explains the coordinates better and no
    column comes near vanishing well beyond the data: at any heading, unless what is gained says
    clearly that no such heading is meant. A car does not move where its wheels are turned by 90°,
    but it is its speed that is commanded.
    """
    squares, beyond, around = (
        np.asarray(at_each(frame, states)[0]) ** 2
        for states in (x, far_states(frame, x, turns=False), far_states(frame, x))
    )
    a = np.asarray(at_each(frame.coordinates, x, xdot))
    n, r = squares.shape[1:]

    def unexplained(states: list[int]) -> float:
        if shortest(states, beyond) <= _VANISHING:
            return np.inf
        share = share_left(a * np.sqrt(np.sum(squares[:, states], axis=1)), explained)
        stays = shortest(states, around) > _SHORT
        return share if stays or share <= _CLEAR * whole else np.inf

    def shortest(states: list[int], squares: np.ndarray) -> float:
        length = np.sqrt(np.sum(squares[:, states], axis=1))
        longest = length.max(axis=0)
        return float(np.min(length.min(axis=0) / np.where(longest > 0, longest, np.inf)))

    kept = list(range(n))
    whole = share = share_left(a, explained)
    while len(kept) > r and share > _FLOOR:
        fewer = [[i for i in kept if i != out] for out in kept]
        shares = [unexplained(states) for states in fewer]
        best = int(np.argmin(shares))
        if shares[best] > _GAIN * share:
            break
        kept, share = fewer[best], shares[best]
    return frame if len(kept) == n else replace(frame, measured=tuple(kept))


def polynomials(u: Float[np.ndarray, "N m"]) -> Float[np.ndarray, "N terms"]:
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

"""Coordinates for the motions a constraint allows: a frame that turns smoothly with the state."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from offmap.constraint.library import Library
from offmap.pattern import TINY, Pattern, pattern_of
from offmap.projection import project, tangent_projector, tangential
from offmap.turning import Turning, find_turning
from offmap.types import Gamma

POLISH = 6
"""Newton–Schulz iterations of a step: the error is squared by each."""
_TURN = 0.7  # most that a step of the march should turn the frame [rad]
_MOST_STEPS = 16
_PROBES = 200  # states at which the turn of the whole march is measured
_BEYOND = 2.0  # how far beyond the data, as a multiple of their reach
_SAME = 1e-10  # what a closed form may differ from the march


class Guide(eqx.Module):
    """A direction as a sum of library terms, which tells how long and which way a column is."""

    library: Library
    sums: Float[Array, "n k"]
    column: int = eqx.field(static=True)
    """Of T, which it guides."""

    def __call__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """The direction, tangent up to errors of its weights."""
        return self.sums @ self.library(x)


class TangentFrame(eqx.Module):
    """ẋ = b(x) + T(x) a: b is the velocity nearest `pull` that is admissible, T a tangent basis.

    A basis chosen at each state by itself would jump. Here the basis at a fixed origin turns with
    an angle where the constraint does, and else is carried along the straight line to x, each step
    turning it as little as the constraint asks. For a unicycle this gives a = (forward speed, turn
    rate) at every heading, whatever was told.
    """

    gamma: Gamma
    origin: Float[Array, " n"]
    basis: Float[Array, "n r"]
    """T at the origin."""
    periodic: tuple[int, ...] = eqx.field(static=True)
    """States that are angles: the march takes the short way round."""
    steps: int = eqx.field(static=True, default=_MOST_STEPS)
    """Of the march from the origin to a state."""
    turning: Turning | None = eqx.field(static=True, default=None)
    """Where the constraint is one in a robot's own frame, the turn that does what the march would.

    It does it better: for a point off the axle of a robot, the least turns from step to step add
    up to a further one, and coordinates of equal motions would differ from heading to heading."""
    pattern: Pattern | None = eqx.field(static=True, default=None)
    """The same in closed form, where there is one."""
    measured: tuple[int, ...] = eqx.field(static=True, default=())
    """States in whose rates alone each column of T has unit length (`gauge`); (): all."""
    pull: Float[Array, " n"] | None = None
    """The velocity that b is to be nearest to, such as that of free fall; None: 0."""
    guide: Guide | None = None
    """Length and sense of one column, where they are not those that the rows of Γ give it."""

    def __call__(self, x: Float[Array, " n"]) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """T(x) and b(x)."""
        if self.pattern is None:
            basis, drift = self.marched(x)
        else:
            basis, drift = self.pattern(self.gamma(x), self.pull)
        if self.measured:
            basis = basis / jnp.sqrt(jnp.sum(basis[jnp.array(self.measured)] ** 2, axis=0))[None]
        if self.guide is not None:
            exact = tangential(self.guide(x)[:, None], self.gamma(x))
            basis = basis.at[:, self.guide.column].set(exact[:, 0])
        return basis, drift

    def marched(self, x: Float[Array, " n"]) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """T(x) and b(x), by the march from the origin; T is orthonormal."""
        away = x - self.origin
        start = self.basis
        if self.turning is not None:
            start = self.turning(start, away[self.turning.angle])
        angles = jnp.array(self.periodic, dtype=int)
        turn = away[angles]
        away = away.at[angles].set(jnp.arctan2(jnp.sin(turn), jnp.cos(turn)))

        def march(basis, share):
            return _nearest_basis(self.gamma(self.origin + share * away), basis)

        shares = jnp.arange(1, self.steps + 1) / self.steps
        basis, _ = jax.lax.scan(lambda basis, share: (march(basis, share), None), start, shares)
        wanted = jnp.zeros_like(x) if self.pull is None else self.pull
        return basis, project(wanted, self.gamma(x))

    def coordinates(self, x: Float[Array, " n"], xdot: Float[Array, " n"]) -> Float[Array, " r"]:
        """The a of a measured velocity; what it has outside the tangent space is left out."""
        basis, drift = self(x)
        a = basis.T @ (xdot - drift)
        if self.pattern is not None and self.pattern.follows:
            return jnp.linalg.solve(basis.T @ basis, a)
        if not self.measured and self.guide is None:
            return a
        return a / jnp.maximum(jnp.sum(basis**2, axis=0), TINY)


def tangent_frame(
    gamma: Gamma,
    x: Float[np.ndarray, "N n"],
    periodic: tuple[int, ...],
    mentions: Bool[np.ndarray, "c n"] | None = None,
) -> TangentFrame:
    """A frame whose origin is the sample nearest the middle of the data.

    Its march has as many steps as it takes to reach states twice as far out as the data, and all
    headings, without turning too far at once. `mentions` says which entries of G are ever other
    than 0, if that is known: most frames then have a closed form.
    """
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    middle = np.argmin(np.sum(((x - np.median(x, axis=0)) / spread) ** 2, axis=1))
    origin = jax.device_put(x[middle])
    c = jax.eval_shape(gamma, origin).shape[0]
    _, vectors = np.linalg.eigh(np.asarray(_projector_at(gamma, origin)))
    frame = TangentFrame(gamma, origin, _tidy(vectors[:, c:]), periodic)
    far = far_states(frame, x)
    turning = find_turning(gamma, origin, frame.basis, far, periodic)
    if turning is not None:
        frame = replace(frame, steps=1, turning=turning)
    else:
        turn = float(np.max(np.asarray(_turns(frame, far - np.asarray(origin)))))
        frame = replace(frame, steps=int(np.clip(np.ceil(turn / _TURN), 1, _MOST_STEPS)))
    closed = None if mentions is None else closed_form(frame, mentions, far)
    return closed or frame


def closed_form(
    frame: TangentFrame, mentions: Bool[np.ndarray, "c n"], x: Float[np.ndarray, "N n"]
) -> TangentFrame | None:
    """The frame in closed form, if it has one that agrees with the march at these states."""
    pattern = _pattern(frame, mentions)
    if pattern is None:
        return None
    closed = replace(frame, pattern=pattern)
    return closed if float(_difference(frame, closed, x)) < _SAME else None


def far_states(
    frame: TangentFrame, x: Float[np.ndarray, "N n"], turns: bool = True
) -> Float[np.ndarray, "P n"]:
    """States twice as far from the frame's origin as the data, at all headings if `turns`."""
    away = _BEYOND * (x[:: max(1, len(x) // _PROBES)] - np.asarray(frame.origin))
    for k, angle in enumerate(frame.periodic if turns else ()):  # in another order for each angle
        around = np.linspace(-np.pi, np.pi, len(away))
        away[:, angle] = np.random.default_rng(k).permutation(around)
    return np.asarray(frame.origin) + away


def _pattern(frame: TangentFrame, mentions: Bool[np.ndarray, "c n"]) -> Pattern | None:
    """The closed form with the basis at the origin; None if there is none."""
    pattern = pattern_of(mentions)
    if pattern is None:
        return None
    free, basis = sorted(j for j in pattern.free if j >= 0), np.asarray(frame.basis)
    columns = tuple(next((j for j in free if abs(b[j]) > 0.5), -1) for b in basis.T)
    if sorted(columns) != sorted(pattern.free):
        return None
    pattern = replace(pattern, free=columns)
    if not pattern.rows:
        return pattern
    here = np.asarray(_closed_basis(pattern, frame.gamma, frame.origin))
    sign = float(np.sign(np.sum(here * basis, axis=0)[columns.index(-1)]))
    return replace(pattern, sign=sign)


@eqx.filter_jit
def _difference(first, second, x):
    """The largest between two frames."""

    def apart(x):
        differences = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), first(x), second(x))
        return jnp.maximum(*differences)

    return jnp.max(jax.vmap(apart)(x))


@eqx.filter_jit
def _closed_basis(pattern, gamma, x):
    return pattern(gamma(x))[0]


@eqx.filter_jit
def _projector_at(gamma, x):
    return tangent_projector(gamma(x))


@eqx.filter_jit
def _turns(frame, away):
    """By how much the frame turns on the way to each state, in radians."""

    def turn(away):
        def march(carry, share):
            basis, total = carry
            moved = _nearest_basis(frame.gamma(frame.origin + share * away), basis)
            overlap = jnp.sum((moved.T @ basis) ** 2) - basis.shape[1]
            return (moved, total + jnp.sqrt(jnp.maximum(-overlap, 0.0))), None

        shares = jnp.arange(1, 4 * _MOST_STEPS + 1) / (4 * _MOST_STEPS)
        (_, total), _ = jax.lax.scan(march, (frame.basis, jnp.zeros(())), shares)
        return total

    return jax.vmap(turn)(away)


def _nearest_basis(gamma: Float[Array, "c q"], basis: Float[Array, "n r"]) -> Float[Array, "n r"]:
    """The orthonormal basis of Γ's tangent space nearest to a given one (polar factor)."""
    moved = tangential(basis, gamma)
    gram = moved.T @ moved
    if gram.shape[0] == 1:
        return moved / jnp.sqrt(gram)
    if gram.shape[0] == 2:
        # (S + √|S| I)/t squares to S for t² = tr S + 2 √|S|; its inverse has a closed form too.
        root = jnp.sqrt(gram[0, 0] * gram[1, 1] - gram[0, 1] ** 2)
        trace = gram[0, 0] + gram[1, 1]
        other = jnp.stack([gram[1, 1], -gram[0, 1], -gram[0, 1], gram[0, 0]]).reshape(2, 2)
        return moved @ (other + root * jnp.eye(2)) / (root * jnp.sqrt(trace + 2 * root))
    identity = jnp.eye(basis.shape[1])
    for _ in range(POLISH):
        moved = moved @ (1.5 * identity - 0.5 * moved.T @ moved)
    return moved


def _tidy(basis: np.ndarray) -> Array:
    """The same space with a basis along the axes where it can be: easier to read and to learn.

    Columns are rotated towards the coordinate directions that the space holds best.
    """
    projector = basis @ basis.T
    chosen: list[int] = []
    remaining = projector.copy()
    for _ in range(basis.shape[1]):
        axis = int(np.argmax(np.diag(remaining)))
        chosen.append(axis)
        column = remaining[:, axis] / np.sqrt(remaining[axis, axis])
        remaining = remaining - np.outer(column, column)
    left, _, right = np.linalg.svd(projector[:, sorted(chosen)], full_matrices=False)
    return jax.device_put(left @ right)

"""Coordinates for the motions a constraint allows: a frame that turns smoothly with the state."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.projection import project, tangent_projector, tangential
from offmap.types import Gamma

POLISH = 6
"""Newton–Schulz iterations of a step: the error is squared by each."""
_TURN = 0.7  # most that a step of the march should turn the frame [rad]
_MOST_STEPS = 16
_PROBES = 200  # states at which the turn of the whole march is measured
_BEYOND = 2.0  # how far beyond the data, as a multiple of their reach


class TangentFrame(eqx.Module):
    """ẋ = b(x) + T(x) a: b is the admissible velocity nearest 0, T an orthonormal tangent basis.

    A basis chosen at each state by itself would jump. Here the basis at a fixed origin is carried
    along the straight line to x, each step turning it as little as the constraint asks. For a
    unicycle this gives a = (forward speed, turn rate) at every heading, whatever was told.
    """

    gamma: Gamma
    origin: Float[Array, " n"]
    basis: Float[Array, "n r"]
    """T at the origin."""
    periodic: tuple[int, ...] = eqx.field(static=True)
    """States that are angles: the march takes the short way round."""
    steps: int = eqx.field(static=True, default=_MOST_STEPS)
    """Of the march from the origin to a state."""

    def __call__(self, x: Float[Array, " n"]) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """T(x) and b(x)."""
        away = x - self.origin
        angles = jnp.array(self.periodic, dtype=int)
        turn = away[angles]
        away = away.at[angles].set(jnp.arctan2(jnp.sin(turn), jnp.cos(turn)))

        def march(basis, share):
            return _nearest_basis(self.gamma(self.origin + share * away), basis)

        shares = jnp.arange(1, self.steps + 1) / self.steps
        basis, _ = jax.lax.scan(
            lambda basis, share: (march(basis, share), None), self.basis, shares
        )
        return basis, project(jnp.zeros_like(x), self.gamma(x))

    def coordinates(self, x: Float[Array, " n"], xdot: Float[Array, " n"]) -> Float[Array, " r"]:
        """The a of a measured velocity; what it has outside the tangent space is left out."""
        basis, drift = self(x)
        return basis.T @ (xdot - drift)


def tangent_frame(
    gamma: Gamma, x: Float[np.ndarray, "N n"], periodic: tuple[int, ...]
) -> TangentFrame:
    """A frame whose origin is the sample nearest the middle of the data.

    Its march has as many steps as it takes to reach states twice as far out as the data, and all
    headings, without turning too far at once.
    """
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    middle = np.argmin(np.sum(((x - np.median(x, axis=0)) / spread) ** 2, axis=1))
    origin = jax.device_put(x[middle])
    c = jax.eval_shape(gamma, origin).shape[0]
    _, vectors = np.linalg.eigh(np.asarray(_projector_at(gamma, origin)))
    frame = TangentFrame(gamma, origin, _tidy(vectors[:, c:]), periodic)
    away = _BEYOND * (x[:: max(1, len(x) // _PROBES)] - np.asarray(origin))
    for k, angle in enumerate(periodic):  # all headings, in another order for each angle
        turns = np.linspace(-np.pi, np.pi, len(away))
        away[:, angle] = np.random.default_rng(k).permutation(turns)
    turn = float(np.max(np.asarray(_turns(frame, away))))
    steps = int(np.clip(np.ceil(turn / _TURN), 1, _MOST_STEPS))
    return TangentFrame(gamma, origin, frame.basis, periodic, steps)


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
    return jnp.asarray(left @ right)

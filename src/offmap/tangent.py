"""Coordinates for the motions a constraint allows: a frame that turns smoothly with the state."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.projection import project, tangent_projector
from offmap.types import Gamma

_STEPS = 12  # of the march from the origin to a state; each may turn the frame by about 0.7 rad
_POLISH = 6  # Newton–Schulz iterations: the error is squared by each


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

    def __call__(self, x: Float[Array, " n"]) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """T(x) and b(x)."""
        away = x - self.origin
        angles = jnp.array(self.periodic, dtype=int)
        turn = away[angles]
        away = away.at[angles].set(jnp.arctan2(jnp.sin(turn), jnp.cos(turn)))

        def march(basis, share):
            return _nearest_basis(tangent_projector(self.gamma(self.origin + share * away)), basis)

        shares = jnp.arange(1, _STEPS + 1) / _STEPS
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
    """A frame whose origin is the sample nearest the middle of the data."""
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    middle = np.argmin(np.sum(((x - np.median(x, axis=0)) / spread) ** 2, axis=1))
    origin = jnp.asarray(x[middle])
    c = gamma(origin).shape[0]
    _, vectors = np.linalg.eigh(np.asarray(tangent_projector(gamma(origin))))
    return TangentFrame(gamma, origin, _tidy(vectors[:, c:]), periodic)


def _nearest_basis(
    projector: Float[Array, "n n"], basis: Float[Array, "n r"]
) -> Float[Array, "n r"]:
    """The orthonormal basis of the projector's range nearest to a given one (polar factor)."""
    moved = projector @ basis
    identity = jnp.eye(basis.shape[1])
    for _ in range(_POLISH):
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

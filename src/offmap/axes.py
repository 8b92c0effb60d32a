"""A robot's own axes: motions as seen from axes that turn with an angle.

A robot that slips, drifts or drives any way it likes obeys no constraint, and yet is the same robot
at every heading: seen from its own axes, its motion does not depend on the heading.
"""

from itertools import permutations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.gauge import polynomials, share_left
from offmap.turning import Turning

_SAMPLES = 3000  # on which pairs of components are compared


class TurnedAxes(eqx.Module):
    """ẋ = T(x) a: the velocity a in axes of which two turn with an angle, T a rotation."""

    turning: Turning = eqx.field(static=True)
    n: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, " n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
        """T(x), and no velocity of rest, as a `TangentFrame` has."""
        return self.turning(jnp.eye(self.n), x[self.turning.angle]), jnp.zeros(self.n)

    def coordinates(self, x: Float[Array, " n"], xdot: Float[Array, " n"]) -> Float[Array, " n"]:
        """The a of a measured velocity."""
        axes, _ = self(x)
        return axes.T @ xdot


def likeliest_turning(
    x: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    xdot: Float[np.ndarray, "N n"],
    angles: tuple[int, ...],
) -> Turning | None:
    """The two components of ẋ, and the angle, that leave least to explain if they turn with it.

    Explained are the two by polynomials in the controls and the states that are neither of them nor
    the angle. None if there is no angle, or no two further states.
    """
    every = max(1, len(x) // _SAMPLES)
    x, u, xdot = x[::every], u[::every], xdot[::every]
    best, least = None, np.inf
    for angle in angles:
        sine, cosine = np.sin(x[:, angle]), np.cos(x[:, angle])
        others = [i for i in range(x.shape[1]) if i != angle]
        for first, second in permutations(others, 2):
            rest = [i for i in others if i not in (first, second)]
            known, _ = np.linalg.qr(polynomials(np.concatenate([u, x[:, rest]], axis=1)))
            a = cosine * xdot[:, first] + sine * xdot[:, second]
            b = cosine * xdot[:, second] - sine * xdot[:, first]
            share = share_left(np.stack([a, b], axis=1), known)
            if share < least:
                best, least = Turning(angle, first, second), share
    return best

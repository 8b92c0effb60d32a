"""The quadrotor in space: 13 states with a quaternion, four controls, nine constraints."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.systems.base import Box, System
from offmap.systems.quadrotor import GRAVITY, MASS

INERTIA = (2.3e-3, 2.6e-3, 4.2e-3)
"""Moments about the body's axes, in kg m²."""


def _columns(q: Float[Array, " 4"]) -> tuple[Array, Array, Array]:
    """Columns of R(q), the body's axes in the world.

    In this form they are orthogonal and of length |q|² for every q, so that Γ holds also where
    Euler steps have let |q| drift from 1.
    """
    w, x, y, z = q
    forward = jnp.stack([w * w + x * x - y * y - z * z, 2 * (x * y + w * z), 2 * (x * z - w * y)])
    left = jnp.stack([2 * (x * y - w * z), w * w - x * x + y * y - z * z, 2 * (y * z + w * x)])
    up = jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), w * w - x * x - y * y + z * z])
    return forward, left, up


def _turning(q: Float[Array, " 4"], rate: Float[Array, " 3"]) -> Float[Array, " 4"]:
    """½ q ⊗ (0, ω): how q turns at the body's rate ω."""
    w, vector = q[0], q[1:]
    return 0.5 * jnp.concatenate([-jnp.dot(vector, rate)[None], w * rate + jnp.cross(vector, rate)])


def _f(x: Float[Array, " 13"], u: Float[Array, " 4"]) -> Float[Array, " 13"]:
    q, velocity, rate = x[3:7], x[7:10], x[10:]
    inertia = jnp.asarray(INERTIA)
    _, _, up = _columns(q)
    acceleration = u[0] / MASS * up - jnp.array([0.0, 0.0, GRAVITY])
    spin = (u[1:] - jnp.cross(rate, inertia * rate)) / inertia  # Euler's equations
    return jnp.concatenate([velocity, _turning(q, rate), acceleration, spin])


def _gamma(x: Float[Array, " 13"]) -> Float[Array, "9 14"]:
    # Rows 1 to 7 say that positions integrate velocities and the quaternion the body's rate. The
    # last two say that v̇ + g e_z has no part along the body's x and y axes: it is parallel to
    # R(q) e_z. Dot products stay bounded where ratios of components do not.
    q, velocity, rate = x[3:7], x[7:10], x[10:]
    known = jnp.concatenate([velocity, _turning(q, rate)])
    kinematic = jnp.concatenate([jnp.eye(7, 13), -known[:, None]], axis=1)
    sideways = jnp.stack(_columns(q)[:2])
    thrust = jnp.concatenate(
        [jnp.zeros((2, 7)), sideways, jnp.zeros((2, 3)), GRAVITY * sideways[:, 2:]], axis=1
    )
    return jnp.concatenate([kinematic, thrust])


def _unit_quaternion(x: Float[Array, " 13"]) -> Float[Array, " 13"]:
    return x.at[3:7].set(x[3:7] / jnp.linalg.norm(x[3:7]))


def quadrotor3d() -> System:
    """A quadrotor in space: position, quaternion, velocity and body rates, c = 9.

    The controls are total thrust in newtons and the torques about the body's axes; four rotors are
    an invertible mixture of them.
    """
    hover = MASS * GRAVITY
    return System(
        name="quadrotor3d",
        state_names=(
            *("px", "py", "pz", "qw", "qx", "qy", "qz"),
            *("vx", "vy", "vz", "wx", "wy", "wz"),
        ),
        control_names=("thrust", "tx", "ty", "tz"),
        angles=(),
        dt=0.01,
        f=_f,
        gamma=_gamma,
        controls=Box((0.7 * hover, -0.02, -0.02, -0.01), (1.5 * hover, 0.02, 0.02, 0.01)),
        normalise=_unit_quaternion,
    )

"""The planar quadrotor (paper eq. quadrotor): two rotors, gravity, four constraints."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.systems.base import Box, System

MASS = 0.486
INERTIA = 0.0383
GRAVITY = 9.81


def _f(x: Float[Array, " 6"], u: Float[Array, " 2"]) -> Float[Array, " 6"]:
    _, _, phi, vx, vz, omega = x
    thrust = (u[0] + u[1]) / MASS
    return jnp.stack(
        [
            vx,
            vz,
            omega,
            -thrust * jnp.sin(phi),
            thrust * jnp.cos(phi) - GRAVITY,
            (u[0] - u[1]) / INERTIA,
        ]
    )


def _gamma(x: Float[Array, " 6"]) -> Float[Array, "4 7"]:
    # Rows 1 to 3 say that positions integrate velocities. Row 4 is the paper's last row times
    # cos φ, v̇x cos φ + v̇z sin φ + g sin φ = 0, which stays bounded where tan φ does not.
    _, _, phi, vx, vz, omega = x
    kinematic = jnp.concatenate([jnp.eye(3, 6), -jnp.stack([vx, vz, omega])[:, None]], axis=1)
    sin, cos, zero = jnp.sin(phi), jnp.cos(phi), jnp.zeros_like(phi)
    thrust = jnp.stack([zero, zero, zero, cos, sin, zero, GRAVITY * sin])
    return jnp.concatenate([kinematic, thrust[None]], axis=0)


def planar_quadrotor() -> System:
    """The paper's planar quadrotor: x = (px, pz, phi, vx, vz, omega), u = (u1, u2), c = 4."""
    hover = MASS * GRAVITY / 2
    return System(
        name="quadrotor",
        state_names=("px", "pz", "phi", "vx", "vz", "omega"),
        control_names=("u1", "u2"),
        angles=("phi",),
        dt=0.01,
        f=_f,
        gamma=_gamma,
        controls=Box((hover, hover), (2.5, 2.5)),
    )

"""The nonholonomic unicycle (paper eq. car): it drives and turns, and cannot slide sideways."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.systems.base import Box, System


def _f(x: Float[Array, " 3"], u: Float[Array, " 2"]) -> Float[Array, " 3"]:
    theta, (omega, v) = x[2], u
    return jnp.stack([v * jnp.cos(theta), v * jnp.sin(theta), omega])


def _gamma(x: Float[Array, " 3"]) -> Float[Array, "1 4"]:
    # −ṗx sin θ + ṗy cos θ = 0
    theta = x[2]
    zero = jnp.zeros_like(theta)
    return jnp.stack([-jnp.sin(theta), jnp.cos(theta), zero, zero])[None]


def unicycle() -> System:
    """The paper's unicycle: x = (px, py, theta), u = (omega, v), c = 1."""
    return System(
        name="unicycle",
        state_names=("px", "py", "theta"),
        control_names=("omega", "v"),
        angles=("theta",),
        dt=0.1,
        f=_f,
        gamma=_gamma,
        controls=Box((-0.2, 0.0), (0.2, 1.5)),
    )

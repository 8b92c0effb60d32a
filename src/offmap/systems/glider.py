"""A glider that flies where it points: heading and pitch."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.systems.base import Box, System


def glider() -> System:
    """Moves along its nose alone: x = (px, py, pz, psi, pitch), u = (speed, yaw, dive), c = 2."""

    def f(x: Float[Array, " 5"], u: Float[Array, " 3"]) -> Float[Array, " 5"]:
        psi, pitch = x[3:]
        v, yaw, dive = u
        level = v * jnp.cos(pitch)
        return jnp.stack(
            [level * jnp.cos(psi), level * jnp.sin(psi), v * jnp.sin(pitch), yaw, dive]
        )

    def gamma(x: Float[Array, " 5"]) -> Float[Array, "2 6"]:
        psi, pitch = x[3:]
        zero, sine = jnp.zeros_like(psi), jnp.sin(pitch)
        side = [-jnp.sin(psi), jnp.cos(psi), zero]
        up = [-sine * jnp.cos(psi), -sine * jnp.sin(psi), jnp.cos(pitch)]
        return jnp.stack([jnp.stack([*row, zero, zero, zero]) for row in (side, up)])

    return System(
        name="glider",
        state_names=("px", "py", "pz", "psi", "pitch"),
        control_names=("speed", "yaw", "dive"),
        angles=("psi", "pitch"),
        dt=0.1,
        f=f,
        gamma=gamma,
        controls=Box((0.5, -0.3, -0.2), (2.0, 0.3, 0.2)),
    )

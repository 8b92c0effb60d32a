"""A pole that hangs from a cart: one force moves two bodies."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.systems.base import Box, System
from offmap.systems.quadrotor import GRAVITY

CART, POLE, LENGTH = 1.0, 0.2, 0.5
"""Masses of the cart and of the bob [kg] and the length of the pole [m]."""


def cart_pole() -> System:
    """Cart and pole: x = (p, theta, v, omega), theta = 0 hanging, u = force, c = 3.

    Beside p' = v and theta' = omega, the bob is not pushed along its arc by anything but gravity:
    cos(theta) v' + LENGTH omega' + g sin(theta) = 0.
    """

    def f(x: Float[Array, " 4"], u: Float[Array, " 1"]) -> Float[Array, " 4"]:
        _, theta, v, omega = x
        sin, cos = jnp.sin(theta), jnp.cos(theta)
        pull = POLE * sin * (LENGTH * omega**2 + GRAVITY * cos)
        push = (u[0] + pull) / (CART + POLE * sin**2)
        return jnp.stack([v, omega, push, -(push * cos + GRAVITY * sin) / LENGTH])

    def gamma(x: Float[Array, " 4"]) -> Float[Array, "3 5"]:
        _, theta, v, omega = x
        sin, cos, zero = jnp.sin(theta), jnp.cos(theta), jnp.zeros_like(theta)
        arc = jnp.stack([zero, zero, cos, zero + LENGTH, GRAVITY * sin])
        known = jnp.concatenate([jnp.eye(2, 4), -jnp.stack([v, omega])[:, None]], axis=1)
        return jnp.concatenate([known, arc[None]])

    return System(
        name="cart-pole",
        state_names=("p", "theta", "v", "omega"),
        control_names=("force",),
        angles=("theta",),
        dt=0.02,
        f=f,
        gamma=gamma,
        controls=Box((-5.0,), (5.0,)),
    )

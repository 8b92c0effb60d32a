"""Integrate a vector field under held controls, and measure how far the result is from truth."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.types import VectorField

Integrator = Literal["euler", "rk4"]


def step(
    f: VectorField,
    x: Float[Array, " n"],
    u: Float[Array, " m"],
    dt: float | Float[Array, ""],
    integrator: Integrator = "euler",
) -> Float[Array, " n"]:
    """One step of length dt with the control held."""
    if integrator == "euler":
        return x + dt * f(x, u)
    if integrator == "rk4":
        k1 = f(x, u)
        k2 = f(x + dt / 2 * k1, u)
        k3 = f(x + dt / 2 * k2, u)
        k4 = f(x + dt * k3, u)
        return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    raise ValueError(f'The integrator is "euler" or "rk4"; got {integrator!r}. Choose one of them.')


def rollout(
    f: VectorField,
    x0: Float[Array, " n"],
    controls: Float[Array, "T m"],
    dt: float | Float[Array, ""],
    integrator: Integrator = "euler",
) -> Float[Array, "S n"]:
    """States x₀ … x_T under the T given controls, each held for dt."""

    def advance(x, u):
        following = step(f, x, u, dt, integrator)
        return following, following

    _, states = jax.lax.scan(advance, x0, controls)
    return jnp.concatenate([x0[None], states])


def state_errors(
    true: Float[Array, "*batch S n"], predicted: Float[Array, "*batch S n"]
) -> Float[Array, "*batch S"]:
    """‖x_true − x_pred‖₂ of every state."""
    return jnp.linalg.norm(true - predicted, axis=-1)


def cumulative_error(
    true: Float[Array, "*batch S n"], predicted: Float[Array, "*batch S n"]
) -> Float[Array, "*batch"]:
    """Σₜ ‖x_true − x_pred‖₂ over all T+1 states (paper eq. loss)."""
    return jnp.sum(state_errors(true, predicted), axis=-1)

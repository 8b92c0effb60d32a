"""Shared shapes and callable types; every room may import this one and it imports none.

Shape legend (also in docs/notation.md):

    n  states              m  controls             d = n + m  inputs of the dynamics
    N  samples             T  time steps           K  actions tried at one state
    c  constraints         r  retained inputs      p  outputs of a GP
    q = n + 1 entries of a row of Γ                 S = T + 1 states of a rollout
"""

from collections.abc import Callable

from jaxtyping import Array, Float

VectorField = Callable[[Float[Array, " n"], Float[Array, " m"]], Float[Array, " n"]]
"""x' = f(x, u) for one state and one control; batch it with `jax.vmap`."""

Gamma = Callable[[Float[Array, " n"]], Float[Array, "c q"]]
"""Γ(x) = [G(x) g(x)] of the constraint G(x) x' + g(x) = 0, for one state."""

Progress = Callable[[str], None]
"""Called with a short sentence when a stage of a long job begins."""


def silent(stage: str) -> None:
    """Ignore progress."""

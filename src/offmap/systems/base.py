"""What every simulated system has: dynamics, true constraint, names and boxes to sample from."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.types import Gamma, VectorField


@dataclass(frozen=True)
class Box:
    """An axis-aligned box to sample uniformly from."""

    low: tuple[float | int, ...]
    high: tuple[float | int, ...]

    def __post_init__(self) -> None:
        if len(self.low) != len(self.high):
            raise ValueError(
                f"A box needs as many lower as upper bounds; got {len(self.low)} and "
                f"{len(self.high)}. Give one pair per coordinate."
            )
        if not np.all(np.asarray(self.low) <= np.asarray(self.high)):
            raise ValueError(
                f"A box needs low <= high; got low={self.low}, high={self.high}. Swap the bounds."
            )

    def sample(self, key: PRNGKeyArray, *shape: int) -> Float[Array, "..."]:
        """Draw uniform points, shape (*shape, number of coordinates)."""
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return jax.random.uniform(key, (*shape, len(self.low)), minval=low, maxval=high)


def _as_it_is(x: Float[Array, " n"]) -> Float[Array, " n"]:
    return x


@dataclass(frozen=True)
class System:
    """A simulated robot: x' = f(x, u), the constraint Γ(x) it obeys, and where it is driven."""

    name: str
    state_names: tuple[str, ...]
    control_names: tuple[str, ...]
    angles: tuple[str, ...]
    dt: float
    f: VectorField
    gamma: Gamma
    controls: Box
    normalise: Callable[[Array], Array] = _as_it_is
    """Takes a point of a box to a state the robot can have, where not every point is one."""

    @property
    def n(self) -> int:
        """Number of states."""
        return len(self.state_names)

    @property
    def m(self) -> int:
        """Number of controls."""
        return len(self.control_names)

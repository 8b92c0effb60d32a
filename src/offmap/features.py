"""What the learners see of an input: angles as (sin, cos), everything else as it is."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Features(eqx.Module):
    """The map from raw inputs to features; an angle a becomes the two features sin a, cos a.

    A turn of 2π then changes nothing, and what was learned at one heading holds at the next.
    """

    raw_names: tuple[str, ...] = eqx.field(static=True)
    angles: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " features"]:
        """Features of one input."""
        parts = [
            jnp.stack([jnp.sin(z[i]), jnp.cos(z[i])]) if i in self.angles else z[i : i + 1]
            for i in range(len(self.raw_names))
        ]
        return jnp.concatenate(parts)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each feature."""
        return tuple(
            feature
            for i, name in enumerate(self.raw_names)
            for feature in ((f"sin({name})", f"cos({name})") if i in self.angles else (name,))
        )

    @property
    def owner(self) -> tuple[int, ...]:
        """Index of the raw input that each feature belongs to."""
        return tuple(
            i for i in range(len(self.raw_names)) for _ in range(2 if i in self.angles else 1)
        )

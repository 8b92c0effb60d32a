"""The learned pseudometric, and what it says about the inputs: keep, drop or rotate."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


class Pseudometric(eqx.Module):
    """d(z, z') = √((z − z')ᵀ P (z − z')) with P in standardised units, its largest entry 1.

    The paper prints the square (eq. metric_learned); the root is what obeys the triangle
    inequality. The loss does not change with the scale of P, so P is normalised.
    """

    P: Float[Array, "d d"]
    scale: Float[Array, " d"]
    loss: Float[Array, " steps"]
    diagonal: bool = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)

    def distance(self, a: Float[Array, " d"], b: Float[Array, " d"]) -> Float[Array, ""]:
        """Distance between two inputs in raw units."""
        delta = (a - b) / self.scale
        squared = jnp.maximum(delta @ self.P @ delta, 0.0)
        # The root has no derivative at 0; this one is 0 there instead of NaN.
        positive = squared > 0
        return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)

    @property
    def weights(self) -> np.ndarray:
        """Weight of each direction, largest 1: the diagonal of P, or its eigenvalues, falling."""
        if self.diagonal:
            return np.asarray(jnp.diag(self.P))
        return np.asarray(jnp.linalg.eigvalsh(self.P))[::-1]


class Reduction(eqx.Module):
    """The linear map z ↦ z_red that keeps what the pseudometric can see."""

    matrix: Float[Array, "r d"]
    names: tuple[str, ...] = eqx.field(static=True)

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " r"]:
        """Reduce one input."""
        return self.matrix @ z

    @staticmethod
    def everything(names: tuple[str, ...]) -> "Reduction":
        """Keep every input: the paper's plain GP."""
        return Reduction(jnp.eye(len(names)), tuple(names))


def retained_inputs(metric: Pseudometric, threshold: float) -> Reduction:
    """Drop every input (diagonal P) or eigen-direction (full P) lighter than `threshold`.

    The threshold is relative to the heaviest direction, whose weight is 1.
    """
    if not 0 <= threshold < 1:
        raise ValueError(
            f"The threshold is relative to the largest weight and lies in [0, 1); got {threshold}. "
            f"0.05 is a good start."
        )
    keep = metric.weights > threshold
    if metric.diagonal:
        names = tuple(name for name, kept in zip(metric.names, keep, strict=True) if kept)
        return Reduction(jnp.eye(len(keep))[keep], names)
    # Rotate standardised data into the eigenbasis of P, drop light directions (paper IV-A-3).
    _, basis = np.linalg.eigh(np.asarray(metric.P))
    directions = basis[:, ::-1].T[keep]
    names = tuple(_combination(direction, metric.names) for direction in directions)
    return Reduction(jnp.asarray(directions / np.asarray(metric.scale)), names)


def _combination(direction: np.ndarray, names: tuple[str, ...]) -> str:
    terms = [
        f"{weight:+.2f} {name}"
        for weight, name in zip(direction, names, strict=True)
        if abs(weight) > 0.05
    ]
    return " ".join(terms).removeprefix("+")

"""The learned pseudometric, and what it says about the inputs: keep, drop or rotate."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.features import Features


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
            return np.diag(np.asarray(self.P))
        eigenvalues = np.linalg.eigvalsh(np.asarray(self.P))[::-1]
        return eigenvalues / eigenvalues[0]

    @property
    def input_weights(self) -> dict[str, float]:
        """Weight of each input by name; an angle seen as (sin, cos) has the heavier of the two."""
        weights: dict[str, float] = {}
        for name, weight in zip(self.names, np.diag(np.asarray(self.P)), strict=True):
            raw = name[4:-1] if name.startswith(("sin(", "cos(")) else name
            weights[raw] = max(weights.get(raw, 0.0), float(weight))
        return weights


class Reduction(eqx.Module):
    """The map z ↦ z_red that keeps what the pseudometric can see of an input's features."""

    matrix: Float[Array, "r features"]
    names: tuple[str, ...] = eqx.field(static=True)
    """Of the inputs kept, or of the directions kept if P is full."""
    features: Features | None = None
    """Seen instead of the raw input, if given."""

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, " r"]:
        """Reduce one input."""
        return self.matrix @ (z if self.features is None else self.features(z))

    @staticmethod
    def everything(names: tuple[str, ...], features: Features | None = None) -> "Reduction":
        """Keep every input: the paper's plain GP."""
        count = len(names if features is None else features.names)
        return Reduction(jnp.eye(count), tuple(names), features)

    def only(self, inputs: range) -> "Reduction":
        """Keep no more than these of the inputs that are kept; directions that mix inputs stay."""
        rows = list(self.rows_of(inputs))
        seen = np.any(np.asarray(self.matrix)[rows] != 0, axis=0)
        owner = np.arange(len(seen)) if self.features is None else np.array(self.features.owner)
        every = np.unique(owner[np.any(np.asarray(self.matrix) != 0, axis=0)])
        if len(every) != len(self.names):
            return self
        kept = np.isin(every, owner[seen])
        names = tuple(name for name, keep in zip(self.names, kept, strict=True) if keep)
        return Reduction(self.matrix[jnp.array(rows, int)], names, self.features)

    def rows_of(self, inputs: range) -> tuple[int, ...]:
        """Rows of the reduced vector that are features of one of the given inputs alone."""
        seen = np.asarray(self.matrix) != 0
        owner = range(seen.shape[1]) if self.features is None else self.features.owner
        inside = np.array([i in inputs for i in owner])
        return tuple(int(row) for row in np.flatnonzero(~np.any(seen & ~inside, axis=1)))


def retained_inputs(
    metric: Pseudometric, threshold: float, features: Features | None = None
) -> Reduction:
    """Drop every input (diagonal P) or eigen-direction (full P) lighter than `threshold`.

    The threshold is relative to the heaviest direction, whose weight is 1. The metric is over
    `features`, if given; an input is as heavy as the heaviest of its features.
    """
    if not 0 <= threshold < 1:
        raise ValueError(
            f"The threshold is relative to the largest weight and lies in [0, 1); got {threshold}. "
            f"0.05 is a good start."
        )
    keep = metric.weights > threshold
    if metric.diagonal and features is not None:
        owner = np.array(features.owner)
        inputs = np.unique(owner[keep])
        names = tuple(features.raw_names[i] for i in inputs)
        return Reduction(
            jax.device_put(np.eye(len(owner))[np.isin(owner, inputs)]), names, features
        )
    if metric.diagonal:
        names = tuple(name for name, kept in zip(metric.names, keep, strict=True) if kept)
        return Reduction(jax.device_put(np.eye(len(keep))[keep]), names)
    # Rotate standardised data into the eigenbasis of P, drop light directions (paper IV-A-3).
    _, basis = np.linalg.eigh(np.asarray(metric.P))
    directions = basis[:, ::-1].T[keep]
    names = tuple(_combination(direction, metric.names) for direction in directions)
    return Reduction(jnp.asarray(directions / np.asarray(metric.scale)), names, features)


def _combination(direction: np.ndarray, names: tuple[str, ...]) -> str:
    terms = [
        f"{weight:+.2f} {name}"
        for weight, name in zip(direction, names, strict=True)
        if abs(weight) > 0.05
    ]
    return " ".join(terms).removeprefix("+")

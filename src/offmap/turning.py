"""Frames that turn with an angle: how a robot's own axes lie in the world."""

from dataclasses import dataclass
from itertools import permutations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.calls import at_each
from offmap.types import Gamma

_SAME = 1e-8  # share of a row of Γ that a turned basis may have left over


@dataclass(frozen=True)
class Turning:
    """Two components of ẋ turn with an angle; the others stay."""

    angle: int
    first: int
    second: int
    """A positive angle turns the first towards the second."""

    def __call__(self, columns: Float[Array, "n r"], by: Float[Array, ""]) -> Float[Array, "n r"]:
        """The columns, turned."""
        sine, cosine = jnp.sin(by), jnp.cos(by)
        a, b = columns[self.first], columns[self.second]
        turned = columns.at[self.first].set(cosine * a - sine * b)
        return turned.at[self.second].set(sine * a + cosine * b)


def find_turning(
    gamma: Gamma,
    origin: Float[Array, " n"],
    basis: Float[Array, "n r"],
    x: Float[np.ndarray, "N n"],
    angles: tuple[int, ...],
) -> Turning | None:
    """The turn that keeps a basis of tangents at the origin a basis of tangents at all x.

    What a robot cannot do is then the same in its own frame at every heading, and so should be the
    coordinates of what it can do. A basis that is tangent everywhere without a turn needs none.
    """
    G = np.asarray(at_each(gamma, x))[:, :, :-1]
    length = np.linalg.norm(G, axis=2, keepdims=True)
    G = G / np.where(length > 0, length, 1.0)  # what vanishes at a state forbids nothing there
    start = np.asarray(basis)

    def left_over(T: Float[np.ndarray, "N n r"]) -> float:
        return float(np.max(np.abs(np.einsum("pcn,pnr->pcr", G, T))))

    if left_over(np.broadcast_to(start, (len(x), *start.shape))) < _SAME:
        return None
    for angle in angles:
        by = x[:, angle] - np.asarray(origin)[angle]
        for first, second in permutations(np.delete(np.arange(x.shape[1]), angle).tolist(), 2):
            T = np.tile(start, (len(x), 1, 1))
            a, b = start[first], start[second]
            T[:, first] = np.outer(np.cos(by), a) - np.outer(np.sin(by), b)
            T[:, second] = np.outer(np.sin(by), a) + np.outer(np.cos(by), b)
            if left_over(T) < _SAME:
                return Turning(angle, first, second)
    return None

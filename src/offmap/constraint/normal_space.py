"""The normal space at a state: what no action can do (paper IV-B-1, IV-B-2)."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.types import VectorField

_STATES_AT_ONCE = 32  # bounds memory: each state costs K evaluations of f
_FLOOR = 1e-9  # singular values below this fraction of the largest count as zero


@dataclass(frozen=True)
class NormalSpace:
    """A basis of the null space of the derivative stack at each of N states."""

    x: Float[np.ndarray, "N n"]
    basis: Float[np.ndarray, "N c q"]
    singular_values: Float[np.ndarray, " q"]
    """Median spectrum of the scaled stacks, falling."""

    @property
    def c(self) -> int:
        """Number of constraints."""
        return self.basis.shape[1]


def spread(xdot: Float[np.ndarray, "N n"]) -> Float[np.ndarray, " n"]:
    """Standard deviation of each component of ẋ, by which it is scaled; 1 where it is constant."""
    deviation = xdot.std(axis=0)
    return np.where(deviation > 0, deviation, 1.0)


def spread_actions(controls: Float[np.ndarray, "N m"], count: int) -> Float[np.ndarray, "K m"]:
    """K observed controls far from each other, so that their effects differ as much as they can."""
    unique = np.unique(controls, axis=0)
    if len(unique) < count:
        raise ValueError(
            f"The normal space needs {count} different actions; the data hold {len(unique)}. "
            f"Excite the controls more, or lower `actions`."
        )
    scaled = (unique - unique.mean(axis=0)) / np.maximum(unique.std(axis=0), 1e-12)
    chosen = [int(np.argmax(np.sum(scaled**2, axis=1)))]
    distance = np.full(len(unique), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, np.sum((scaled - scaled[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(np.argmax(distance)))
    return unique[np.array(chosen)]


@eqx.filter_jit
def derivative_stack(
    f: VectorField, x: Float[Array, "N n"], actions: Float[Array, "K m"]
) -> Float[Array, "N K q"]:
    """Ẋ(x): rows [f(x, u_k)ᵀ 1] for K actions at each state (eqs. Xdot_matrix, Xdot_matrix_lma).

    With the true f this is the paper's ideal stack, with f̂ its learned multi-action (LMA) one.
    """

    def at_state(state):
        velocities = jax.vmap(lambda u: f(state, u))(actions)
        return jnp.concatenate([velocities, jnp.ones((actions.shape[0], 1))], axis=1)

    return jax.lax.map(at_state, x, batch_size=_STATES_AT_ONCE)


def count_constraints(singular_values: Float[np.ndarray, " q"], min_gap: float) -> int:
    """Number of singular values beyond the largest relative gap; 0 if no gap is wide enough."""
    floored = np.maximum(singular_values, _FLOOR * singular_values[0])
    gaps = floored[:-1] / floored[1:]
    widest = int(np.argmax(gaps))
    return len(singular_values) - 1 - widest if gaps[widest] >= min_gap else 0


def normal_space(
    x: Float[np.ndarray, "N n"],
    stack: Float[np.ndarray, "N K q"],
    scale: Float[np.ndarray, " n"],
    *,
    c: int | None = None,
    min_gap: float = 10.0,
    epsilon: float | None = None,
) -> NormalSpace:
    """V₂ᵀ of the SVD of each stack (eq. svd), with velocities measured in units of `scale`.

    Args:
        x: the states.
        stack: derivative stacks there.
        scale: spread of each component of x'; without it the spectrum would depend on units.
        c: number of constraints, or None to read it off the largest gap of the median spectrum.
        min_gap: smallest ratio of neighbouring singular values that counts as a gap.
        epsilon: the paper's rule instead: raw velocities, and c counts the values below epsilon.
    """
    units = np.append(scale if epsilon is None else np.ones_like(scale), 1.0)
    columns = stack.shape[2]
    if c is not None and not 0 <= c < columns:
        raise ValueError(
            f"The number of constraints lies in 0..{columns - 1}; got c={c}. Choose one there, or "
            f"None to read it off the spectrum."
        )
    _, values, vt = np.linalg.svd(stack / units, full_matrices=True)
    spectrum = np.zeros(columns)
    spectrum[: values.shape[1]] = np.median(values, axis=0)
    if c is None and epsilon is not None:
        c = int(np.sum(spectrum < epsilon))
        if c == columns:
            raise ValueError(
                f"Some motion is possible, so not all {columns} singular values can count as zero; "
                f"the largest is {spectrum[0]:.3g} and epsilon={epsilon:g}. Choose a smaller one."
            )
    elif c is None:
        c = count_constraints(spectrum, min_gap)
    return NormalSpace(np.asarray(x), vt[:, columns - c :] / units, spectrum)

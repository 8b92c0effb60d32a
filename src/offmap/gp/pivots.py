"""Few points that stand for many: the pivoted Cholesky factor of a covariance."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from offmap.gp.kernels import AbstractKernel


class PivotedFactor(NamedTuple):
    """K ≈ F Fᵀ for every output, built from the columns of the points chosen."""

    chosen: Int[np.ndarray, " r"]
    factor: Float[np.ndarray, "p N r"]
    unexplained: Float[np.ndarray, "p N"]
    """Variance of each point given those chosen: the diagonal of K − F Fᵀ."""
    complete: bool
    """Whether the rest is below the tolerance for every output."""
    gap: float
    """Least explained of what was worth a point, over the most that is left, for any output."""

    @property
    def corner(self) -> Float[np.ndarray, "p r r"]:
        """The triangular factor of the chosen points' own covariance."""
        own = self.factor[:, self.chosen]
        # A point that adds nothing for one of the outputs must not make its factor singular.
        flat = np.einsum("pii->pi", own) == 0
        return own + np.eye(len(self.chosen)) * flat[:, None, :]


def pivoted_factor(
    kernel: AbstractKernel,
    z: Float[np.ndarray, "N d"],
    *,
    tolerance: float | Float[np.ndarray, " p"],
    most: int,
) -> PivotedFactor:
    """Choose points, each the one least explained by those before, until all are explained.

    `kernel` carries a leading axis p; the outputs share the points. An output is explained when
    no point keeps more than `tolerance` of the largest prior variance.
    """
    left = np.array(_variances(kernel, z))
    allowed = np.asarray(tolerance) * left.max(axis=1)
    factor = np.zeros((*left.shape, min(64, most)))
    chosen: list[int] = []
    least = np.full(len(left), np.inf)
    while len(chosen) < most and np.any(left.max(axis=1) > allowed):
        count = len(chosen)
        if count == factor.shape[2]:
            factor = np.concatenate([factor, np.zeros_like(factor)], axis=2)
        pivot = int(np.argmax(np.max(left / allowed[:, None], axis=0)))
        variance = left[:, pivot]
        column = np.array(_columns(kernel, z, z[pivot]))
        column -= np.einsum("pnr,pr->pn", factor[:, :, :count], factor[:, pivot, :count])
        new = variance > allowed
        column *= np.where(new, 1 / np.sqrt(np.where(new, variance, 1.0)), 0.0)[:, None]
        factor[:, :, count] = column
        least = np.where(new, np.minimum(least, variance), least)
        left = np.maximum(left - column**2, 0.0)
        left[new, pivot] = 0.0
        chosen.append(pivot)
    complete = bool(np.all(left.max(axis=1) <= allowed))
    gap = float(np.min(least / np.maximum(left.max(axis=1), np.finfo(float).tiny)))
    return PivotedFactor(np.array(chosen, int), factor[:, :, : len(chosen)], left, complete, gap)


@eqx.filter_jit
def _variances(kernel, z):
    return eqx.filter_vmap(lambda kernel: kernel.variance(jnp.asarray(z)))(kernel)


@eqx.filter_jit
def _columns(kernel, z, pivot):
    return eqx.filter_vmap(lambda kernel: kernel(jnp.asarray(z), jnp.asarray(pivot)[None])[:, 0])(
        kernel
    )

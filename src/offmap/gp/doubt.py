"""GPs that doubt what their hyperparameter search took from a single function.

The likelihood of one function is highest if the prior leaves no room for a line it does not have:
the search turns slopes and constants off, and the posterior is then sure that they are exactly 0.
How far a mean may be off is asked of a prior in which lines of unit slope and constants of unit
size, in units of the data's spread, remain possible: then it is about that of least squares.
"""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from offmap.gp.expansion import AbstractGPs
from offmap.gp.induced import InducedGPs, induce
from offmap.gp.kernels import AbstractKernel, ControlAffine, Linear, Sum
from offmap.gp.posterior import IndependentGPs, condition

_CENTRES = 800  # of GPs that are known by centres


def open_minded(kernel: AbstractKernel) -> AbstractKernel:
    """The kernel of one output with room for lines of unit slope and constants of unit size."""
    if isinstance(kernel, Linear):
        return Linear(jnp.maximum(kernel.log_slope, 0.0), jnp.maximum(kernel.log_bias, 0.0))
    if isinstance(kernel, ControlAffine):
        weights = kernel.log_weights
        wider = jnp.concatenate([weights[:1], jnp.maximum(weights[1:], 0.0)])
        slope = jnp.maximum(kernel.log_slope, 0.0)
        return eqx.tree_at(lambda k: (k.log_slope, k.log_weights), kernel, (slope, wider))
    if isinstance(kernel, Sum) and isinstance(kernel.second, Linear):
        return Sum(kernel.first, open_minded(kernel.second))
    per_input = jax.tree.leaves(kernel)[0]  # length scales, or periods
    return Sum(kernel, Linear(jnp.zeros_like(per_input), jnp.zeros(())))


def doubtful(gps: AbstractGPs, x: Float[np.ndarray, "B d"]) -> AbstractGPs:
    """GPs of mean 0 whose variance is the doubt about a mean; `x` are the base points.

    Where the mean is known by way of centres, samples of other sources do not lessen the doubt.
    """
    nothing = np.tile(np.asarray(gps.scaling.y_mean), (len(x), 1))
    kernel = eqx.filter_vmap(open_minded)(gps.kernel)
    if isinstance(gps, InducedGPs):
        return induce(_with_kernel(gps, kernel), x, nothing, most=_CENTRES)[0]
    assert isinstance(gps, IndependentGPs)
    points = np.asarray(gps.x) * np.asarray(gps.scaling.x_scale) + np.asarray(gps.scaling.x_mean)
    noise, base = np.asarray(gps.noise), gps.base_points()
    wide = condition(kernel, jnp.asarray(noise[:, 0]), gps.scaling, points[:base], nothing[:base])
    levels = np.flatnonzero(np.any(np.diff(noise[:, base:], axis=1) != 0, axis=0)) + 1 + base
    starts = [base, *levels, len(points)]
    for start, stop in pairwise(starts):  # one noise level at a time
        if stop > start:
            zero = np.tile(np.asarray(gps.scaling.y_mean), (stop - start, 1))
            wide = wide.extended(points[start:stop], zero, noise[:, start])
    return wide


def _with_kernel(gps: InducedGPs, kernel: AbstractKernel) -> InducedGPs:
    return eqx.tree_at(lambda g: g.kernel, gps, kernel, is_leaf=lambda k: k is gps.kernel)

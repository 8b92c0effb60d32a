"""GPs that doubt what their hyperparameter search took from a single function.

The likelihood of one function is highest if the prior leaves no room for a line it does not have:
the search turns slopes and constants off, and the posterior is then sure that they are exactly 0.
How far a mean may be off is asked of a prior in which lines remain possible. A line either is not
there or is of unit size, in units of the data's spread, both alike before the data; given them it
is off from the mean's by

    d² = p₁ (κ₁ q² + (κ₁ − κ)² w²) + p₀ κ² w²

on average, where w ± q is its slope by least squares, κ the share of it that the mean has, κ₁ that
of a line of unit size, and p₁ + p₀ = 1 say how likely either is. The room for a line is what gives
its slope this variance, at most 1: then it is about that of least squares.
"""

from dataclasses import replace
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.gp.expansion import AbstractGPs
from offmap.gp.induced import InducedGPs, induce
from offmap.gp.kernels import NOTHING, AbstractKernel, ControlAffine, Linear, Sum
from offmap.gp.likelihood import JITTER
from offmap.gp.posterior import IndependentGPs, condition
from offmap.gp.straight import straight_terms, straight_variances

_CENTRES = 800  # of GPs that are known by centres
_POINTS = 1000  # samples that are asked whether a line is there
_ROUND_OFF = 1e-12


def with_lines(kernel: AbstractKernel) -> AbstractKernel:
    """The kernel of one output, with lines that are off where it has none."""
    if isinstance(kernel, Linear | ControlAffine) or (
        isinstance(kernel, Sum) and isinstance(kernel.second, Linear)
    ):
        return kernel
    per_input = jax.tree.leaves(kernel)[0]  # length scales, or periods
    return Sum(kernel, Linear(jnp.full_like(per_input, NOTHING), jnp.full((), NOTHING)))


def open_minded(kernel: AbstractKernel, room: Float[Array, " q"]) -> AbstractKernel:
    """The kernel of one output with room for lines: the deviation of each of their weights."""
    if isinstance(kernel, Sum) and isinstance(kernel.second, Linear):
        return Sum(kernel.first, open_minded(kernel.second, room))
    if isinstance(kernel, Linear):
        slope = jnp.maximum(kernel.log_slope, jnp.log(room[1:]))
        return Linear(slope, jnp.maximum(kernel.log_bias, jnp.log(room[0])), kernel.through_zero)
    assert isinstance(kernel, ControlAffine)
    smooth, straight, constant = kernel.log_weights
    rooms = jnp.log(room).reshape(len(straight), -1)  # of (1, u) and (1, x)
    slope = jnp.maximum(0.5 * jnp.log(kernel.slopes()), rooms[:, 1:])
    weights = smooth, jnp.zeros_like(straight), jnp.maximum(constant, 2 * rooms[:, 0])
    return eqx.tree_at(lambda k: (k.log_slope, k.log_weights), kernel, (slope, jnp.stack(weights)))


def line_rooms(
    kernel: AbstractKernel,
    noise: Float[Array, ""],
    z: Float[Array, "N d"],
    y: Float[Array, " N"],
) -> Float[Array, " q"]:
    """How large the weight of each line may be, given one output's standardised samples.

    The constant is not asked: the mean of the data was subtracted, and is as wrong as they are. Of
    lines through zero there is none, as there is none of an input that was dropped.
    """
    bumps, lines = _apart(kernel)
    terms = straight_terms(lines, z)
    assert terms is not None
    through_zero = isinstance(lines, Linear) and lines.through_zero
    if through_zero:
        terms = jnp.asarray(terms).at[:, 0].set(0.0)
    if bumps is None:
        weighted = jnp.concatenate([terms, y[:, None]], axis=1) / noise
    else:
        jitter = JITTER * jnp.mean(bumps.variance(z))
        spread = bumps(z, z) + (noise + jitter) * jnp.eye(len(y))
        weighted = jnp.linalg.solve(spread, jnp.concatenate([terms, y[:, None]], axis=1))
    told = terms.T @ weighted
    covariance = jnp.linalg.inv(told[:, :-1] + jnp.eye(terms.shape[1]))
    # Each line by itself: w ± q is what the data say of it if all others are of unit size.
    variance = jnp.clip(jnp.diag(covariance), _ROUND_OFF, 1 - _ROUND_OFF)
    q2 = variance / (1 - variance)
    w2 = (covariance @ told[:, -1] / (1 - variance)) ** 2
    unit = 1 / (1 + q2)
    has = straight_variances(lines)
    share = has / (has + q2)
    odds = 0.5 * (jnp.log(q2 * unit) + w2 / q2 * unit)
    there = jax.nn.sigmoid(odds)
    off = there * (unit * q2 + (unit - share) ** 2 * w2) + (1 - there) * share**2 * w2
    ratio = jnp.minimum(off / q2, unit)
    room = jnp.sqrt(q2 * ratio / (1 - ratio))
    return room.at[0].set(jnp.exp(NOTHING) if through_zero else 1.0)


def _apart(kernel: AbstractKernel) -> tuple[AbstractKernel | None, Linear | ControlAffine]:
    """Bumps and lines of a kernel with lines."""
    if isinstance(kernel, Sum):
        assert isinstance(kernel.second, Linear)
        return kernel.first, kernel.second
    if isinstance(kernel, Linear):
        return None, kernel
    assert isinstance(kernel, ControlAffine)
    straight = replace(kernel, smooth=False)
    if not kernel.smooth:
        return None, straight
    none = kernel.log_weights.at[1:].set(NOTHING)
    return eqx.tree_at(lambda k: k.log_weights, kernel, none), straight


def doubtful(
    gps: AbstractGPs, x: Float[np.ndarray, "B d"], y: Float[np.ndarray, "B p"]
) -> AbstractGPs:
    """GPs of mean 0 whose variance is the doubt about a mean; `x` and `y` are the base samples.

    Where the mean is known by way of centres, samples of other sources do not lessen the doubt.
    """
    nothing = np.tile(np.asarray(gps.scaling.y_mean), (len(x), 1))
    few = slice(None, None, -(-len(x) // _POINTS))
    z, targets = gps.scaling.standardised_x(x[few]), gps.scaling.standardised_y(y[few]).T
    kernel = _opened(gps.kernel, gps.base_noise(), z, targets)
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


@eqx.filter_jit
def _opened(kernel, noise, z, targets):
    """The kernels of all outputs with room for lines."""

    def output(kernel, noise, y):
        kernel = with_lines(kernel)
        return open_minded(kernel, line_rooms(kernel, noise, z, y))

    return eqx.filter_vmap(output)(kernel, noise, jnp.asarray(targets))


def _with_kernel(gps: InducedGPs, kernel: AbstractKernel) -> InducedGPs:
    return eqx.tree_at(lambda g: g.kernel, gps, kernel, is_leaf=lambda k: k is gps.kernel)

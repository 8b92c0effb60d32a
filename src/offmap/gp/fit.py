"""Fit independent GPs: hyperparameters by marginal likelihood, then exact conditioning."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree
from scipy.optimize import minimize

from offmap.gp.expansion import AbstractGPs, Scaling
from offmap.gp.induced import induce
from offmap.gp.kernels import AbstractKernel, KernelName, bounds, starts
from offmap.gp.likelihood import (
    Turned,
    log_marginal_likelihood,
    turned,
    turned_log_likelihood,
)
from offmap.gp.posterior import condition
from offmap.gp.sharded import device_mesh, sharded_value_and_grad
from offmap.gp.straight import straight_terms, straight_variances

_NOISE = (1e-4, 1.0)  # variance of standardised outputs: start and upper bound of the search
_FEW, _MANY = 192, 512  # centres: where they may say it all, and where they have to do
_HOPELESS = 1e12  # stands in for the likelihood where the covariance does not factor


@dataclass(frozen=True)
class GPConfig:
    """Settings of a set of independent GPs."""

    kernel: KernelName = "rbf"
    noise: Literal["per-source", "shared"] = "per-source"
    """One noise level for each source of data (offline, online, …), or one for all."""
    hyper_points: int = 600
    """Hyperparameters are fitted to at most this many points; all points are conditioned on."""
    iterations: int = 150
    noise_floor: float = 1e-10
    """Least noise variance of a standardised output. Below 1e-8 the likelihood of noise-free data
    is itself round-off, which kernels with straight parts bear and a plain RBF does not."""
    exact_points: int = 12_000
    """Beyond, points are conditioned on by way of a few hundred centres instead of exactly."""
    devices: int = 1
    """Devices over which each likelihood of the search is spread, for more `hyper_points` than one
    device is quick with."""
    centre: bool = True
    """Subtract the mean of the outputs; off for functions whose zero means something."""


def fit_gps(
    x: Float[np.ndarray, "N d"],
    y: Float[np.ndarray, "N p"],
    source: Int[np.ndarray, " N"],
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    controls: tuple[int, ...] = (),
) -> AbstractGPs:
    """Fit one GP to each column of y and condition it on all data.

    The source with the most points sets scaling, hyperparameters and its own noise level. The
    others are folded in, each with the noise level most likely given what is known before it.
    `controls` says which columns of x are controls.
    """
    if config.noise == "shared":
        source = np.zeros_like(source)
    codes, counts = np.unique(source, return_counts=True)
    primary = codes[np.argmax(counts)]
    first = source == primary
    gps = _fit_primary(x[first], y[first], key=key, config=config, controls=controls)
    return fold_in(gps, x[~first], y[~first], source[~first], config=config)


def fold_in(
    gps: AbstractGPs,
    x: Float[np.ndarray, "E d"],
    y: Float[np.ndarray, "E p"],
    source: Int[np.ndarray, " E"],
    *,
    config: GPConfig,
    known: int | None = None,
) -> AbstractGPs:
    """Condition on further data at fixed hyperparameters; each source gets its own noise level.

    The level of the base points is used for the source `known`, if that is theirs, and for all
    sources where one level is shared.
    """
    for code in np.unique(source):
        noise = gps.base_noise() if config.noise == "shared" or code == known else None
        gps = gps.extended(x[source == code], y[source == code], noise)
    if not np.all(np.isfinite(np.asarray(gps.alpha))):
        raise ValueError(
            "A GP's covariance must be positive definite; it did not factor even with the largest "
            "jitter. Look for rows that repeat the same input with different outputs, or for "
            "columns on wildly different scales."
        )
    return gps


def _fit_primary(
    x: np.ndarray,
    y: np.ndarray,
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    controls: tuple[int, ...],
) -> AbstractGPs:
    has_origin = config.kernel != "proportional"  # which goes through zero as it is
    scaling = Scaling.of(x, y, centre=config.centre and has_origin, centre_inputs=has_origin)
    chosen = np.asarray(jax.random.permutation(key, len(x)))[: config.hyper_points]
    z = jax.device_put(scaling.standardised_x(x[chosen]))
    targets = jax.device_put(scaling.standardised_y(y[chosen]))
    kernel, noise = maximise_likelihood(
        starts(config.kernel, x.shape[1], controls),
        z,
        targets,
        iterations=config.iterations,
        noise_floor=config.noise_floor,
        devices=config.devices,
    )
    if len(x) <= config.exact_points:
        return condition(kernel, noise, scaling, x, y)
    return complete(condition(kernel, noise, scaling, x[chosen], y[chosen]), x, y, config=config)


def complete(
    gps: AbstractGPs,
    x: Float[np.ndarray, "N d"],
    y: Float[np.ndarray, "N p"],
    *,
    config: GPConfig,
) -> AbstractGPs:
    """The posterior given all samples of the primary source, at fixed hyperparameters.

    By way of few centres where those explain the samples to below their noise, which costs next to
    nothing; exactly, where they do not; and by way of more centres where there are too many samples
    for that.
    """
    few, explained = induce(gps, x, y, most=min(_FEW, len(x) // 4))
    if explained:
        return few
    if len(x) <= config.exact_points:
        return condition(gps.kernel, gps.base_noise(), gps.scaling, x, y)
    return induce(gps, x, y, most=_MANY)[0]


def maximise_likelihood(
    begin: AbstractKernel | tuple[AbstractKernel, ...],
    x: Float[Array, "N d"],
    y: Float[Array, "N p"],
    *,
    iterations: int,
    noise_floor: float = 1e-10,
    devices: int = 1,
) -> tuple[AbstractKernel, Float[Array, " p"]]:
    """Kernel and noise variance that maximise the marginal likelihood of each standardised output.

    The search begins at the likeliest of the kernels given. Returns the kernel with a leading
    axis p on every parameter, and p noise variances.
    """
    kernels = begin if isinstance(begin, tuple) else (begin,)
    low, high = bounds(kernels[0])
    lower, upper = _flat((low, np.log(noise_floor))), _flat((high, np.log(_NOISE[1])))
    # A wrong period looks hopeless at a low noise level, whichever it is: try several levels too.
    levels = (_NOISE[0],) if len(kernels) == 1 else (_NOISE[0], 1e-2, 0.3)
    beginnings = [_flat((kernel, np.log(level))) for kernel in kernels for level in levels]
    leaves, structure = jax.tree.flatten((kernels[0], np.log(_NOISE[0])))
    mesh = device_mesh(devices) if devices > 1 else None
    targets = np.ascontiguousarray(np.asarray(y).T)
    terms = straight_terms(kernels[0], np.asarray(x)) if mesh is None else None
    plain = [(x, target) for target in targets]
    data = plain if terms is None else turned(np.asarray(terms), np.asarray(y))
    splits = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def unflatten(vector: np.ndarray) -> tuple[AbstractKernel, np.ndarray]:
        parts = np.split(vector, splits)
        shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(structure, shaped)

    def fit_output(own: Turned | tuple[Array, np.ndarray]) -> np.ndarray:
        def objective(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient = _negative_log_likelihood(unflatten(vector), own, mesh)
            value, gradient = float(value), _flat(gradient)
            if np.isfinite(value) and np.all(np.isfinite(gradient)):
                return value, gradient
            return _HOPELESS, np.zeros_like(vector)

        best = min(beginnings, key=lambda b: objective(b)[0]) if beginnings[1:] else beginnings[0]
        return minimize(
            objective,
            best,
            jac=True,
            method="L-BFGS-B",
            bounds=np.stack([lower, upper], axis=1),
            options={"maxiter": iterations, "ftol": 1e-8},
        ).x

    # Programs of several devices wait for each other if they begin in different orders.
    with ThreadPoolExecutor(max_workers=1 if mesh else os.cpu_count()) as pool:
        solutions = list(pool.map(fit_output, data))
    fitted = [unflatten(solution) for solution in solutions]
    kernel, log_noise = jax.tree.map(lambda *leaf: jax.device_put(np.stack(leaf)), *fitted)
    return kernel, jnp.asarray(np.exp(log_noise))


@eqx.filter_jit
def _negative_log_likelihood(parameters, data, mesh):
    if mesh is not None:
        kernel, log_noise = parameters
        x, y = data
        return sharded_value_and_grad(kernel, log_noise, x, y, mesh)

    def negative(parameters):
        kernel, log_noise = parameters
        if isinstance(data, Turned):
            return -turned_log_likelihood(straight_variances(kernel), jnp.exp(log_noise), data)
        return -log_marginal_likelihood(kernel, jnp.exp(log_noise), *data)

    return jax.value_and_grad(negative)(parameters)


def _flat(tree: PyTree) -> np.ndarray:
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)])

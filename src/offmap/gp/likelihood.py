"""The log marginal likelihood of one output and its gradient, at the cost of one factorisation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.gp.kernels import AbstractKernel
from offmap.gp.triangular import half_inverse

JITTER = 1e-10
"""Added to the diagonal of a standardised covariance, relative to its mean, so that it factors."""


def noisy_covariance(
    kernel: AbstractKernel, noise: Float[Array, ""], x: Float[Array, "N d"]
) -> Float[Array, "N N"]:
    """K + (σ² + jitter) I."""
    covariance = kernel(x, x)
    jitter = JITTER * jnp.mean(kernel.variance(x))
    return covariance + (noise + jitter) * jnp.eye(x.shape[0])


def log_marginal_likelihood(
    kernel: AbstractKernel,
    noise: Float[Array, ""],
    x: Float[Array, "N d"],
    y: Float[Array, " N"],
) -> Float[Array, ""]:
    """Log p(y | x) of a zero-mean GP with noise variance `noise`."""
    return _gaussian_log_density(noisy_covariance(kernel, noise, x), y)


class Turned(NamedTuple):
    """Data whose covariance is a sum over few terms, turned so that only few numbers meet them.

    With the QR factorisation of the terms Φ = Q R, y has the part ρ = Qᵀy within their span, and
    what is left of it is noise: the likelihood costs a factorisation of size q instead of N, and
    loses no digits.
    """

    factor: Float[Array, "r q"]
    """R."""
    size: Float[Array, " q"]
    """Mean square of each term."""
    within: Float[Array, " r"]
    """ρ."""
    left: Float[Array, ""]
    """‖y − Qρ‖²."""
    beyond: Float[Array, ""]
    """N − r."""


def turned(terms: Float[np.ndarray, "N q"], y: Float[np.ndarray, "N p"]) -> list[Turned]:
    """The data of each output, turned."""
    Q, R = np.linalg.qr(terms)
    within = Q.T @ y
    left = np.sum((y - Q @ within) ** 2, axis=0)
    size, beyond = np.mean(terms**2, axis=0), np.asarray(float(len(terms) - len(R)))
    parts = ((R, size, rho, rest, beyond) for rho, rest in zip(within.T, left, strict=True))
    return [Turned(*(jax.device_put(np.asarray(part)) for part in own)) for own in parts]


def turned_log_likelihood(
    variances: Float[Array, " q"], noise: Float[Array, ""], data: Turned
) -> Float[Array, ""]:
    """`log_marginal_likelihood` of terms whose weights have these prior variances."""
    noise = noise + JITTER * (data.size @ variances)
    K = (data.factor * variances[None]) @ data.factor.T + noise * jnp.eye(data.factor.shape[0])
    noisy = data.beyond * jnp.log(2 * jnp.pi * noise) + data.left / noise
    return _gaussian_log_density(K, data.within) - 0.5 * noisy


@jax.custom_vjp
def _gaussian_log_density(K: Float[Array, "N N"], y: Float[Array, " N"]) -> Float[Array, ""]:
    return _forward(K, y)[0]


def _forward(K, y):
    L = jnp.linalg.cholesky(K)
    alpha = jax.scipy.linalg.cho_solve((L, True), y)
    value = -0.5 * y @ alpha - jnp.sum(jnp.log(jnp.diag(L))) - 0.5 * len(y) * jnp.log(2 * jnp.pi)
    return value, (L, alpha)


def _backward(saved, cotangent):
    # ∂ log p/∂K = ½ (ααᵀ − K⁻¹): a third of the work of differentiating the factorisation. K is
    # symmetric, and so is whatever changes it: half of the inverse, twice, does as well.
    L, alpha = saved
    return cotangent * (0.5 * jnp.outer(alpha, alpha) - half_inverse(L)), -cotangent * alpha


_gaussian_log_density.defvjp(_forward, _backward)

"""The log marginal likelihood of one output and its gradient, at the cost of one factorisation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from offmap.gp.kernels import AbstractKernel
from offmap.gp.triangular import inverse_from_factor

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


@jax.custom_vjp
def _gaussian_log_density(K: Float[Array, "N N"], y: Float[Array, " N"]) -> Float[Array, ""]:
    return _forward(K, y)[0]


def _forward(K, y):
    L = jnp.linalg.cholesky(K)
    alpha = jax.scipy.linalg.cho_solve((L, True), y)
    value = -0.5 * y @ alpha - jnp.sum(jnp.log(jnp.diag(L))) - 0.5 * len(y) * jnp.log(2 * jnp.pi)
    return value, (L, alpha)


def _backward(saved, cotangent):
    # ∂ log p/∂K = ½ (ααᵀ − K⁻¹): a third of the work of differentiating the factorisation.
    L, alpha = saved
    inverse = inverse_from_factor(L)
    return cotangent * 0.5 * (jnp.outer(alpha, alpha) - inverse), -cotangent * alpha


_gaussian_log_density.defvjp(_forward, _backward)

"""The log marginal likelihood of one output and its gradient, at the cost of one factorisation."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.gp.kernels import AbstractKernel

JITTER = 1e-10
"""Added to the diagonal of a standardised covariance, relative to its mean, so that it factors."""

_WHOLE = 1024  # up to this size a factor is inverted at once,
_BLOCK = 160  # beyond, by blocks of at most this size
_GRAM_LEVELS = 3  # halvings of a product with its own transpose


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


def inverse_from_factor(L: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """(L Lᵀ)⁻¹ for a triangular L.

    Large ones go by blocks: their products take a third of the work of solving for the columns of
    the identity, and run at the speed of matrix products.
    """
    if L.shape[0] <= _WHOLE:
        return jax.scipy.linalg.cho_solve((L, True), jnp.eye(L.shape[0]))
    lower = _gram(_triangular_inverse(L), _GRAM_LEVELS)
    return jnp.tril(lower) + jnp.tril(lower, -1).T


def _triangular_inverse(L):
    """L⁻¹: small blocks on the diagonal first, all at once, then pairs of them, and so on."""
    levels = max(0, int(np.ceil(np.log2(L.shape[0] / _BLOCK))))
    count, size = 2**levels, -(-L.shape[0] // 2**levels)
    padded = jnp.eye(count * size).at[: L.shape[0], : L.shape[0]].set(L)

    def block(rows, columns, size):
        return padded.reshape(len(padded) // size, size, -1, size)[rows, :, columns, :]

    each = jnp.arange(count)
    identity = jnp.broadcast_to(jnp.eye(size), (count, size, size))
    inverse = jax.scipy.linalg.solve_triangular(block(each, each, size), identity, lower=True)
    for _ in range(levels):
        first, last, size = inverse[0::2], inverse[1::2], inverse.shape[1]
        pair = 2 * jnp.arange(len(first))
        corner = -last @ (block(pair + 1, pair, size) @ first)
        above = jnp.concatenate([first, jnp.zeros_like(first)], axis=2)
        inverse = jnp.concatenate([above, jnp.concatenate([corner, last], axis=2)], axis=1)
    return inverse[0, : L.shape[0], : L.shape[0]]


def _gram(M, levels):
    """Lower half of MᵀM for a lower triangular M, by halves; above the diagonal anything."""
    if levels == 0:
        return M.T @ M
    half = M.shape[0] // 2
    left, corner = M[half:, :half], M[half:, half:]
    first = _gram(M[:half, :half], levels - 1) + left.T @ left
    above = jnp.concatenate([first, jnp.zeros((half, M.shape[0] - half))], axis=1)
    below = jnp.concatenate([corner.T @ left, _gram(corner, levels - 1)], axis=1)
    return jnp.concatenate([above, below])


_gaussian_log_density.defvjp(_forward, _backward)

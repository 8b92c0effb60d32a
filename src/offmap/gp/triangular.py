"""Half the inverse of a matrix from its triangular factor, at the speed of matrix products.

Solving for the columns of the identity does three times the work that triangles need, and on a GPU
the solver is slow besides. Here blocks are multiplied, those known to be zero left out.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_WHOLE = 1024  # up to this size a factor is inverted at once,
_BLOCK = 160  # beyond, by blocks of at most this size
_LEVELS = 3  # halvings of a product in which zeros are left out
_WORTH = 2048  # and the size from which that pays


def half_inverse(L: Float[Array, "N N"]) -> Float[Array, "N N"]:
    """The H with H + Hᵀ = (L Lᵀ)⁻¹ for a lower triangular L: all that a gradient needs of it."""
    if L.shape[0] <= _WHOLE:
        return 0.5 * jax.scipy.linalg.cho_solve((L, True), jnp.eye(L.shape[0]))
    lower = _triangular_gram(_triangular_inverse(L), _LEVELS)
    return jnp.tril(lower, -1) + 0.5 * jnp.diag(jnp.diag(lower))


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
        worth = _LEVELS - 1 if size >= _WORTH else 0
        corner = -_lower_times(last, _times_lower(block(pair + 1, pair, size), first, worth), worth)
        inverse = _stacked(first, jnp.zeros_like(first), corner, last)
    return inverse[0, : L.shape[0], : L.shape[0]]


def _lower_times(T, B, levels):
    """T B for a lower triangular T."""
    if levels == 0:
        return T @ B
    half = T.shape[-1] // 2
    top = _lower_times(T[..., :half, :half], B[..., :half, :], levels - 1)
    rest = _lower_times(T[..., half:, half:], B[..., half:, :], levels - 1)
    return jnp.concatenate([top, T[..., half:, :half] @ B[..., :half, :] + rest], axis=-2)


def _times_lower(B, T, levels):
    """B T for a lower triangular T."""
    if levels == 0:
        return B @ T
    half = T.shape[-1] // 2
    left = _times_lower(B[..., :half], T[..., :half, :half], levels - 1)
    right = _times_lower(B[..., half:], T[..., half:, half:], levels - 1)
    return jnp.concatenate([left + B[..., half:] @ T[..., half:, :half], right], axis=-1)


def _triangular_gram(M, levels):
    """Lower half of MᵀM for a lower triangular M; above the diagonal anything."""
    if levels == 0:
        return M.T @ M
    half = M.shape[0] // 2
    left, corner = M[half:, :half], M[half:, half:]
    first = _triangular_gram(M[:half, :half], levels - 1) + _gram(left, levels - 1)
    below = _times_lower(left.T, corner, levels - 1).T
    return _stacked(first, jnp.zeros_like(below.T), below, _triangular_gram(corner, levels - 1))


def _gram(A, levels):
    """Lower half of AᵀA; above the diagonal anything."""
    if levels == 0:
        return A.T @ A
    half = A.shape[1] // 2
    left, right = A[:, :half], A[:, half:]
    below = right.T @ left
    first, last = _gram(left, levels - 1), _gram(right, levels - 1)
    return _stacked(first, jnp.zeros_like(below.T), below, last)


def _stacked(first, above, below, last):
    """[[first, above], [below, last]]."""
    top = jnp.concatenate([first, above], axis=-1)
    return jnp.concatenate([top, jnp.concatenate([below, last], axis=-1)], axis=-2)

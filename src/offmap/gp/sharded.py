"""The marginal likelihood and its gradient with the samples spread over several devices.

Each device holds its share of the rows of the covariance, of its derivative and of its inverse,
which is most of the work and of what is differentiated; the factorisation is done by all alike.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float

from offmap.gp.kernels import AbstractKernel
from offmap.gp.likelihood import JITTER

_ROWS = "rows"


def device_mesh(count: int) -> Mesh:
    """The first devices there are, as the places of rows."""
    if not 1 <= count <= jax.device_count():
        raise ValueError(
            f"A likelihood is spread over devices that exist; got {count} where JAX sees "
            f"{jax.device_count()}. Ask for at most as many."
        )
    return Mesh(np.asarray(jax.devices()[:count]), (_ROWS,))


def sharded_value_and_grad(
    kernel: AbstractKernel,
    log_noise: Float[Array, ""] | Float[np.ndarray, ""],
    x: Float[Array, "N d"],
    y: Float[Array | np.ndarray, " N"],
    mesh: Mesh,
) -> tuple[Float[Array, ""], Any]:
    """−log p(y | x) and its gradient with respect to (kernel, log_noise).

    Equal to that of `log_marginal_likelihood` but for the order of sums.
    """
    N, count = x.shape[0], mesh.size
    padding = -N % count  # so that every device has as many rows
    real = jnp.arange(N + padding) < N
    x = jnp.pad(x, ((0, padding), (0, 0)))
    y = jnp.pad(jnp.asarray(y), (0, padding))
    spread, same = PartitionSpec(_ROWS), PartitionSpec()
    return jax.shard_map(
        _of_own_rows,
        mesh=mesh,
        in_specs=(same, spread, spread, spread),
        out_specs=same,
        check_vma=False,  # sums over all devices are the same everywhere, which it cannot see
    )((kernel, log_noise), x, y, real)


def _of_own_rows(parameters, x, y, real):
    """What one device does with its rows; sums with the others' are the answer."""
    first = jax.lax.axis_index(_ROWS) * len(x)
    all_x, all_y, all_real = (
        jax.lax.all_gather(part, _ROWS, axis=0, tiled=True) for part in (x, y, real)
    )
    identity = (first + jnp.arange(len(x)))[:, None] == jnp.arange(len(all_x))[None, :]

    def rows(parameters):
        kernel, log_noise = parameters
        total = jnp.sum(jnp.where(all_real, kernel.variance(all_x), 0.0))
        diagonal = jnp.exp(log_noise) + JITTER * total / jnp.sum(all_real)
        within = jnp.where(real[:, None] & all_real[None, :], kernel(x, all_x), 0.0)
        # A padded row says that an independent number is 0: the likelihood stays what it is.
        return within + jnp.where(real, diagonal, 1.0)[:, None] * identity

    covariance, derivative = jax.vjp(rows, parameters)
    L = jnp.linalg.cholesky(jax.lax.all_gather(covariance, _ROWS, axis=0, tiled=True))
    alpha = cho_solve((L, True), all_y)
    determinant = jnp.sum(jnp.log(jnp.diag(L)))
    value = 0.5 * all_y @ alpha + determinant + 0.5 * jnp.sum(all_real) * jnp.log(2 * jnp.pi)
    inverse = cho_solve((L, True), identity.T.astype(L.dtype)).T
    # ∂(−log p)/∂K = ½ (K⁻¹ − ααᵀ), as in `likelihood`.
    own_alpha = jax.lax.dynamic_slice_in_dim(alpha, first, len(x))
    (gradient,) = derivative(0.5 * (inverse - jnp.outer(own_alpha, alpha)))
    return value, jax.tree.map(lambda part: jax.lax.psum(part, _ROWS), gradient)

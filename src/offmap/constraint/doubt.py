"""How far the weights of short equations may be off, from the motions they were fitted to."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from offmap.constraint.library import DictionaryConstraint


def weight_doubt(
    gamma: DictionaryConstraint, x: Float[np.ndarray, "N n"], xdot: Float[np.ndarray, "N n"]
) -> Float[np.ndarray, "e c k q"]:
    """Directions D of the weights' error: W + Σ εₑ Dₑ with ε ~ N(0, I) is as likely as W.

    In each row the largest weight is fixed, and the covariance of the others is that of least
    squares with residuals whose size differs from sample to sample (White's sandwich).
    """
    phi = np.asarray(jax.vmap(gamma.library)(jnp.asarray(x)))
    right = np.concatenate([xdot, np.ones((len(x), 1))], axis=1)
    directions = []
    for i, row in enumerate(np.asarray(gamma.weights)):
        support = np.argwhere(row != 0)
        terms = np.stack([phi[:, k] * right[:, j] for k, j in support], axis=1)
        size = np.abs([row[k, j] for k, j in support])
        residual = terms @ np.array([row[k, j] for k, j in support])
        free = [e for e in range(len(support)) if e != int(np.argmax(size))]
        if not free:
            continue
        inverse = np.linalg.pinv(terms[:, free])
        left = np.linalg.svd(inverse * residual[None], full_matrices=False)
        factor = left[0] * left[1][None]  # factor factorᵀ = inverse diag(residual²) inverseᵀ
        for column in factor.T:
            direction = np.zeros_like(np.asarray(gamma.weights))
            for e, value in zip(free, column, strict=True):
                direction[i, support[e][0], support[e][1]] = value
            directions.append(direction)
    return np.array(directions).reshape(len(directions), *gamma.weights.shape)

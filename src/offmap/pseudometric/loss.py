"""The InfoNCE loss with cosine similarity (paper eq. contrastive)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

_TINY = 1e-12  # keeps the norm of a point at the origin differentiable


def cosine_similarity(
    factor: Float[Array, "d d"], a: Float[Array, "A d"], b: Float[Array, "B d"]
) -> Float[Array, "A B"]:
    """sim(z, z') = zᵀPz' / (√(zᵀPz) √(z'ᵀPz')) for all pairs, with P = factorᵀ factor."""
    return _unit(a @ factor.T) @ _unit(b @ factor.T).T


def info_nce(
    factor: Float[Array, "d d"],
    anchors: Float[Array, "B d"],
    positives: Float[Array, "B d"],
    negative: Bool[Array, "B B"],
    *,
    temperature: float = 1.0,
    positive_in_denominator: bool = False,
) -> Float[Array, ""]:
    """Mean of −log(exp sim(z, zᵖ) / Σₖ exp sim(z, zₖⁿ)) over the batch.

    Args:
        factor: square root of P, so that P is positive semi-definite by construction.
        anchors: the batch z.
        positives: the positive partner of each anchor.
        negative: entry (i, k) says that anchor k is a negative of anchor i.
        temperature: divides the similarity; the paper prints none, which is 1.
        positive_in_denominator: the standard form of InfoNCE; the paper prints negatives only.
    """
    unit = _unit(anchors @ factor.T)
    to_positive = jnp.sum(unit * _unit(positives @ factor.T), axis=1) / temperature
    to_negative = jnp.where(negative, unit @ unit.T / temperature, -jnp.inf)
    denominator = jax.nn.logsumexp(to_negative, axis=1)
    if positive_in_denominator:
        denominator = jnp.logaddexp(denominator, to_positive)
    return jnp.mean(denominator - to_positive)


def _unit(embedded: Float[Array, "B d"]) -> Float[Array, "B d"]:
    return embedded / jnp.sqrt(jnp.sum(embedded**2, axis=1, keepdims=True) + _TINY)

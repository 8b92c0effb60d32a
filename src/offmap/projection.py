"""The nearest velocity that obeys the constraint (paper eq. projection)."""

import jax.numpy as jnp
from jaxtyping import Array, Float

_RANK_TOLERANCE = 1e-12


def project(xdot: Float[Array, " n"], gamma: Float[Array, "c q"]) -> Float[Array, " n"]:
    """Argmin ‖ẋ − ẋ_pred‖² subject to G ẋ + g = 0, with Γ = [G g], in closed form.

    ẋ = ẋ_pred − Gᵀ (G Gᵀ)⁺ (G ẋ_pred + g). Rows are first scaled to unit G, so that the rank is
    judged by directions and not by units; rows that repeat others, or whose G vanishes, then drop
    out through the pseudo-inverse and the rest still hold. With contradictory rows the result
    satisfies them in the least-squares sense.
    """
    G, g = _unit(gamma)
    return xdot - _correction(G, G @ xdot + g)


def soft_project(
    xdot: Float[Array, " n"],
    variance: Float[Array, " n"],
    gamma: Float[Array, "c q"],
    softness: Float[Array, " c"],
) -> tuple[Float[Array, " n"], Float[Array, "n n"]]:
    """The likeliest velocity given a prediction and a constraint that may not hold exactly.

    ẋ ~ N(ẋ_pred, Σ) with Σ = diag(variance), and G ẋ + g ~ N(0, S) with S = diag(softness²) for
    rows of unit G, so ẋ = ẋ_pred − Σ Gᵀ (G Σ Gᵀ + S)⁻¹ (G ẋ_pred + g). Also its covariance.
    """
    covariance = jnp.diag(variance)
    gain, G = soft_gain(variance, gamma, softness)
    _, g = _unit(gamma)
    return xdot - gain @ (G @ xdot + g), covariance - gain @ G @ covariance


def soft_gain(
    variance: Float[Array, " n"], gamma: Float[Array, "c q"], softness: Float[Array, " c"]
) -> tuple[Float[Array, "n c"], Float[Array, "c n"]]:
    """Σ Gᵀ (G Σ Gᵀ + S)⁻¹ of a soft projection, and G with unit rows."""
    G, _ = _unit(gamma)
    covariance = jnp.diag(variance)
    innovation = G @ covariance @ G.T + jnp.diag(softness**2)
    # Rows that repeat each other make it singular: as little as the rank tolerance keeps it whole.
    least = _RANK_TOLERANCE * jnp.trace(innovation) + jnp.finfo(variance.dtype).tiny
    gain = jnp.linalg.solve(innovation + least * jnp.eye(G.shape[0]), G @ covariance).T
    return gain, G


def unit_residual(xdot: Float[Array, " n"], gamma: Float[Array, "c q"]) -> Float[Array, " c"]:
    """By how much a velocity breaks each constraint, for rows scaled to unit G."""
    G, g = _unit(gamma)
    return G @ xdot + g


def tangential(vectors: Float[Array, "n k"], gamma: Float[Array, "c q"]) -> Float[Array, "n k"]:
    """What remains of each column in the space {v : G v = 0}."""
    G, _ = _unit(gamma)
    return vectors - _correction(G, G @ vectors)


def tangent_projector(gamma: Float[Array, "c q"]) -> Float[Array, "n n"]:
    """I − Gᵀ (G Gᵀ)⁺ G, the linear part of the projection."""
    G, _ = _unit(gamma)
    return jnp.eye(G.shape[1]) - _correction(G, G)


def _correction(G, violation):
    """Gᵀ (G Gᵀ)⁺ violation for unit rows G."""
    if G.shape[0] == 0:
        return jnp.zeros((G.shape[1], *violation.shape[1:]))
    if G.shape[0] == 1:
        return jnp.tensordot(G[0], violation[0], axes=0)
    gram = G @ G.T
    return G.T @ (jnp.linalg.pinv(gram, rtol=_RANK_TOLERANCE, hermitian=True) @ violation)


def _unit(gamma: Float[Array, "c q"]) -> tuple[Float[Array, "c n"], Float[Array, " c"]]:
    """Rows scaled to unit G; a row whose G vanishes becomes zero."""
    G, g = gamma[:, :-1], gamma[:, -1]
    squared = jnp.sum(G**2, axis=1)
    largest = jnp.max(jnp.abs(gamma), initial=0.0)
    alive = squared > (_RANK_TOLERANCE * largest) ** 2
    inverse = jnp.where(alive, 1 / jnp.sqrt(jnp.where(alive, squared, 1.0)), 0.0)
    return G * inverse[:, None], g * inverse

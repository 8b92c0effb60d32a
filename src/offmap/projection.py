"""The nearest velocity that obeys the constraint (paper eq. projection)."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

_RANK_TOLERANCE = 1e-12
_UNROLLED = 6  # more rows than this are too many to be written out


def project(xdot: Float[Array, " n"], gamma: Float[Array, "c q"]) -> Float[Array, " n"]:
    """Argmin ‖ẋ − ẋ_pred‖² subject to G ẋ + g = 0, with Γ = [G g], in closed form.

    ẋ = ẋ_pred − Gᵀ (G Gᵀ)⁺ (G ẋ_pred + g). Rows are first scaled to unit G, so that the rank is
    judged by directions and not by units; rows that repeat others, or whose G vanishes, then drop
    out through the pseudo-inverse and the rest still hold. With contradictory rows the result
    satisfies them in the least-squares sense.
    """
    c = gamma.shape[0]
    if c == 0:
        return xdot
    G, g = _unit(gamma)
    violation = jnp.sum(G * xdot[None], axis=1) + g
    if c == 1:
        return xdot - G[0] * violation[0]
    if c > _UNROLLED:
        return xdot - G.T @ (_pseudo_inverse(G) @ violation)
    Q, L, alive = _row_space(G)
    amounts = _least_squares(L, alive, [violation[i] for i in range(c)])
    return xdot - _dot(amounts, Q)


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
    c = G.shape[0]
    if c > _UNROLLED:
        return vectors - G.T @ (_pseudo_inverse(G) @ (G @ vectors))
    rows = [G[0]] if c == 1 else _row_space(G)[0]
    return vectors - _dot([q[:, None] for q in rows], [(q @ vectors)[None] for q in rows])


def normal_steps(gamma: Float[Array, "c q"]) -> Float[Array, "n c"]:
    """G⁺ for rows of unit G: the least change of a velocity that moves each row's residual by 1."""
    G, _ = _unit(gamma)
    right = -jnp.eye(G.shape[0])
    rows = [jnp.concatenate([G, column[:, None]], axis=1) for column in right]
    return jnp.stack([project(jnp.zeros(G.shape[1]), row) for row in rows], axis=1)


def tangent_projector(gamma: Float[Array, "c q"]) -> Float[Array, "n n"]:
    """I − Gᵀ (G Gᵀ)⁺ G, the linear part of the projection."""
    return tangential(jnp.eye(gamma.shape[1] - 1), gamma)


def _pseudo_inverse(G):
    """(G Gᵀ)⁺."""
    return jnp.linalg.pinv(G @ G.T, rtol=_RANK_TOLERANCE, hermitian=True)


def _row_space(G):
    """G = L Q by modified Gram–Schmidt: orthonormal rows Q, lower triangular L, and which count.

    A row that depends on those before it gives a zero row of Q. Written out row by row, since a
    batch of small problems is then a few passes over long arrays, where a batch of calls to LAPACK
    costs five times as much.
    """
    Q: list[Any] = []
    L: list[list[Any]] = []
    alive: list[Any] = []
    for row in G:
        shares = []
        rest = row
        for q in Q:
            shares.append(jnp.sum(rest * q))
            rest = rest - shares[-1] * q
        squared = jnp.sum(rest**2)
        counts = squared > _RANK_TOLERANCE
        norm = jnp.sqrt(jnp.where(counts, squared, 1.0))
        Q.append(rest * jnp.where(counts, 1 / norm, 0.0))
        L.append([*shares, jnp.where(counts, norm, 0.0)])
        alive.append(counts)
    return Q, L, alive


def _least_squares(L, alive, right):
    """L⁺ right: Lᵀ L y = Lᵀ right by Cholesky, with y = 0 where L has a zero column."""
    c = len(L)
    factor: list[list[Any]] = [[] for _ in range(c)]
    inverse: list[Any] = []
    half: list[Any] = []
    for j in range(c):
        for i in range(j, c):
            entry = _dot([L[k][i] for k in range(i, c)], [L[k][j] for k in range(i, c)])
            factor[i].append(entry - _dot(factor[i][:j], factor[j][:j]))
        inverse.append(jnp.where(alive[j], 1 / jnp.sqrt(jnp.where(alive[j], factor[j][j], 1)), 0))
        for i in range(j, c):
            factor[i][j] = factor[i][j] * inverse[j]
        entry = _dot([L[k][j] for k in range(j, c)], right[j:])
        half.append((entry - _dot(factor[j][:j], half)) * inverse[j])
    y: list[Any] = []
    for j in reversed(range(c)):
        below = [factor[i][j] for i in range(j + 1, c)]
        y.insert(0, (half[j] - _dot(below, y)) * inverse[j])
    return y


def _dot(first, second):
    """Σ firstᵢ secondᵢ, of numbers or arrays; 0 if there are none."""
    return sum((a * b for a, b in zip(first, second, strict=True)), start=0.0)


def _unit(gamma: Float[Array, "c q"]) -> tuple[Float[Array, "c n"], Float[Array, " c"]]:
    """Rows scaled to unit G; a row whose G vanishes becomes zero."""
    G, g = gamma[:, :-1], gamma[:, -1]
    squared = jnp.sum(G**2, axis=1)
    largest = jnp.max(jnp.abs(gamma), initial=0.0)
    alive = squared > (_RANK_TOLERANCE * largest) ** 2
    inverse = jnp.where(alive, 1 / jnp.sqrt(jnp.where(alive, squared, 1.0)), 0.0)
    return G * inverse[:, None], g * inverse

"""What a fit leaves that is no noise: residuals that the inputs explain beyond chance."""

from itertools import combinations, combinations_with_replacement

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import f as f_distribution

from offmap.calls import at_each
from offmap.gp.expansion import AbstractGPs, Scaling
from offmap.gp.straight import straight_terms

_SIGNIFICANCE = 1e-3  # less than this, and what is explained is no chance
_DEPENDENT = 1e-6  # singular values below this share of the largest are none
_POINTS = 3000  # of larger data sets
_FACTORS = 3  # of products that may explain a residual
_MOST = 10  # of these that are asked for by name
_EACH = 4  # samples for each of them, at least
_ROUND_OFF = 1e-9  # of the outputs' spread: smaller misfits are none


def beyond_chance(residual: Float[np.ndarray, " N"], columns: Float[np.ndarray, "N k"]) -> float:
    """Sum of squares of what columns explain of a residual; 0 where it may be chance (F-test)."""
    length = np.linalg.norm(columns, axis=0)
    basis, size, _ = np.linalg.svd(columns[:, length > 0] / length[length > 0], full_matrices=False)
    basis = basis[:, size > _DEPENDENT * size[0]]
    terms, freedom = basis.shape[1], len(residual) - basis.shape[1]
    if freedom < terms:  # too few samples to tell what is explained from what is fitted
        return 0.0
    explained = float(np.sum((basis.T @ residual) ** 2))
    noise = max(float(residual @ residual) - explained, 1e-300) / freedom
    if f_distribution.sf(explained / terms / noise, terms, freedom) > _SIGNIFICANCE:
        return 0.0
    return max(explained - terms * noise, 0.0)


def standing_out(residual: Float[np.ndarray, " N"], columns: Float[np.ndarray, "N k"]) -> list[int]:
    """Columns that explain a residual, each beyond chance beside those before it (F-tests)."""
    chosen: list[int] = []
    least = _DEPENDENT * np.linalg.norm(columns, axis=0)
    for freedom in range(len(residual) - 1, max(0, len(residual) - 1 - _MOST), -1):
        length = np.linalg.norm(columns, axis=0)
        new = (length > least) & ~np.isin(np.arange(len(least)), chosen)
        unit = columns / np.where(new, length, np.inf)
        share = unit.T @ residual
        best = int(np.argmax(np.abs(share)))
        noise = max(float(residual @ residual - share[best] ** 2), 1e-300) / freedom
        if len(least) * f_distribution.sf(share[best] ** 2 / noise, 1, freedom) > _SIGNIFICANCE:
            break
        chosen.append(best)
        residual = residual - share[best] * unit[:, best]
        columns = columns - np.outer(unit[:, best], unit[:, best] @ columns)
    return chosen


class Strays(eqx.Module):
    """What straight functions may miss: sums of products of few inputs, with unknown weights."""

    scaling: Scaling
    deviation: Float[Array, "p k"]
    """Of the weight of each product of standardised inputs."""
    products: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    """Which inputs are multiplied; none: a constant."""

    def terms(self, x: Float[Array, " d"]) -> Float[Array, " k"]:
        """All products at one point."""
        z = (x - self.scaling.x_mean) / self.scaling.x_scale
        return jnp.stack([jnp.prod(z[jnp.array(own, int)]) for own in self.products])

    def variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Of what is missed at one point."""
        return self.deviation**2 @ self.terms(x) ** 2


def strayed(
    gps: AbstractGPs, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"]
) -> Strays | None:
    """How far functions stray from straight ones; None where they may bend, or do not stray.

    Told by products of at most three inputs, or of as many as there are samples for. At the samples
    it is as much as they explain, as a root mean square; beyond, it grows as the products do that
    stand out. Of those neither weight nor where they vanish is taken for known: instead of a z₁ z₂,
    a (z₁ − b)(z₂ − c) with a, b, c of unit size, whose variance is a² (1 + z₁²)(1 + z₂²).
    """
    few = slice(None, None, -(-len(x) // _POINTS))
    x, y = x[few], y[few]
    z, spread = gps.scaling.standardised_x(x), np.asarray(gps.scaling.y_scale)
    if straight_terms(gps.kernel, z) is None:
        return None
    products: list[tuple[int, ...]] = [()]
    for factors in range(1, _FACTORS + 1):
        more = list(combinations_with_replacement(range(z.shape[1]), factors))
        if _EACH * (len(products) + len(more)) > len(z):
            break
        products += more
    columns = np.stack([np.prod(z[:, list(own)], axis=1) for own in products], axis=1)
    variances = np.zeros((y.shape[1], len(products)))
    for j, residual in enumerate((y - np.asarray(at_each(gps, x))).T):
        level = beyond_chance(residual, columns) / len(residual)
        if np.sqrt(level) > _ROUND_OFF * spread[j]:
            weights = _opened(residual, columns, products)
            variances[j] = weights * level / np.mean(columns**2 @ weights)
    used = np.flatnonzero(np.any(variances > 0, axis=0))
    if not len(used):
        return None
    deviation = jnp.asarray(np.sqrt(variances[:, used]))
    return Strays(gps.scaling, deviation, tuple(products[k] for k in used))


def _opened(
    residual: Float[np.ndarray, " N"],
    columns: Float[np.ndarray, "N k"],
    products: list[tuple[int, ...]],
) -> Float[np.ndarray, " k"]:
    """Variances of all weights, up to a factor: of what stands out, and of all parts of that."""
    chosen = standing_out(residual, columns)
    weights = np.linalg.lstsq(columns[:, chosen], residual, rcond=None)[0]
    variances = np.zeros(len(products))
    for own, weight in zip(chosen, weights, strict=True):
        for factors in range(len(products[own]) + 1):
            for part in combinations(products[own], factors):
                variances[products.index(part)] += weight**2
    return variances if chosen else np.eye(len(products))[0]  # else a constant

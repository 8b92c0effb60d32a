"""Means that are straight in the inputs: sums over all samples, done once and for all."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import solve_triangular

from offmap.gp.expansion import AbstractGPs, Scaling
from offmap.gp.induced import InducedGPs
from offmap.gp.kernels import AbstractKernel, ControlAffine, Linear
from offmap.gp.posterior import IndependentGPs
from offmap.regressor import AbstractRegressor


class StraightMean(AbstractRegressor):
    """The mean of GPs that is bilinear in (1, u) and (1, x): all that a loop needs of them."""

    scaling: Scaling
    coefficients: Float[Array, "p parts terms"]
    """Of each product of an entry of (1, u) and one of (1, x), standardised."""
    controls: tuple[int, ...] = eqx.field(static=True)
    others: tuple[int, ...] = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    roots: Float[Array, "p k q"] | None = None
    """R of the posterior covariance Rᵀ R of all products' weights, if variances were asked for."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Posterior mean at one point."""
        u, terms = self._factors_at(x)
        mean = jnp.sum((self.coefficients @ terms) * u[None], axis=1)
        return mean * self.scaling.y_scale + self.scaling.y_mean

    def variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Posterior variance at one point; not known unless it was asked for."""
        if self.roots is None:
            raise _without_samples()
        u, terms = self._factors_at(x)
        left = self.roots @ (u[:, None] * terms[None]).reshape(-1)
        return jnp.sum(left**2, axis=1) * self.scaling.y_scale**2

    def _factors_at(self, x: Float[Array, " d"]) -> tuple[Float[Array, " m"], Float[Array, " k"]]:
        """(1, u) and (1, x)."""
        z = (x - self.scaling.x_mean) / self.scaling.x_scale
        ones = jnp.ones(1)
        u = jnp.concatenate([ones, z[jnp.array(self.controls, int)]])
        return u, jnp.concatenate([ones, z[jnp.array(self.others, int)]])

    def noise_level(self) -> Float[np.ndarray, " p"]:
        """Not known any more."""
        raise _without_samples()

    def points(self) -> int:
        """Number of samples it was conditioned on."""
        return self.samples

    def conditioned(
        self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"]
    ) -> AbstractRegressor:
        """Not possible any more."""
        raise _without_samples()

    def mean_only(self) -> "StraightMean":
        """Itself."""
        return self


def compact(regressor: AbstractRegressor) -> AbstractRegressor:
    """The same mean at the least cost, without variances: a few products where it is straight."""
    if not isinstance(regressor, AbstractGPs):
        return regressor
    x, weighted = np.asarray(regressor.x), np.asarray(regressor.alpha)
    coefficients = straight_coefficients(regressor.kernel, x, weighted)
    if coefficients is None:
        return regressor.mean_only()
    factors = _factors(regressor.kernel, x.shape[1])
    return StraightMean(regressor.scaling, jnp.asarray(coefficients), *factors, regressor.points())


def with_variances(gps: AbstractRegressor) -> StraightMean | None:
    """Straight GPs as a few products, their variances as well; None where they are not straight."""
    mean = compact(gps)
    if not isinstance(mean, StraightMean):
        return None
    assert isinstance(gps, IndependentGPs | InducedGPs)
    room, terms = np.asarray(_variances(gps.kernel)), straight_terms(gps.kernel, np.asarray(gps.x))
    told = np.asarray(terms)
    if isinstance(gps, IndependentGPs):
        roots = [_by_samples(gps, i, told, each) for i, each in enumerate(room)]
    else:
        roots = [_by_centres(gps, i, told, each) for i, each in enumerate(room)]
    return replace(mean, roots=jnp.asarray(np.stack(roots)))


def _by_samples(gps: IndependentGPs, i: int, terms: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The root for one output, of weights N(0, room) seen through noisy sums of terms."""
    told = terms * np.sqrt(room) / np.sqrt(np.asarray(gps.noise[i]))[:, None]
    above = np.linalg.qr(np.concatenate([told, np.eye(len(room))]), mode="r")
    return solve_triangular(above, np.diag(np.sqrt(room)), trans=1)


def _by_centres(gps: InducedGPs, i: int, terms: np.ndarray, room: np.ndarray) -> np.ndarray:
    """The same where centres tell about the weights, and samples about the centres."""
    corner, now, _ = gps.known()
    phi = solve_triangular(np.asarray(corner[i]), terms * room, lower=True)
    values, vectors = np.linalg.eigh(np.diag(room) - phi.T @ phi)
    unexplained = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
    return np.concatenate([solve_triangular(np.asarray(now.root[i]), phi, trans=1), unexplained])


def _factors(kernel: AbstractKernel, d: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which of d inputs are the u, and which the x, of functions affine in u."""
    if isinstance(kernel, ControlAffine):
        return kernel.controls, kernel.others(d)
    return (), tuple(range(d))


def straight_terms(
    kernel: AbstractKernel, x: Float[np.ndarray | Array, "N d"]
) -> Float[np.ndarray | Array, "N q"] | None:
    """What functions of a straight kernel are sums of, at every point; None if it has bumps."""
    xp: Any = np if isinstance(x, np.ndarray) else jnp  # the latter within a program
    ones = xp.ones((len(x), 1))
    if isinstance(kernel, Linear):
        return xp.concatenate([ones, x], axis=1)
    if isinstance(kernel, ControlAffine):
        others = kernel.others(x.shape[1])
        if kernel.smooth and others:
            return None
        u = xp.concatenate([ones, x[:, np.array(kernel.controls, int)]], axis=1)
        v = xp.concatenate([ones, x[:, np.array(others, int)]], axis=1)
        return (u[:, :, None] * v[:, None, :]).reshape(len(x), -1)
    return None


def straight_variances(kernel: AbstractKernel) -> Float[Array, " q"]:
    """Prior variances of the weights of those terms."""
    if isinstance(kernel, Linear):
        return jnp.exp(2 * jnp.concatenate([kernel.log_bias[None], kernel.log_slope]))
    assert isinstance(kernel, ControlAffine)
    smooth, _, constant = jnp.exp(kernel.log_weights)
    constant = constant + smooth if kernel.smooth else constant  # a bump over no input
    return jnp.concatenate([constant[:, None], kernel.slopes()], axis=1).reshape(-1)


def straight_coefficients(
    kernel: AbstractKernel, x: Float[np.ndarray, "N d"], weighted: Float[np.ndarray, "*S p N"]
) -> Float[np.ndarray, "*S p parts terms"] | None:
    """Of Σᵢ weightedᵢ k(·, xᵢ), as `StraightMean` has them; None where that is not straight."""
    terms = straight_terms(kernel, x)
    if terms is None:
        return None
    parts = len(kernel.controls) + 1 if isinstance(kernel, ControlAffine) else 1
    flat = np.asarray(_variances(kernel)) * (weighted @ terms)
    return flat.reshape(*flat.shape[:-1], parts, -1)


@eqx.filter_jit
def _variances(kernel):
    """Of every output; leaves of the kernel carry the axis p."""
    return eqx.filter_vmap(straight_variances)(kernel)


def _without_samples() -> ValueError:
    return ValueError(
        "Standard deviations and further data need the samples; this mean was reduced to a few "
        "products. Use the model as it was fitted."
    )

"""Posterior means as sums of kernel functions: what every conditioned GP is to its callers."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.gp.kernels import AbstractKernel
from offmap.regressor import AbstractRegressor


class Scaling(eqx.Module):
    """Mean and spread by which inputs and outputs are standardised."""

    x_mean: Float[Array, " d"]
    x_scale: Float[Array, " d"]
    y_mean: Float[Array, " p"]
    y_scale: Float[Array, " p"]

    @staticmethod
    def of(
        x: Float[np.ndarray, "N d"],
        y: Float[np.ndarray, "N p"],
        *,
        centre: bool = True,
        centre_inputs: bool = True,
    ) -> "Scaling":
        """Scaling under which these data have mean 0 and spread 1; either may keep its zero."""
        by_mean, by_size = (lambda v: (v.mean(axis=0), _spread(v))), _about_zero
        inputs, outputs = (by_mean if wanted else by_size for wanted in (centre_inputs, centre))
        return Scaling(*jax.device_put((*inputs(x), *outputs(y))))

    def standardised_x(self, x: Float[np.ndarray | Array, "N d"]) -> Float[np.ndarray, "N d"]:
        """Inputs as the GPs see them."""
        return (np.asarray(x) - np.asarray(self.x_mean)) / np.asarray(self.x_scale)

    def standardised_y(self, y: Float[np.ndarray | Array, "N p"]) -> Float[np.ndarray, "N p"]:
        """Outputs as the GPs see them."""
        return (np.asarray(y) - np.asarray(self.y_mean)) / np.asarray(self.y_scale)


class AbstractGPs(AbstractRegressor):
    """p GPs over the same inputs whose means are Σᵢ alphaᵢ k(·, xᵢ), all data standardised.

    Leaves of `kernel` carry a leading axis p.
    """

    kernel: eqx.AbstractVar[AbstractKernel]
    scaling: eqx.AbstractVar[Scaling]
    x: eqx.AbstractVar[Float[Array, "N d"]]
    alpha: eqx.AbstractVar[Float[Array, "p N"]]

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Posterior mean at one point."""
        covariance = self.covariance(x)
        return jnp.sum(covariance * self.alpha, axis=1) * self.scaling.y_scale + self.scaling.y_mean

    def covariance(self, x: Float[Array, " d"]) -> Float[Array, "p N"]:
        """Of each output at one point with the points of its sum."""
        z = (x - self.scaling.x_mean) / self.scaling.x_scale
        return eqx.filter_vmap(lambda kernel: kernel(z[None], self.x)[0])(self.kernel)

    def prior_variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Of each standardised output at one point."""
        z = (x - self.scaling.x_mean) / self.scaling.x_scale
        return eqx.filter_vmap(lambda kernel: kernel.variance(z[None])[0])(self.kernel)

    @abstractmethod
    def base_noise(self) -> Float[Array, " p"]:
        """Noise variance of the primary source, in standardised units."""

    @abstractmethod
    def base_points(self) -> int:
        """Number of points that `without_extension` leaves: those of the primary source."""

    @abstractmethod
    def without_extension(self) -> "AbstractGPs":
        """The posterior given the base points alone."""

    @abstractmethod
    def extended(
        self,
        x: Float[np.ndarray, "E d"],
        y: Float[np.ndarray, "E p"],
        noise: Float[np.ndarray | Array, " p"] | None,
    ) -> "AbstractGPs":
        """The posterior given further points; `noise=None` learns their level."""

    def noise_level(self) -> Float[np.ndarray, " p"]:
        """Standard deviation of the base points' noise, in units of each output's spread."""
        return np.sqrt(np.asarray(self.base_noise()))


def _about_zero(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A mean of 0, and the size of each column."""
    size = np.sqrt(np.mean(values**2, axis=0))
    return np.zeros(values.shape[1]), np.where(size > 0, size, 1.0)


def _spread(values: np.ndarray) -> np.ndarray:
    """Standard deviation, or 1 for a column that varies at round-off level only."""
    spread = values.std(axis=0)
    flat = spread <= 1e-12 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    return np.where(flat, 1.0, spread)

"""What the dynamics stage asks of a regressor; Gaussian processes and neural ensembles give it."""

from abc import abstractmethod

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float


class AbstractRegressor(eqx.Module):
    """A function fitted to data, with p outputs that know how uncertain they are."""

    @abstractmethod
    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Prediction at one point."""

    @abstractmethod
    def variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Variance of the noise-free function at one point."""

    @abstractmethod
    def noise_level(self) -> Float[np.ndarray, " p"]:
        """Standard deviation of the primary source's noise, in units of each output's spread."""

    @abstractmethod
    def points(self) -> int:
        """Number of samples it is conditioned on."""

    @abstractmethod
    def conditioned(
        self, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"]
    ) -> "AbstractRegressor":
        """What the same settings learn from other data of the primary source."""

    @abstractmethod
    def mean_only(self) -> "AbstractRegressor":
        """The same predictions without what standard deviations and updates need."""

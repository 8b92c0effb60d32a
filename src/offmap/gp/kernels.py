"""Covariance functions in matrix-product form: each maps two sets of points to a matrix.

Parameters are stored as logarithms, so any real value is legal. `reference(d)` gives the starting
point of a hyperparameter search on standardised data.
"""

from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

KernelName = Literal["rbf", "linear", "cosine", "rbf+linear"]


class AbstractKernel(eqx.Module):
    """A positive semi-definite function of two points."""

    @abstractmethod
    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""

    @abstractmethod
    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""


class RBF(AbstractKernel):
    """σ² exp(−½ Σᵢ (aᵢ − bᵢ)²/ℓᵢ²), one length scale per input (ARD)."""

    log_lengthscale: Float[Array, " d"]
    log_variance: Float[Array, ""]

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        a, b = a * jnp.exp(-self.log_lengthscale), b * jnp.exp(-self.log_lengthscale)
        squared = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None, :] - 2 * a @ b.T
        return jnp.exp(self.log_variance - 0.5 * jnp.maximum(squared, 0.0))

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return jnp.full(a.shape[0], jnp.exp(self.log_variance))


class Linear(AbstractKernel):
    """Σᵢ sᵢ² aᵢ bᵢ + s₀²: straight lines, which extrapolate."""

    log_slope: Float[Array, " d"]
    log_bias: Float[Array, ""]

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        return (a * jnp.exp(2 * self.log_slope)) @ b.T + jnp.exp(2 * self.log_bias)

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return a**2 @ jnp.exp(2 * self.log_slope) + jnp.exp(2 * self.log_bias)


class Cosine(AbstractKernel):
    """σ² Πᵢ cos(2π (aᵢ − bᵢ)/pᵢ): sinusoids of one period per input."""

    log_period: Float[Array, " d"]
    log_variance: Float[Array, ""]

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        rate = 2 * jnp.pi * jnp.exp(-self.log_period)
        difference = (a * rate)[:, None, :] - (b * rate)[None, :, :]
        return jnp.exp(self.log_variance) * jnp.prod(jnp.cos(difference), axis=-1)

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return jnp.full(a.shape[0], jnp.exp(self.log_variance))


class Sum(AbstractKernel):
    """The sum of two kernels."""

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        return self.first(a, b) + self.second(a, b)

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return self.first.variance(a) + self.second.variance(a)


class Product(AbstractKernel):
    """The product of two kernels."""

    first: AbstractKernel
    second: AbstractKernel

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        return self.first(a, b) * self.second(a, b)

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return self.first.variance(a) * self.second.variance(a)


def kernel_named(name: KernelName, d: int) -> AbstractKernel:
    """A kernel over d standardised inputs at the start of a hyperparameter search."""
    rbf = RBF(jnp.full(d, np.log(1.5)), jnp.zeros(()))
    linear = Linear(jnp.zeros(d), jnp.zeros(()))
    if name == "rbf":
        return rbf
    if name == "linear":
        return linear
    if name == "cosine":
        return Cosine(jnp.full(d, np.log(6.0)), jnp.zeros(()))
    if name == "rbf+linear":
        return Sum(rbf, linear)
    raise ValueError(
        f'A kernel is "rbf", "linear", "cosine" or "rbf+linear"; got {name!r}. Choose one of them.'
    )


def bounds(kernel: AbstractKernel) -> tuple[AbstractKernel, AbstractKernel]:
    """Lower and upper bounds of every parameter, on standardised data, shaped as the kernel."""
    if isinstance(kernel, RBF):
        return _between(kernel, (np.log(0.05), np.log(1e-6)), (np.log(1e3), np.log(1e5)))
    if isinstance(kernel, Linear):
        return _between(kernel, (np.log(1e-6), np.log(1e-6)), (np.log(1e2), np.log(1e2)))
    if isinstance(kernel, Cosine):
        return _between(kernel, (np.log(1.0), np.log(1e-6)), (np.log(1e2), np.log(1e5)))
    if isinstance(kernel, (Sum, Product)):
        (low1, high1), (low2, high2) = bounds(kernel.first), bounds(kernel.second)
        return type(kernel)(low1, low2), type(kernel)(high1, high2)
    raise TypeError(f"No bounds are known for {type(kernel).__name__}; add them to gp/kernels.py.")


def _between(
    kernel: AbstractKernel, low: tuple[float, float], high: tuple[float, float]
) -> tuple[AbstractKernel, AbstractKernel]:
    """The kernel twice, with its per-input and its scalar parameter at the given values."""

    def filled(values: tuple[float, float]) -> AbstractKernel:
        per_input, scalar = values
        leaves = [
            jnp.full(name.shape, per_input if name.ndim else scalar)
            for name in (getattr(kernel, field) for field in kernel.__dataclass_fields__)
        ]
        return type(kernel)(*leaves)

    return filled(low), filled(high)

"""Covariance functions in matrix-product form: each maps two sets of points to a matrix.

Parameters are stored as logarithms, so any real value is legal. `kernel_named` gives the starting
point of a hyperparameter search on standardised data.
"""

from abc import abstractmethod
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

NOTHING = -80.0
"""Logarithm of a weight that stays below round-off."""

KernelName = Literal[
    "rbf", "linear", "proportional", "cosine", "rbf+linear", "affine", "bilinear", "quadratic"
]


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
        rate = jnp.exp(-self.log_lengthscale)[None]
        a, b = a * rate, b * rate
        squared = jnp.sum(a**2, axis=1)[:, None] + jnp.sum(b**2, axis=1)[None, :] - 2 * a @ b.T
        return jnp.exp(self.log_variance - 0.5 * jnp.maximum(squared, 0.0))

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return jnp.full(a.shape[0], jnp.exp(self.log_variance))


class Linear(AbstractKernel):
    """Σᵢ sᵢ² aᵢ bᵢ + s₀²: straight lines, which extrapolate.

    With `through_zero`, s₀ is nothing, and zero means something: no command, no motion.
    """

    log_slope: Float[Array, " d"]
    log_bias: Float[Array, ""]
    through_zero: bool = eqx.field(static=True, default=False)

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        return (a * jnp.exp(2 * self.log_slope)[None]) @ b.T + jnp.exp(2 * self.log_bias)

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return a**2 @ jnp.exp(2 * self.log_slope) + jnp.exp(2 * self.log_bias)


class Cosine(AbstractKernel):
    """σ² Πᵢ cos(2π (aᵢ − bᵢ)/pᵢ): sinusoids of one period per input."""

    log_period: Float[Array, " d"]
    log_variance: Float[Array, ""]

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        rate = 2 * jnp.pi * jnp.exp(-self.log_period)[None]
        difference = (a * rate)[:, None, :] - (b * rate)[None, :, :]
        return jnp.exp(self.log_variance) * jnp.prod(jnp.cos(difference), axis=-1)

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        return jnp.full(a.shape[0], jnp.exp(self.log_variance))


class ControlAffine(AbstractKernel):
    """k₀(x, x') + Σⱼ uⱼ uⱼ' kⱼ(x, x'): functions that are affine in the control.

    Each kⱼ = rⱼ·RBF + lⱼ·linear + sⱼ over the other inputs, with shared length scales: smooth
    where there are data, and straight beyond them. With `smooth` off the RBF is left out: what
    remains is bilinear in (1, u) and (1, x). With `squares` on, x are all inputs, u among them: if
    these are all inputs as well, functions are sums of products of two.
    """

    log_lengthscale: Float[Array, " x"]
    log_slope: Float[Array, "*parts x"]
    """Of each input: shared by drift and controls, or one for each of them."""
    log_weights: Float[Array, "3 parts"]
    """Of RBF, linear and constant part, for the drift and for each control."""
    controls: tuple[int, ...] = eqx.field(static=True)
    smooth: bool = eqx.field(static=True, default=True)
    squares: bool = eqx.field(static=True, default=False)

    def __call__(self, a: Float[Array, "A d"], b: Float[Array, "B d"]) -> Float[Array, "A B"]:
        """Covariance of every pair."""
        (x, u), (y, v) = self.split(a), self.split(b)
        weights = jnp.exp(self.log_weights)[:, None, :]
        smooth, straight, constant = ((u * weight) @ v.T for weight in weights)
        if self.log_slope.ndim == 1:
            lines = straight * ((x * jnp.exp(2 * self.log_slope)[None]) @ y.T)
        else:
            size = jnp.sqrt(self.slopes())
            lines = _flat_products(u, x, size) @ _flat_products(v, y, size).T
        if not self.smooth:
            return lines + constant
        rbf = RBF(self.log_lengthscale, jnp.zeros(()))(x, y)
        return smooth * rbf + lines + constant

    def variance(self, a: Float[Array, "A d"]) -> Float[Array, " A"]:
        """Covariance of every point with itself."""
        x, u = self.split(a)
        smooth, straight, constant = jnp.exp(self.log_weights) @ (u**2).T
        if self.log_slope.ndim == 1:
            lines = straight * (x**2 @ jnp.exp(2 * self.log_slope))
        else:
            lines = jnp.sum(u**2 * (x**2 @ self.slopes().T), axis=1)
        return (smooth if self.smooth else 0.0) + lines + constant

    def slopes(self) -> Float[Array, "parts x"]:
        """Variance of the slope along each of the other inputs, for the drift and each control."""
        straight = jnp.exp(self.log_weights[1])[:, None]
        shape = (straight.shape[0], self.log_slope.shape[-1])
        return straight * jnp.exp(2 * jnp.broadcast_to(self.log_slope, shape))

    def split(self, a: Float[Array, "A d"]) -> tuple[Float[Array, "A x"], Float[Array, "A parts"]]:
        """The other inputs x, and (1, u)."""
        ones = jnp.ones((a.shape[0], 1))
        return a[:, jnp.array(self.others(a.shape[1]), int)], jnp.concatenate(
            [ones, a[:, jnp.array(self.controls, int)]], axis=1
        )

    def others(self, d: int) -> tuple[int, ...]:
        """Which of d inputs are the x."""
        return other_inputs(d, self.controls, self.squares)


def other_inputs(d: int, controls: tuple[int, ...], squares: bool) -> tuple[int, ...]:
    """Which of d inputs controls are multiplied by: all others, or with `squares` all."""
    return tuple(i for i in range(d) if squares or i not in controls)


def _flat_products(
    u: Float[Array, "A parts"], x: Float[Array, "A x"], size: Float[Array, "parts x"]
) -> Float[Array, "A q"]:
    """Every entry of u times every entry of x, each with its size."""
    return (u[:, :, None] * x[:, None, :] * size[None]).reshape(len(x), size.size)


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


def _full(shape: int | tuple[int, ...], value: float | np.floating) -> Array:
    """An array of equal numbers, without the program that `jnp.full` would compile."""
    return jax.device_put(np.full(shape, value))


def kernel_named(name: KernelName, d: int, controls: tuple[int, ...] = ()) -> AbstractKernel:
    """A kernel over d standardised inputs at the start of a hyperparameter search.

    `controls` says which of the inputs are controls; "affine" and "bilinear" ask.
    """
    rbf = RBF(_full(d, np.log(1.5)), _full((), 0.0))
    linear = Linear(_full(d, 0.0), _full((), 0.0))
    if name == "rbf":
        return rbf
    if name == "linear":
        return linear
    if name == "proportional":
        return Linear(linear.log_slope, _full((), NOTHING), through_zero=True)
    if name == "cosine":
        return Cosine(_full(d, np.log(6.0)), _full((), 0.0))
    if name == "rbf+linear":
        return Sum(rbf, linear)
    if name in ("affine", "bilinear", "quadratic"):
        smooth, squares = name == "affine", name == "quadratic"
        controls = tuple(range(d)) if squares else controls
        free = d if squares else d - len(controls)
        weights = np.tile(np.log([[1.0], [0.1], [0.1]]), (1, 1 + len(controls)))
        if not smooth:  # so small that whoever evaluates the bumps sees none
            weights[0] = NOTHING
        return ControlAffine(
            _full(free, np.log(1.5)),
            _full(free, 0.0),
            jax.device_put(weights),
            controls,
            smooth,
            squares,
        )
    raise ValueError(
        f'A kernel is "rbf", "linear", "proportional", "cosine", "rbf+linear", "affine", '
        f'"bilinear" or "quadratic"; got {name!r}. Choose one of them.'
    )


def starts(name: KernelName, d: int, controls: tuple[int, ...] = ()) -> tuple[AbstractKernel, ...]:
    """Where a hyperparameter search may begin; sinusoids have a hill for every period."""
    kernel = kernel_named(name, d, controls)
    if isinstance(kernel, Cosine):
        periods = np.geomspace(2.0, 30.0, 12)
        return tuple(Cosine(jnp.full(d, np.log(p)), kernel.log_variance) for p in periods)
    return (kernel,)


def bounds(kernel: AbstractKernel) -> tuple[AbstractKernel, AbstractKernel]:
    """Lower and upper bounds of every parameter, on standardised data, shaped as the kernel."""
    if isinstance(kernel, RBF):
        return _between(kernel, (np.log(0.05), np.log(1e-6)), (np.log(1e3), np.log(1e5)))
    if isinstance(kernel, Linear):
        low, high = (np.log(1e-6),) * 2, (np.log(1e2),) * 2
        if kernel.through_zero:
            low, high = (low[0], NOTHING - 1), (high[0], NOTHING + 1)
        return _between(kernel, low, high)
    if isinstance(kernel, Cosine):
        return _between(kernel, (np.log(1.0), np.log(1e-6)), (np.log(1e2), np.log(1e5)))
    if isinstance(kernel, ControlAffine):
        ends = ((0.05, 1e-6, 1e-12), (1e3, 1e2, 1e5))
        return tuple(_control_affine(kernel, *end) for end in ends)  # type: ignore[return-value]
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
        return jax.tree.map(
            lambda leaf: _full(leaf.shape, per_input if leaf.ndim else scalar), kernel
        )

    return filled(low), filled(high)


def _control_affine(
    kernel: ControlAffine, lengthscale: float, slope: float, weight: float
) -> ControlAffine:
    """The kernel with its parameters at the given values."""
    weights = np.full_like(kernel.log_weights, np.log(weight))
    if not kernel.smooth:
        weights[0] = NOTHING + np.sign(weight - 1)
    return ControlAffine(
        _full(kernel.log_lengthscale.shape, np.log(lengthscale)),
        _full(kernel.log_slope.shape, np.log(slope)),
        jax.device_put(weights),
        kernel.controls,
        kernel.smooth,
        kernel.squares,
    )

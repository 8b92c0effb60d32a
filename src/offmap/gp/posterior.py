"""Exact posterior of independent GPs: a base set of points, and further ones folded in.

The covariance of base (b) and further points (e) is factored in blocks,

    K = [ K_bb  K_be ] = L Lᵀ,   L = [ L_b      0  ]     C = L_b⁻¹ K_be,
        [ K_eb  K_ee ]               [ Cᵀ      L_e ]     L_e L_eᵀ = K_ee − CᵀC,

so that folding in E points costs O(N²E) and leaves the factor of the base alone. The base factor is
kept as L_bᵀ, one array per output: in that layout LAPACK reads it in place, and no solve copies it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from offmap.gp.expansion import AbstractGPs, Scaling
from offmap.gp.kernels import AbstractKernel
from offmap.gp.likelihood import JITTER

_NEXT_TO_NOTHING = 1e-4  # nats


class IndependentGPs(AbstractGPs):
    """p GPs over the same inputs, conditioned on data; calling it gives the posterior mean."""

    kernel: AbstractKernel
    scaling: Scaling
    x: Float[Array, "N d"]
    """Base points, then further points."""
    residual: Float[Array, "p N"]
    """L⁻¹ y."""
    alpha: Float[Array, "p N"]
    """(K + noise)⁻¹ y: the cached weights of the mean."""
    noise: Float[Array, "p N"]
    """Noise variance of each point, in standardised units."""
    base: tuple[Float[Array, "B B"], ...]
    cross: Float[Array, "p B E"]
    extension: Float[Array, "p E E"]

    def variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Posterior variance of the noise-free function at one point."""
        self._check_factor()
        covariance = self.covariance(x)
        reduced = jnp.stack(
            [
                _solve_lower(*blocks)
                for blocks in zip(self.base, self.cross, self.extension, covariance, strict=True)
            ]
        )
        left = self.prior_variance(x) - jnp.sum(reduced**2, axis=1)
        return jnp.maximum(left, 0.0) * self.scaling.y_scale**2

    def base_noise(self) -> Float[Array, " p"]:
        """Noise variance of the base points, in standardised units."""
        return self.noise[:, 0]

    def base_points(self) -> int:
        """Number of base points."""
        return self.base[0].shape[0]

    def points(self) -> int:
        """Number of samples it is conditioned on."""
        return self.x.shape[0]

    def begins_with(self, x: Float[np.ndarray, "M d"]) -> bool:
        """Whether the base points are the first of these, so that the rest can be folded in."""
        count = self.base[0].shape[0]
        z = self.scaling.standardised_x(x[:count])
        # Beyond twice the points, factoring anew is cheaper.
        return (
            2 * count > len(x)
            and z.shape == self.x[:count].shape
            and np.array_equal(z, self.x[:count])
        )

    def conditioned(
        self, x: Float[np.ndarray, "M d"], y: Float[np.ndarray, "M p"]
    ) -> "IndependentGPs":
        """The posterior given other base points, at the same hyperparameters."""
        return condition(self.kernel, self.base_noise(), self.scaling, x, y)

    def mean_only(self) -> "IndependentGPs":
        """The same mean without the factor, which variances and further data need."""
        p = self.alpha.shape[0]
        return eqx.tree_at(
            lambda gps: (gps.base, gps.cross, gps.extension),
            self,
            ((jnp.zeros((0, 0)),) * p, jnp.zeros((p, 0, 0)), jnp.zeros((p, 0, 0))),
        )

    def without_extension(self) -> "IndependentGPs":
        """The posterior given the base points alone."""
        self._check_factor()
        count = self.base[0].shape[0]
        if count == self.x.shape[0]:
            return self
        residual = self.residual[:, :count]
        alpha = [_solve_base_upper(*pair) for pair in zip(self.base, residual, strict=True)]
        return IndependentGPs(
            self.kernel,
            self.scaling,
            self.x[:count],
            residual,
            jnp.stack(alpha),
            self.noise[:, :count],
            self.base,
            self.cross[:, :, :0],
            self.extension[:, :0, :0],
        )

    def extended(
        self,
        x: Float[np.ndarray, "E d"],
        y: Float[np.ndarray, "E p"],
        noise: Float[np.ndarray | Array, " p"] | None,
    ) -> "IndependentGPs":
        """The posterior given further points; see `extend`."""
        return extend(self, x, y, noise)

    def _check_factor(self) -> None:
        if self.base[0].shape[0] == 0:
            raise ValueError(
                "Standard deviations and further data need the factorised covariance; this model "
                "was reduced to its mean. Use the model as it was before `mean_only()`."
            )


def condition(
    kernel: AbstractKernel,
    noise: Float[Array, " p"],
    scaling: Scaling,
    x: Float[np.ndarray | Array, "N d"],
    y: Float[np.ndarray | Array, "N p"],
) -> IndependentGPs:
    """Posterior of each output given its data (raw units) and noise variance (standardised)."""
    z, targets = jax.device_put(scaling.standardised_x(x)), scaling.standardised_y(y).T
    p = len(targets)
    # One output after the other: only one N × N covariance lives beside the factors.
    base, residual, alpha, noises = zip(
        *(_condition_output(_output(kernel, j), _entry(noise, j), z, targets[j]) for j in range(p)),
        strict=True,
    )
    return IndependentGPs(
        kernel,
        scaling,
        z,
        jax.device_put(np.stack(residual)),
        jax.device_put(np.stack(alpha)),
        jax.device_put(np.stack(noises)),
        base,
        jax.device_put(np.zeros((p, z.shape[0], 0))),
        jax.device_put(np.zeros((p, 0, 0))),
    )


@eqx.filter_jit
def _condition_output(kernel, noise, z, target):
    factor, jittered = _factor(kernel(z, z), noise, jnp.mean(kernel.variance(z)))
    base = factor.T
    residual = solve_triangular(base.T, target, lower=True)
    alpha = solve_triangular(base.T, residual, lower=True, trans=1)
    return base, residual, alpha, jnp.full(z.shape[0], jittered)


def extend(
    gps: IndependentGPs,
    x: Float[np.ndarray | Array, "E d"],
    y: Float[np.ndarray | Array, "E p"],
    noise: Float[np.ndarray | Array, " p"] | None,
) -> IndependentGPs:
    """Fold further points in; with `noise=None` their noise level is learned for each output.

    The level maximises the likelihood of the new points given all that is known before them. An
    output of which they tell nothing keeps its mean.
    """
    gps._check_factor()
    z, targets = jax.device_put(gps.scaling.standardised_x(x)), gps.scaling.standardised_y(y).T
    columns = zip(
        *(
            _extend_output(
                _output(gps.kernel, j),
                gps.base[j],
                _entry(gps.cross, j),
                _entry(gps.extension, j),
                _entry(gps.residual, j),
                gps.x,
                z,
                targets[j],
                None if noise is None else _entry(noise, j),
            )
            for j in range(targets.shape[0])
        ),
        strict=True,
    )
    cross, extension, residual, alpha, noises = (
        jax.device_put(np.stack(column)) for column in columns
    )
    return IndependentGPs(
        gps.kernel,
        gps.scaling,
        jax.device_put(np.concatenate([gps.x, z])),
        residual,
        alpha,
        jax.device_put(np.concatenate([gps.noise, noises], axis=1)),
        gps.base,
        cross,
        extension,
    )


@eqx.filter_jit
def _extend_output(kernel, base, cross, extension, residual, x, z, target, noise):
    before = base.shape[0]
    reduced = _solve_lower(base, cross, extension, kernel(x, z))
    covariance = kernel(z, z) - reduced.T @ reduced
    innovation = target - reduced.T @ residual
    if noise is None:
        noise = most_likely_noise(covariance, innovation)
        innovation = jnp.where(tell_nothing(covariance, noise), 0.0, innovation)
    factor, jittered = _factor(covariance, noise, jnp.mean(kernel.variance(z)))
    cross = jnp.concatenate([cross, reduced[:before]], axis=1)
    extension = _stack_lower(extension, reduced[before:], factor)
    residual = jnp.concatenate([residual, solve_triangular(factor, innovation, lower=True)])
    alpha = _solve_upper(base, cross, extension, residual)
    return cross, extension, residual, alpha, jnp.full(z.shape[0], jittered)


def _output(kernel: AbstractKernel, j: int) -> AbstractKernel:
    """The kernel of one output."""
    return jax.tree.map(lambda leaf: _entry(leaf, j), kernel)


def _entry(values: np.ndarray | Array, j: int) -> np.ndarray:
    """One entry of the leading axis, as an array: outside jit NumPy compiles nothing."""
    return np.asarray(np.asarray(values)[j])


def most_likely_noise(
    covariance: Float[Array, "E E"], innovation: Float[Array, " E"]
) -> Float[Array, ""]:
    """The σ² that maximises log N(innovation; 0, covariance + σ² I).

    One eigendecomposition turns the likelihood into a sum, searched on a grid and then refined.
    """
    eigenvalues, basis = jnp.linalg.eigh(covariance)
    eigenvalues = jnp.maximum(eigenvalues, 0.0)
    weights = (basis.T @ innovation) ** 2

    def negative(log_noise):
        total = eigenvalues + jnp.exp(log_noise)
        return 0.5 * jnp.sum(weights / total + jnp.log(total))

    grid = jnp.linspace(jnp.log(1e-10), jnp.log(1e6), 200)
    for _ in range(4):
        best = jnp.argmin(jax.vmap(negative)(grid))
        low, high = grid[jnp.maximum(best - 1, 0)], grid[jnp.minimum(best + 1, len(grid) - 1)]
        grid = jnp.linspace(low, high, 40)
    return jnp.exp(grid[jnp.argmin(jax.vmap(negative)(grid))])


def tell_nothing(covariance: Float[Array, "E E"], noise: Float[Array, ""]) -> Bool[Array, ""]:
    """Whether points of this noise level say next to nothing about a function known this well.

    ½ log |I + K/σ²| ≤ tr K/2σ² bounds what they say, and with it how far points whose errors are
    noise move the mean: by a hundredth of its standard deviation. The rest would be round-off.
    """
    return jnp.trace(covariance) < 2 * _NEXT_TO_NOTHING * noise


def _factor(
    covariance: Float[Array, "N N"], noise: Float[Array, ""], magnitude: Float[Array, ""]
) -> tuple[Float[Array, "N N"], Float[Array, ""]]:
    """Cholesky factor of covariance + noise, with as little jitter as it takes, or NaN."""

    def attempt(total):
        return jnp.linalg.cholesky(covariance + total * jnp.eye(covariance.shape[0]))

    def failed(state):
        total, factor = state
        return ~jnp.all(jnp.isfinite(jnp.diag(factor))) & (total < 1e-2 * magnitude + noise)

    def retry(state):
        total, _ = state
        return 10 * total, attempt(10 * total)

    total = noise + JITTER * magnitude
    total, factor = jax.lax.while_loop(failed, retry, (total, attempt(total)))
    return factor, total


def _solve_lower(base, cross, extension, right):
    """L⁻¹ right for the block factor."""
    top = solve_triangular(base.T, right[: base.shape[0]], lower=True)
    if extension.shape[0] == 0:
        return top
    bottom = right[base.shape[0] :] - cross.T @ top
    return jnp.concatenate([top, solve_triangular(extension, bottom, lower=True)])


def _solve_upper(base, cross, extension, right):
    """L⁻ᵀ right for the block factor, for one right-hand side."""
    bottom = solve_triangular(extension, right[base.shape[0] :], lower=True, trans=1)
    top = right[: base.shape[0]] - cross @ bottom
    return jnp.concatenate([solve_triangular(base.T, top, lower=True, trans=1), bottom])


@eqx.filter_jit
def _solve_base_upper(base, right):
    return solve_triangular(base.T, right, lower=True, trans=1)


def _stack_lower(above, left_transposed, corner):
    """[[above, 0], [left, corner]]."""
    upper = jnp.concatenate([above, jnp.zeros((above.shape[0], corner.shape[0]))], axis=1)
    return jnp.concatenate([upper, jnp.concatenate([left_transposed.T, corner], axis=1)])

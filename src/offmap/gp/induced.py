"""Posterior of GPs whose functions few points span: cost linear in the number of samples.

With centres c₁ … c_r, K_cc = L Lᵀ and features φ(z) = L⁻¹ k(c, z), the covariance k(z, z') is
φ(z)ᵀ φ(z') up to what the centres do not explain. A GP is then a linear model f = φᵀ w with
w ~ N(0, I), and N samples of noise σ² leave

    w | y  ~  N(A⁻¹ Φᵀ y / σ², A⁻¹),    A = I + Φᵀ Φ / σ² = Rᵀ R.

R and Rᵀ⁻¹ Φᵀ y / σ² are read off a QR factorisation of [Φ/σ  y/σ], block by block: forming A would
square its condition, which is 1e14 where data have no noise. Where the centres explain all samples
to below their noise this is the exact posterior; docs/performance.md shows it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from offmap.gp.expansion import AbstractGPs, Scaling
from offmap.gp.kernels import AbstractKernel
from offmap.gp.pivots import pivoted_factor
from offmap.gp.posterior import most_likely_noise, tell_nothing

_BLOCK = 4096  # samples that enter the factorisation at once
_CANDIDATES = 8000  # samples among which centres are sought
_NOISE_POINTS = 2000  # samples of a source from which its noise level is learned
_BELOW_NOISE = 1e-3  # share of the noise variance that the centres may leave unexplained
_ROUND_OFF = 1e-14


class Knowledge(eqx.Module):
    """What samples say about the weights w: the normal equations, as their triangular roots."""

    root: Float[Array, "p r r"]
    """R."""
    right: Float[Array, "p r"]
    """Rᵀ⁻¹ Φᵀ y / σ²."""


class InducedGPs(AbstractGPs):
    """p GPs over the same inputs, conditioned on data by way of r centres."""

    kernel: AbstractKernel
    scaling: Scaling
    x: Float[Array, "r d"]
    """The centres."""
    alpha: Float[Array, "p r"]
    corner: Float[Array, "p r r"] | None
    """L; None for a mean without variances."""
    base: Knowledge | None
    """From the samples of the primary source."""
    now: Knowledge | None
    """From all samples."""
    noise: Float[Array, " p"]
    """Noise variance of the primary source, in standardised units."""
    samples: tuple[int, int] = eqx.field(static=True)
    """Number of samples of the primary source, and of all."""

    def variance(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Posterior variance of the noise-free function at one point."""
        corner, now, _ = self.known()
        phi = jax.vmap(lambda L, k: solve_triangular(L, k, lower=True))(corner, self.covariance(x))
        left = jax.vmap(lambda R, f: solve_triangular(R, f, trans=1))(now.root, phi)
        unexplained = jnp.maximum(self.prior_variance(x) - jnp.sum(phi**2, axis=1), 0.0)
        return (unexplained + jnp.sum(left**2, axis=1)) * self.scaling.y_scale**2

    def base_noise(self) -> Float[Array, " p"]:
        """Noise variance of the primary source, in standardised units."""
        return self.noise

    def base_points(self) -> int:
        """Number of samples of the primary source."""
        return self.samples[0]

    def points(self) -> int:
        """Number of samples it is conditioned on."""
        return self.samples[1]

    def conditioned(self, x: Float[np.ndarray, "M d"], y: Float[np.ndarray, "M p"]) -> "InducedGPs":
        """The posterior given other samples of the primary source, at the same centres."""
        corner, _, base = self.known()
        nothing = Knowledge(jnp.zeros_like(base.root), jnp.zeros_like(base.right))
        start = Knowledge(nothing.root + jnp.eye(base.root.shape[1])[None], nothing.right)
        learned = self._with(x, y, start, self.noise)
        return self._knowing(corner, learned, learned, (len(x), len(x)))

    def extended(
        self,
        x: Float[np.ndarray, "E d"],
        y: Float[np.ndarray, "E p"],
        noise: Float[np.ndarray | Array, " p"] | None,
    ) -> "InducedGPs":
        """The posterior given further samples; `noise=None` learns their level."""
        corner, now, base = self.known()
        if noise is None:
            few = slice(None, None, -(-len(x) // _NOISE_POINTS))
            z, targets = self.scaling.standardised_x(x[few]), self.scaling.standardised_y(y[few]).T
            times = np.asarray(len(x) / len(z))  # an array: a number would be compiled in
            noise = _noises(self.kernel, self.x, corner, now, z, targets, times)
        learned = self._with(x, y, now, noise)
        return self._knowing(corner, base, learned, (self.samples[0], self.samples[1] + len(x)))

    def without_extension(self) -> "InducedGPs":
        """The posterior given the samples of the primary source alone."""
        corner, _, base = self.known()
        return self._knowing(corner, base, base, (self.samples[0], self.samples[0]))

    def mean_only(self) -> "InducedGPs":
        """The same mean without what variances and further data need."""
        return InducedGPs(
            self.kernel,
            self.scaling,
            self.x,
            self.alpha,
            None,
            None,
            None,
            self.noise,
            self.samples,
        )

    def known(self) -> tuple[Array, Knowledge, Knowledge]:
        """L, and what all samples and those of the primary source tell."""
        if self.corner is None or self.now is None or self.base is None:
            raise ValueError(
                "Standard deviations and further data need the factorised covariance; this model "
                "was reduced to its mean. Use the model as it was before `mean_only()`."
            )
        return self.corner, self.now, self.base

    def _with(
        self,
        x: np.ndarray,
        y: np.ndarray,
        before: Knowledge,
        noise: np.ndarray | Array,
    ) -> Knowledge:
        """What is known after further samples, block by block."""
        z, targets = self.scaling.standardised_x(x), self.scaling.standardised_y(y).T
        corner, _, _ = self.known()
        known = before
        for start in range(0, len(z), _BLOCK):
            rows = slice(start, start + _BLOCK)
            missing = start + _BLOCK - len(z) if len(z) > _BLOCK else 0
            block, right = z[rows], targets[:, rows]
            if missing > 0:  # rows of weight 0 change nothing, and spare a second compilation
                block = np.concatenate([block, np.zeros((missing, z.shape[1]))])
                right = np.concatenate([right, np.zeros((len(right), missing))], axis=1)
            weight = (np.arange(len(block)) < len(z) - start).astype(float)
            known = _learn(self.kernel, self.x, corner, known, block, right, weight, noise)
        return known

    def _knowing(
        self, corner: Array, base: Knowledge, now: Knowledge, samples: tuple[int, int]
    ) -> "InducedGPs":
        alpha = _alpha(corner, now)
        return InducedGPs(
            self.kernel, self.scaling, self.x, alpha, corner, base, now, self.noise, samples
        )


def induce(
    gps: AbstractGPs, x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"], *, most: int
) -> tuple[InducedGPs, bool]:
    """GPs at the same hyperparameters given these samples, by way of at most `most` centres.

    Also says whether the centres explain the samples to below their noise.
    """
    z = gps.scaling.standardised_x(x)
    candidates = z[:: -(-len(z) // _CANDIDATES)]
    noise = np.asarray(gps.base_noise())
    magnitude = np.array(eqx.filter_vmap(lambda k: k.variance(jnp.asarray(candidates)))(gps.kernel))
    tolerance = np.maximum(_ROUND_OFF, _BELOW_NOISE * noise / magnitude.max(axis=1))
    found = pivoted_factor(gps.kernel, candidates, tolerance=tolerance, most=most)
    corner = jnp.asarray(found.corner)
    p, r = corner.shape[:2]
    nothing = Knowledge(jnp.tile(jnp.eye(r), (p, 1, 1)), jnp.zeros((p, r)))
    empty = InducedGPs(
        gps.kernel,
        gps.scaling,
        jnp.asarray(candidates[found.chosen]),
        jnp.zeros((p, r)),
        corner,
        nothing,
        nothing,
        jnp.asarray(noise),
        (0, 0),
    )
    return empty.conditioned(x, y), found.complete


def _features(kernel, centres, corner, z):
    """Φᵀ: φ at every row of z, for one output."""
    return solve_triangular(corner, kernel(centres, z), lower=True)


@eqx.filter_jit
def _learn(kernel, centres, corner, known, z, targets, weight, noise):
    def output(kernel, corner, root, right, target, noise):
        scale = weight / jnp.sqrt(noise)
        rows = jnp.concatenate([_features(kernel, centres, corner, z), target[None]]) * scale[None]
        above = jnp.concatenate([root, right[:, None]], axis=1)
        after = jnp.linalg.qr(jnp.concatenate([above, rows.T]), mode="r")
        r = root.shape[0]
        return after[:r, :r], after[:r, r]

    return Knowledge(
        *eqx.filter_vmap(output)(kernel, corner, known.root, known.right, targets, noise)
    )


@eqx.filter_jit
def _alpha(corner, known):
    def output(corner, root, right):
        return solve_triangular(corner, solve_triangular(root, right), lower=True, trans=1)

    return jax.vmap(output)(corner, known.root, known.right)


@eqx.filter_jit
def _noises(kernel, centres, corner, known, z, targets, times):
    """The likeliest noise variance of `times` as many samples; infinite if they tell nothing."""

    def output(kernel, corner, root, right, target):
        phi = _features(kernel, centres, corner, z)
        left = solve_triangular(root, phi, trans=1)
        unexplained = kernel(z, z) - phi.T @ phi
        covariance = unexplained + left.T @ left
        noise = most_likely_noise(covariance, target - left.T @ right)
        return jnp.where(tell_nothing(times * covariance, noise), jnp.inf, noise)

    return eqx.filter_vmap(output)(kernel, corner, known.root, known.right, targets)

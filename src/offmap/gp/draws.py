"""Whole functions drawn from the posterior of GPs, for rollouts that know how far they may be off.

What a GP gets wrong it gets wrong in the same way at every step, so a rollout has to keep to one
function; fresh noise at every step would average out. By Matheron's rule,

    f(z) = g(z) + k(z, X) (K + Σ)⁻¹ (y − g(X) − e),    g ~ GP(0, k),  e ~ N(0, Σ),

is a draw from the posterior if g is one from the prior; here without its mean, that is with y = 0.
Straight kernels have few weights, and g is exact. Bumps are drawn as waves of random frequencies
(random Fourier features), each function with frequencies of its own, so that mean and covariance
over functions are those of the GP; what is approximate is only that values of g, given few waves,
are not quite normal.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.gp.expansion import AbstractGPs
from offmap.gp.induced import InducedGPs
from offmap.gp.kernels import (
    RBF,
    AbstractKernel,
    ControlAffine,
    Cosine,
    Linear,
    Sum,
    other_inputs,
)
from offmap.gp.posterior import IndependentGPs, _solve_lower, _solve_upper
from offmap.gp.straight import StraightMean, straight_coefficients

_WAVES = 128  # frequencies of one function


class PriorDraw(eqx.Module):
    """One function of the prior: Σⱼ vⱼ (waves and a line in the other inputs), v = (1, u)."""

    frequencies: Float[Array, "waves x"]
    cosines: Float[Array, "parts waves"]
    sines: Float[Array, "parts waves"]
    lines: Float[Array, "parts terms"]
    """Of (1, x)."""
    controls: tuple[int, ...] = eqx.field(static=True)
    squares: bool = eqx.field(static=True, default=False)
    """Whether x are all inputs, rather than those that are no controls."""

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """Its value at one standardised point."""
        ones, x = jnp.ones(1), z[jnp.array(self.others(z.shape[0]), int)]
        v = jnp.concatenate([ones, z[jnp.array(self.controls, int)]])
        phase = self.frequencies @ x
        waves = self.cosines @ jnp.cos(phase) + self.sines @ jnp.sin(phase)
        return v @ (waves + self.lines @ jnp.concatenate([ones, x]))

    def others(self, d: int) -> tuple[int, ...]:
        """Which of d inputs are the x."""
        return other_inputs(d, self.controls, self.squares)


class DrawnGPs(eqx.Module):
    """One drawn function for each of p outputs, as fast to evaluate as a mean with bumps."""

    gps: AbstractGPs
    """Whose `alpha` are those of the draw."""
    prior: PriorDraw
    """Leaves carry a leading axis p."""

    def __call__(self, x: Float[Array, " d"]) -> Float[Array, " p"]:
        """Its value at one point."""
        scaling = self.gps.scaling
        z = (x - scaling.x_mean) / scaling.x_scale
        return self.gps(x) + eqx.filter_vmap(lambda g: g(z))(self.prior) * scaling.y_scale


class FunctionDraws(eqx.Module):
    """How far functions of the posterior are from its mean; `draws[i]` is one of them."""

    gps: AbstractGPs
    alpha: Float[Array, "S p N"]
    prior: PriorDraw
    """Leaves carry leading axes S and p."""
    straight: StraightMean | None
    """Where all functions are straight: the shape they share."""
    coefficients: Float[Array, "S p parts terms"] | None

    def __getitem__(self, i: int | Array) -> StraightMean | DrawnGPs:
        """The i-th function."""
        if self.straight is not None and self.coefficients is not None:
            return eqx.tree_at(lambda f: f.coefficients, self.straight, self.coefficients[i])
        alpha, prior = jax.tree.map(lambda leaf: leaf[i], (self.alpha, self.prior))
        return DrawnGPs(eqx.tree_at(lambda gps: gps.alpha, self.gps, alpha), prior)


def draw_functions(
    gps: AbstractGPs, noise: Float[Array, "S p N"], *, key: PRNGKeyArray
) -> FunctionDraws:
    """Draw how far the function may be from the posterior's mean: functions of mean 0.

    `noise` are the standard normal numbers that stand for the noise of the samples, one for each
    function and entry of `alpha`.
    """
    count, p = noise.shape[:2]
    prior = _priors(gps.kernel, jax.random.split(key, (count, p)))
    values = _at_points(prior, gps.x)
    if isinstance(gps, InducedGPs):
        alpha = _away_induced(gps, values, noise)
    elif isinstance(gps, IndependentGPs):
        alpha = _away_exact(gps, values, noise)
    else:
        raise TypeError(f"No draws are known for {type(gps).__name__}; add them to gp/draws.py.")
    centred = eqx.tree_at(lambda g: g.scaling.y_mean, gps.mean_only(), jnp.zeros(p))
    coefficients = straight_coefficients(gps.kernel, np.asarray(gps.x), np.asarray(alpha))
    if coefficients is None:
        return FunctionDraws(centred, alpha, prior, None, None)
    drawn = jnp.asarray(coefficients) + _lines(prior)
    others = prior.others(gps.x.shape[1])
    shape = StraightMean(centred.scaling, drawn[0], prior.controls, others, gps.points())
    return FunctionDraws(centred, alpha, prior, shape, drawn)


def _lines(prior: PriorDraw) -> Array:
    """The coefficients of a straight prior draw; waves over no input are constants."""
    return prior.lines.at[..., 0].add(jnp.sum(prior.cosines, axis=-1))


def draw_prior(kernel: AbstractKernel, d: int, key: PRNGKeyArray) -> PriorDraw:
    """A function of zero mean and the kernel's covariance, over d standardised inputs."""
    spectrum, amplitude, line = jax.random.split(key, 3)
    if isinstance(kernel, Linear):
        scale = jnp.exp(jnp.concatenate([kernel.log_bias[None], kernel.log_slope]))
        lines = (scale * jax.random.normal(line, scale.shape))[None]
        nothing = jnp.zeros((1, 0))
        return PriorDraw(jnp.zeros((0, d)), nothing, nothing, lines, ())
    if isinstance(kernel, RBF | Cosine):
        lines = jnp.zeros((1, d + 1))
        if isinstance(kernel, RBF):
            rate = jnp.exp(-kernel.log_lengthscale)
            frequencies = jax.random.normal(spectrum, (_WAVES, d)) * rate[None]
        else:  # Π cos aᵢ is the mean of cos(±a₁ ± a₂ …) over all signs
            rate = 2 * jnp.pi * jnp.exp(-kernel.log_period)
            frequencies = jax.random.rademacher(spectrum, (_WAVES, d), float) * rate[None]
        size = jnp.exp(0.5 * kernel.log_variance)
        cosines, sines = size * _amplitudes(amplitude, 1)
        return PriorDraw(frequencies, cosines, sines, lines, ())
    if isinstance(kernel, ControlAffine):
        return _draw_affine(kernel, d, key)
    if isinstance(kernel, Sum):
        first = draw_prior(kernel.first, d, spectrum)
        second = draw_prior(kernel.second, d, amplitude)
        if first.controls == second.controls:
            return PriorDraw(
                jnp.concatenate([first.frequencies, second.frequencies]),
                jnp.concatenate([first.cosines, second.cosines], axis=1),
                jnp.concatenate([first.sines, second.sines], axis=1),
                first.lines + second.lines,
                first.controls,
            )
    raise TypeError(
        f"No prior draws are known for {type(kernel).__name__}; add them to gp/draws.py."
    )


def _draw_affine(kernel: ControlAffine, d: int, key: PRNGKeyArray) -> PriorDraw:
    spectrum, amplitude, line = jax.random.split(key, 3)
    smooth, _, constant = jnp.exp(0.5 * kernel.log_weights)
    parts, free = smooth.shape[0], kernel.log_slope.shape[-1]
    waves = _WAVES if kernel.smooth else 0
    rate = jnp.exp(-kernel.log_lengthscale)
    frequencies = jax.random.normal(spectrum, (waves, free)) * rate[None]
    cosines, sines = smooth[None, :, None] * _amplitudes(amplitude, parts, waves)
    scale = jnp.concatenate([constant[:, None], jnp.sqrt(kernel.slopes())], axis=1)
    lines = scale * jax.random.normal(line, scale.shape)
    return PriorDraw(frequencies, cosines, sines, lines, kernel.controls, kernel.squares)


def _amplitudes(key: PRNGKeyArray, parts: int, waves: int = _WAVES) -> Float[Array, "2 parts F"]:
    return jax.random.normal(key, (2, parts, waves)) / np.sqrt(max(waves, 1))


@eqx.filter_jit
def _priors(kernel, keys):
    """A prior draw for every key (S, p); leaves of the kernel carry the axis p."""
    d = _inputs(kernel)
    each = eqx.filter_vmap(lambda kernel, key: draw_prior(kernel, d, key))
    return eqx.filter_vmap(each, in_axes=(None, 0))(kernel, keys)


def _inputs(kernel: AbstractKernel) -> int:
    """Number of inputs of a kernel whose leaves carry a leading axis."""
    if isinstance(kernel, Sum):
        return _inputs(kernel.first)
    if isinstance(kernel, ControlAffine):
        return kernel.log_slope.shape[-1] + (0 if kernel.squares else len(kernel.controls))
    for name in ("log_lengthscale", "log_slope", "log_period"):
        if hasattr(kernel, name):
            return getattr(kernel, name).shape[-1]
    raise TypeError(f"No inputs are known for {type(kernel).__name__}; add it to gp/draws.py.")


@eqx.filter_jit
def _at_points(prior, x):
    """Values (S, p, N) of the prior draws."""
    over = eqx.filter_vmap(lambda g: jax.vmap(g)(x))
    return eqx.filter_vmap(over)(prior)


def shared_noise(
    gps: AbstractGPs,
    x: Float[np.ndarray, "B d"],
    errors: Float[np.ndarray, "e B p"],
) -> tuple[Float[Array, "e p N"], tuple[AbstractGPs, ...]]:
    """What functions share with numbers εₑ ~ N(0, 1) that the noise of the samples moves as well.

    If the noise of the base samples `x` is Σₑ εₑ errorsₑ and more that has nothing to do with ε,
    functions have the covariance −k(z, X) (K + Σ)⁻¹ errorsₑ with εₑ. Gives a such that a · noise
    of `draw_functions` is what draws know of ε, and those covariances as functions of z. Products
    of two errors are rough; what functions follow of them is K (K + Σ)⁻¹ errors.
    """
    if isinstance(gps, InducedGPs):
        mean = np.asarray(gps.scaling.y_mean)
        given = [gps.conditioned(x, one + mean) for one in errors]
        share = -jnp.stack([one.known()[1].right for one in given])
        alpha = -jnp.stack([one.alpha for one in given])
    else:
        assert isinstance(gps, IndependentGPs)
        base = min(gps.base_points(), len(x))
        right = np.zeros((len(errors), *gps.alpha.shape))
        right[:, :, :base] = np.moveaxis(errors / np.asarray(gps.scaling.y_scale), 1, 2)[..., :base]
        followed = right - gps.noise[None] * _solved(gps, jnp.asarray(right))
        share = followed / jnp.sqrt(gps.noise)[None]
        alpha = -_solved(gps, followed)
    # Of each ε at most all is shared.
    values, vectors = jnp.linalg.eigh(jnp.einsum("epn,fpn->ef", share, share))
    shrunk = (vectors / jnp.sqrt(jnp.maximum(values, 1.0))[None]) @ vectors.T
    share, alpha = (jnp.einsum("ef,fpn->epn", shrunk, part) for part in (share, alpha))
    centred = eqx.tree_at(
        lambda g: g.scaling.y_mean, gps.mean_only(), jnp.zeros(gps.alpha.shape[0])
    )
    return share, tuple(eqx.tree_at(lambda g: g.alpha, centred, one) for one in alpha)


@eqx.filter_jit
def _away_exact(gps, values, noise):
    """−(K + Σ)⁻¹ (g(X) + e) for every draw and output."""
    return -_solved(gps, values + jnp.sqrt(gps.noise)[None] * noise)


@eqx.filter_jit
def _solved(gps, right):
    """(K + Σ)⁻¹ of every row (S, p, N)."""
    gps._check_factor()

    def solved(rows, base, cross, extension):
        def one(row):
            below = _solve_lower(base, cross, extension, row)
            return _solve_upper(base, cross, extension, below)

        return jax.vmap(one)(rows)

    outputs = jnp.moveaxis(right, 1, 0)
    each = zip(outputs, gps.base, gps.cross, gps.extension, strict=True)
    return jnp.stack([solved(*output) for output in each], axis=1)


@eqx.filter_jit
def _away_induced(gps, values, noise):
    """L⁻ᵀ (R⁻¹ ε − L⁻¹ g(c)): the weights' own draw, less what g has at the centres."""
    corner, now, _ = gps.known()

    def output(L, R, g, noise):
        weights = solve_triangular(R, noise) - solve_triangular(L, g, lower=True)
        return solve_triangular(L, weights, lower=True, trans=1)

    return jax.vmap(jax.vmap(output), in_axes=(None, None, 0, 0))(corner, now.root, values, noise)

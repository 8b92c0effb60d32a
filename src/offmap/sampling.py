"""How far a model may be off: standard deviations, and vector fields drawn from its doubt."""

from collections.abc import Callable
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.calls import at_each
from offmap.constraint import DictionaryConstraint
from offmap.constraint.doubt import misfit, weight_doubt
from offmap.data import Samples
from offmap.dynamics import Dynamics, Frame, compact_dynamics, reduced_inputs, targets
from offmap.gp import (
    AbstractGPs,
    FunctionDraws,
    Strays,
    compact,
    doubtful,
    draw_functions,
    shared_noise,
    strayed,
    with_variances,
)
from offmap.mlp import MLPEnsemble
from offmap.predictor import Predictor
from offmap.projection import (
    normal_steps,
    project,
    soft_gain,
    tangent_projector,
    unit_residual,
)
from offmap.regressor import AbstractRegressor
from offmap.tangent import TangentFrame
from offmap.types import Gamma, VectorField


class Doubt(eqx.Module):
    """What is unsure about a predictor: the function its regressor found, and Γ.

    Γ may be off in the weights of short equations, and in its form where the data say so.
    """

    dynamics: Dynamics
    """Of the predictor."""
    mean: Dynamics
    """The same at the least cost."""
    gamma: Gamma | None
    softness: Float[Array, " c"] | None
    function: AbstractRegressor
    """Its variance is that of the function."""
    strayed: Strays | None
    """What straight functions miss, where the data say that they do."""
    weights: Float[Array, "e c k q"] | None
    """Directions of the error of the weights of Γ, each with a deviation of 1."""
    along: tuple[AbstractRegressor, ...]
    """How the function covaries with each of them: noise of one sample is in both."""
    shared: Float[Array, "e p N"] | None
    """The share of each that is noise which the function's draws have as well."""
    missed: Float[Array, " c"] | None
    """Standard deviation of what true motions leave of each row of Γ, scaled to unit G."""

    def std(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Standard deviation of each component of x' after projection, to first order in Γ."""
        return jnp.sqrt(self.variance(x, u))

    def variance(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Its square, which has a derivative also where nothing is in doubt."""
        z = self.dynamics.reduction(jnp.concatenate([x, u]))
        variance = self.function.variance(z)
        variance = variance if self.strayed is None else variance + self.strayed.variance(z)
        keep = jnp.eye(x.shape[0])
        if self.dynamics.frame is not None:
            keep, _ = self.dynamics.frame(x)
            variance = keep**2 @ variance
        elif self.gamma is not None and self.softness is not None:
            gain, G = soft_gain(self.dynamics.variance(x, u), self.gamma(x), self.softness)
            keep = keep - gain @ G
            variance = keep**2 @ variance
            variance = variance if self.missed is None else variance + gain**2 @ self.missed**2
        elif self.gamma is not None:
            keep = tangent_projector(self.gamma(x))
            variance = keep**2 @ variance
        if self.missed is not None and self.gamma is not None and self.softness is None:
            variance = variance + normal_steps(self.gamma(x)) ** 2 @ self.missed**2
        if self.weights is not None and isinstance(self.gamma, DictionaryConstraint):
            own = self.gamma.weights
            values = self.mean.regressor(z)
            moved = jax.vmap(
                lambda d: jax.jvp(lambda w: self._velocity(x, values, w), (own,), (d,))[1]
            )(self.weights)
            variance = variance + jnp.sum(moved**2, axis=0)
            if self.along:
                common = jnp.stack([keep @ covariance(z) for covariance in self.along])
                variance = variance + 2 * jnp.sum(moved * common, axis=0)
        return jnp.maximum(variance, 0.0)

    def of_straight_functions(self) -> "Doubt | None":
        """The same at the cost of a few products, where functions are straight.

        None where they are not, or where a soft projection asks for variances of its own.
        """
        straight = with_variances(self.function)
        if straight is None or self.softness is not None:
            return None
        along = tuple(compact(covariance) for covariance in self.along)
        return replace(self, dynamics=self.mean, function=straight, along=along, shared=None)

    def _velocity(self, x: Array, values: Array, weights: Array | None) -> Float[Array, " n"]:
        """Velocity of the regressor's values under a firm Γ, or under none."""
        gamma, frame = self.gamma, self.dynamics.frame
        if weights is not None:
            gamma = eqx.tree_at(lambda g: g.weights, gamma, weights)
        if frame is not None:
            frame = frame if weights is None else _with_gamma(frame, gamma)
            basis, drift = frame(x)
            return drift + basis @ values
        return values if gamma is None else project(values, gamma(x))


def find_doubt(predictor: Predictor, samples: Samples, primary: int) -> Doubt:
    """The doubt about a predictor, from the samples it was fitted to."""
    dynamics, gamma = predictor.dynamics, predictor.gamma
    own = samples.take(np.flatnonzero(samples.source == primary))
    function: AbstractRegressor = dynamics.regressor
    z, y = reduced_inputs(own, dynamics.reduction), targets(own, dynamics.frame)
    strays = None
    if isinstance(function, AbstractGPs):
        strays = strayed(function, z, y)
        function = doubtful(function, z, y)
    mean = compact_dynamics(dynamics)
    softness = predictor.softness if dynamics.frame is None else None
    weights, missed, shared = None, None, None
    along: tuple[AbstractRegressor, ...] = ()
    if isinstance(gamma, DictionaryConstraint) and softness is None:
        found, shares = weight_doubt(gamma, own.x, own.xdot)
        if len(found):
            weights = jnp.asarray(found)
        if len(found) and isinstance(function, AbstractGPs):
            errors = y - np.asarray(at_each(mean.regressor, z))
            shared, along = shared_noise(function, z, shares[:, :, None] * errors[None])
    if gamma is not None:
        level = misfit(gamma, own)
        missed = jnp.asarray(level) if np.any(level > 0) else None
    return Doubt(dynamics, mean, gamma, softness, function, strays, weights, along, shared, missed)


class MemberDraws(eqx.Module):
    """How far each member of an ensemble is from their mean, in turn."""

    ensemble: MLPEnsemble

    def __getitem__(self, i: int | Array) -> Callable[[Float[Array, " d"]], Float[Array, " p"]]:
        """The i-th deviation."""

        def away(x: Float[Array, " d"]) -> Float[Array, " p"]:
            values = self.ensemble.members(x)
            return values[i % values.shape[0]] - jnp.mean(values, axis=0)

        return away


class DrawnFields(eqx.Module):
    """Vector fields x' = f(x, u) that a model holds possible; `fields[i]` is one of them.

    Each obeys a constraint of its own, as firmly as the model does. Where the constraint holds only
    up to its softness, a field is off everywhere by a level of its own; where straight functions
    miss something, by a sum of products of its own.
    """

    doubt: Doubt
    functions: FunctionDraws | MemberDraws
    strays: Float[Array, "S p k"] | None
    """Weights of what each field adds to the function's values, where straight ones stray."""
    weights: Float[Array, "S c k q"] | None
    """Of each field's Γ."""
    levels: Float[Array, "S c"] | None
    """What each field leaves of the constraint."""

    def __getitem__(self, i: int | Array) -> VectorField:
        """The i-th vector field."""
        away: Callable[[Array], Array] = self.functions[i]
        doubt, own = self.doubt, self.doubt.dynamics
        weights = None if self.weights is None else self.weights[i]

        def field(x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
            z = own.reduction(jnp.concatenate([x, u]))
            values = doubt.mean.regressor(z) + away(z)
            if self.strays is not None and doubt.strayed is not None:
                values = values + self.strays[i] @ doubt.strayed.terms(z)
            if doubt.gamma is None:
                return doubt._velocity(x, values, None)
            gamma = doubt.gamma(x)
            left = 0.0 if self.levels is None else self.levels[i]
            if doubt.softness is None:
                velocity = doubt._velocity(x, values, weights)
                return velocity if self.levels is None else velocity + normal_steps(gamma) @ left
            gain, _ = soft_gain(own.variance(x, u), gamma, doubt.softness)
            return values - gain @ (unit_residual(values, gamma) - left)

        return field


def draw_fields(doubt: Doubt, count: int, *, key: PRNGKeyArray) -> DrawnFields:
    """Draw vector fields that a predictor's doubt leaves possible."""
    if count < 1:
        raise ValueError(f"At least one sample has to be drawn; got {count}. Ask for 100.")
    function_key, noise_key, stray_key, weight_key, level_key = jax.random.split(key, 5)
    functions: FunctionDraws | MemberDraws
    if isinstance(doubt.function, AbstractGPs):
        noise = jax.random.normal(noise_key, (count, *doubt.function.alpha.shape))
        functions = draw_functions(doubt.function, noise, key=function_key)
    elif isinstance(doubt.function, MLPEnsemble):
        functions = MemberDraws(doubt.function)
    else:
        raise TypeError(f"No draws are known for {type(doubt.function).__name__}; add them here.")
    weights, levels, strays = None, None, None
    if doubt.strayed is not None:
        chance = jax.random.normal(stray_key, (count, *doubt.strayed.deviation.shape))
        strays = doubt.strayed.deviation[None] * chance
    if doubt.weights is not None and isinstance(doubt.gamma, DictionaryConstraint):
        chance = jax.random.normal(weight_key, (count, doubt.weights.shape[0]))
        if doubt.shared is not None:
            common = jnp.einsum("epn,fpn->ef", doubt.shared, doubt.shared)
            values, vectors = jnp.linalg.eigh(common)
            alone = vectors * jnp.sqrt(jnp.maximum(1 - values, 0.0))[None]
            chance = chance @ alone.T + jnp.einsum("spn,epn->se", noise, doubt.shared)
        weights = doubt.gamma.weights[None] + jnp.tensordot(chance, doubt.weights, axes=1)
    if doubt.missed is not None:
        chance = jax.random.normal(level_key, (count, doubt.missed.shape[0]))
        levels = doubt.missed[None] * chance
    if doubt.softness is None:  # only a soft projection asks for variances
        light = Dynamics(
            doubt.dynamics.reduction, doubt.dynamics.regressor.mean_only(), doubt.dynamics.frame
        )
        function = doubt.function.mean_only()
        doubt = replace(doubt, dynamics=light, function=function, along=(), shared=None)
    return DrawnFields(doubt, functions, strays, weights, levels)


def _with_gamma(frame: Frame, gamma: Gamma | None) -> TangentFrame:
    assert gamma is not None and isinstance(frame, TangentFrame)
    return replace(frame, gamma=gamma)

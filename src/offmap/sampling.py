"""Vector fields drawn from what a model believes, each as sure of itself as the mean is."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.dynamics import Dynamics
from offmap.gp import AbstractGPs, FunctionDraws, draw_functions
from offmap.mlp import MLPEnsemble
from offmap.projection import project, soft_project
from offmap.types import Gamma, VectorField


class MemberDraws(eqx.Module):
    """The members of an ensemble in turn, `widen` times as far from their mean as they are."""

    ensemble: MLPEnsemble
    widen: Float[Array, " p"]

    def __getitem__(self, i: int | Array) -> Callable[[Float[Array, " d"]], Float[Array, " p"]]:
        """The i-th function."""

        def member(x: Float[Array, " d"]) -> Float[Array, " p"]:
            values = self.ensemble.members(x)
            mean = jnp.mean(values, axis=0)
            return mean + self.widen * (values[i % values.shape[0]] - mean)

        return member


class DrawnFields(eqx.Module):
    """Vector fields x' = f(x, u) drawn from the posterior; `fields[i]` is one of them.

    Each obeys the constraint as the model does. Where the constraint holds only up to its softness,
    a field is drawn towards a level of its own, by which it misses the constraint everywhere.
    """

    dynamics: Dynamics
    functions: FunctionDraws | MemberDraws
    gamma: Gamma | None
    softness: Float[Array, " c"] | None
    levels: Float[Array, "S c"] | None
    """What each field leaves of a soft constraint."""

    def __getitem__(self, i: int | Array) -> VectorField:
        """The i-th vector field."""
        function: Callable[[Array], Array] = self.functions[i]
        own = self.dynamics

        def field(x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
            values = function(own.reduction(jnp.concatenate([x, u])))
            if own.frame is not None:
                basis, drift = own.frame(x)
                return drift + basis @ values
            if self.gamma is None:
                return values
            if self.softness is None or self.levels is None:
                return project(values, self.gamma(x))
            gamma = self.gamma(x)
            size = jnp.linalg.norm(gamma[:, :-1], axis=1)  # levels are those of unit rows
            shifted = gamma.at[:, -1].add(-self.levels[i] * size)
            return soft_project(values, own.variance(x, u), shifted, self.softness)[0]

        return field


def draw_fields(
    dynamics: Dynamics,
    gamma: Gamma | None,
    softness: Float[Array, " c"] | None,
    count: int,
    *,
    key: PRNGKeyArray,
    widen: Float[np.ndarray | Array, " p"] | None = None,
) -> DrawnFields:
    """Draw vector fields from the posterior of a predictor's dynamics, held to its constraint.

    Args:
        dynamics: the dynamics of the predictor.
        gamma: its constraint, if it has one.
        softness: standard deviation of what motions leave of each row; None: it holds exactly.
        count: number of fields.
        key: randomness.
        widen: how many times as far from the mean as the posterior says, for each output of the
            regressor.
    """
    if count < 1:
        raise ValueError(f"At least one sample has to be drawn; got {count}. Ask for 100.")
    regressor, (function_key, level_key) = dynamics.regressor, jax.random.split(key)
    p = len(regressor.noise_level())
    widen = jnp.ones(p) if widen is None else jnp.asarray(widen)
    functions: FunctionDraws | MemberDraws
    if isinstance(regressor, AbstractGPs):
        functions = draw_functions(regressor, count, key=function_key, widen=widen)
    elif isinstance(regressor, MLPEnsemble):
        functions = MemberDraws(regressor, widen)
    else:
        raise TypeError(f"No draws are known for {type(regressor).__name__}; add them here.")
    if softness is None or dynamics.frame is not None:
        kept = Dynamics(dynamics.reduction, regressor.mean_only(), dynamics.frame)
        return DrawnFields(kept, functions, gamma, None, None)
    levels = softness[None] * jax.random.normal(level_key, (count, softness.shape[0]))
    return DrawnFields(dynamics, functions, gamma, softness, levels)

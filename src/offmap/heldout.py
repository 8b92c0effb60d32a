"""How well a predictor extrapolates: fitted to the middle of the data, judged at its edge."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from offmap.data import Samples
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.gp.selection import edge_points
from offmap.model import Predictor

_POINTS = 1500  # larger data sets are thinned


def edge_error(predictor: Predictor, samples: Samples, primary: int) -> float:
    """Root mean square one-step error at the outermost fifth of the primary source's samples.

    The regressor is conditioned again on the other four fifths, at its hyperparameters.
    Components of x' are measured in units of their spread.
    """
    own = np.flatnonzero(samples.source == primary)
    own = own[:: max(1, len(own) // _POINTS)]
    edge = edge_points(np.concatenate([samples.x, samples.u], axis=1)[own])
    middle, outside = samples.take(own[~edge]), samples.take(own[edge])
    refitted = Predictor(
        _conditioned_on(predictor.dynamics, middle), predictor.gamma, predictor.softness
    )
    predicted = _predict(refitted, jnp.asarray(outside.x), jnp.asarray(outside.u))
    spread = samples.xdot[own].std(axis=0)
    error = (np.asarray(predicted) - outside.xdot) / np.where(spread > 0, spread, 1.0)
    return float(np.sqrt(np.mean(error**2)))


def _conditioned_on(dynamics: Dynamics, samples: Samples) -> Dynamics:
    z, y = reduced_inputs(samples, dynamics.reduction), targets(samples, dynamics.frame)
    return Dynamics(dynamics.reduction, dynamics.regressor.conditioned(z, y), dynamics.frame)


@eqx.filter_jit
def _predict(predictor, x, u):
    return jax.vmap(predictor)(x, u)

"""How well a predictor extrapolates: fitted to the middle of the data, judged at its edge."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from offmap.data import Samples
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.gp.posterior import condition
from offmap.gp.selection import edge_points
from offmap.model import Predictor

_POINTS = 1500  # larger data sets are thinned


def edge_error(
    predictor: Predictor, samples: Samples, primary: int, by_trajectory: bool = False
) -> float:
    """Root mean square one-step error at the outermost fifth of the primary source's samples.

    The GPs are conditioned again on the other four fifths, at their hyperparameters. Components
    of x' are measured in units of their spread.
    """
    own = np.flatnonzero(samples.source == primary)
    own = own[:: max(1, len(own) // _POINTS)]
    groups = samples.trajectory[own] if by_trajectory else None
    edge = edge_points(np.concatenate([samples.x, samples.u], axis=1)[own], groups)
    middle, outside = _rows(samples, own[~edge]), _rows(samples, own[edge])
    refitted = Predictor(_condition_on(predictor.dynamics, middle), predictor.gamma)
    predicted = _predict(refitted, jnp.asarray(outside.x), jnp.asarray(outside.u))
    spread = samples.xdot[own].std(axis=0)
    error = (np.asarray(predicted) - outside.xdot) / np.where(spread > 0, spread, 1.0)
    return float(np.sqrt(np.mean(error**2)))


def _condition_on(dynamics: Dynamics, samples: Samples) -> Dynamics:
    gps = condition(
        dynamics.gps.kernel,
        dynamics.gps.noise[:, 0],
        dynamics.gps.scaling,
        jnp.asarray(reduced_inputs(samples, dynamics.reduction)),
        jnp.asarray(targets(samples, dynamics.frame)),
    )
    return Dynamics(dynamics.reduction, gps, dynamics.frame)


def _rows(samples: Samples, rows: np.ndarray) -> Samples:
    return replace(
        samples,
        x=samples.x[rows],
        u=samples.u[rows],
        xdot=samples.xdot[rows],
        source=samples.source[rows],
        trajectory=samples.trajectory[rows],
    )


@eqx.filter_jit
def _predict(predictor, x, u):
    return jax.vmap(predictor)(x, u)

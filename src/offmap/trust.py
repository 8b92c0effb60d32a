"""How far a query may be trusted: its distance to the data, in what the dynamics can see.

The expected error of a prediction grows with the distance d between the query and the nearest
sample. Held-out samples inside the data say which distance d₀ is usual there; all of them say over
which further distance D the error doubles; and

    trust = 2^(−max(d − d₀, 0) / D)

is then the ratio of the expected error among the data to that at the query.

A function that is straight in its inputs errs by how far it leans on them, near a sample or not.
What tells is its own standard deviation s, beside s₀, below which nine in ten samples are. Trust is
then also multiplied by (1 + (s/s₀)⁴)^(−1/4): nearly 1 where s is below s₀, and s₀/s beyond.
"""

from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.calls import at_each
from offmap.data import Samples
from offmap.dynamics import Dynamics, reduced_inputs
from offmap.gp.selection import edge_points
from offmap.predictor import Predictor
from offmap.pseudometric import Pseudometric, Reduction
from offmap.sampling import Doubt

_POINTS = 1500  # larger data sets are thinned where errors are measured
_LIGHTEST = 0.05  # an input that is kept matters at least this much, whatever its weight
_INSIDE = 10  # every tenth sample inside the data is held out, to see errors there
_USUAL = 0.9  # share of those that have a neighbour within the usual distance
_ROUND_OFF = 1e-9  # of the spread of x': no function is surer than that
_FLOOR = 1e-2  # errors below this share of the spread of x' are too small to be told apart


class Leverage(eqx.Module):
    """How far straight functions lean on what they know of their weights: their own doubt."""

    doubt: Doubt
    unit: Float[Array, " n"]
    """Spread of each component of x'."""
    usual: Float[Array, ""]
    """s₀², the mean square over the components in these units."""

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, ""]:
        """(s/s₀)² at one state and control."""
        return jnp.mean(self.doubt.variance(x, u) / self.unit**2) / self.usual


class Trust(eqx.Module):
    """Trust in [0, 1] at one state and control; inputs the model ignores cost nothing.

    1 among the data, ½ where the expected error is twice that, ¼ where it is four times that.
    """

    reduction: Reduction
    rate: Float[Array, " r"]
    """Units of distance per unit of each retained input."""
    samples: Float[Array, "N r"]
    """What the dynamics saw of the training inputs, in units of distance."""
    usual: Float[Array, ""]
    """Distance within which a query among the data has a neighbour."""
    doubling: Float[Array, ""]
    """Further distance over which the expected error doubles."""
    leverage: Leverage | None = None
    """Of functions that are straight; None where they bend, and distance tells."""

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, ""]:
        """Trust in the prediction at one state and control."""
        near = jnp.exp2(-jnp.maximum(self.distance(x, u) - self.usual, 0.0) / self.doubling)
        if self.leverage is None:
            return near
        return near * (1 + self.leverage(x, u) ** 2) ** -0.25

    def distance(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, ""]:
        """Distance to the nearest sample, over the retained inputs as the pseudometric weighs."""
        query = self.reduction(jnp.concatenate([x, u])) * self.rate
        squared = jnp.min(jnp.sum((query[None] - self.samples) ** 2, axis=1))
        # The root has no derivative at 0; this one is 0 there instead of NaN. NaN stays NaN.
        away = squared != 0
        return jnp.where(away, jnp.sqrt(jnp.where(away, squared, 1.0)), 0.0)


def fit_trust(
    predictor: Predictor,
    metric: Pseudometric | None,
    samples: Samples,
    primary: int,
    doubt: Doubt | None = None,
) -> Trust:
    """Trust in a predictor, its distances read off held-out samples and the errors there.

    Held out are the edge of the primary source's data and some samples inside it; the regressor is
    conditioned on the others, at its hyperparameters.

    Args:
        predictor: what is to be trusted.
        metric: the pseudometric over the inputs from which the predictor's were retained. Without
            one, and in a tangent frame, which has inputs of its own, all retained inputs weigh the
            same in units of their spread.
        samples: measured data.
        primary: code of the source whose errors are measured.
        doubt: about functions that are straight.
    """
    dynamics = predictor.dynamics
    rate = _rate(dynamics, metric, samples)
    own = np.flatnonzero(samples.source == primary)
    own = own[:: max(1, len(own) // _POINTS)]
    edge = edge_points(np.concatenate([samples.x, samples.u], axis=1)[own])
    out = edge.copy()
    out[np.flatnonzero(~edge)[::_INSIDE]] = True
    known, unknown = samples.take(own[~out]), samples.take(own[out])
    again = predictor.conditioned_on(known)
    at = jnp.asarray(unknown.x), jnp.asarray(unknown.u)
    spread = samples.xdot[own].std(axis=0)
    unit = np.where(spread > 0, spread, 1.0)
    errors = (np.asarray(at_each(again, *at)) - unknown.xdot) / unit
    errors = np.sqrt(np.mean(errors**2, axis=1))
    distance = np.asarray(at_each(_around(known, dynamics, rate).distance, *at))
    usual = float(np.quantile(distance[~edge[out]], _USUAL))
    doubling = doubling_distance(np.maximum(distance - usual, 0.0), errors)
    trust = _around(samples, dynamics, rate, usual, doubling)
    if doubt is None:
        return trust
    variance = Leverage(doubt, jnp.asarray(unit), jnp.ones(()))
    among = np.asarray(at_each(variance, samples.x[own], samples.u[own]))
    usual_variance = jnp.maximum(np.quantile(among, _USUAL), _ROUND_OFF**2)
    return replace(trust, leverage=replace(variance, usual=usual_variance))


def doubling_distance(distance: Float[np.ndarray, " E"], errors: Float[np.ndarray, " E"]) -> float:
    """The D of errors that grow as 2^(d / D), by least squares on their logarithms.

    Never more than the largest distance at which errors were seen: further out, that they have
    not doubled is no evidence that they will not.
    """
    farthest = max(float(distance.max()), 1e-12)
    logs = np.log2(np.maximum(errors, _FLOOR))
    centred = distance - distance.mean()
    slope = float(centred @ logs) / max(float(centred @ centred), 1e-300)
    return min(1 / slope, farthest) if slope > 0 else farthest


def _around(
    samples: Samples,
    dynamics: Dynamics,
    rate: Float[np.ndarray, " r"],
    usual: float = 0.0,
    doubling: float = 1.0,
) -> Trust:
    seen = reduced_inputs(samples, dynamics.reduction) * rate
    return Trust(
        dynamics.reduction,
        jnp.asarray(rate),
        jnp.asarray(seen),
        jnp.asarray(usual),
        jnp.asarray(doubling),
    )


def _rate(
    dynamics: Dynamics, metric: Pseudometric | None, samples: Samples
) -> Float[np.ndarray, " r"]:
    """Units of distance per unit of each retained input (diagonal P) or direction (full P)."""
    spread = reduced_inputs(samples, dynamics.reduction).std(axis=0)
    alike = 1 / np.where(spread > 0, spread, 1.0)
    if metric is None or dynamics.frame is not None:
        return alike
    # What a unit of each retained input is in the features that the metric measures.
    unit = np.linalg.pinv(np.asarray(dynamics.reduction.matrix)) / np.asarray(metric.scale)[:, None]
    squared = np.sum(unit * (np.asarray(metric.P) @ unit), axis=0)
    return np.sqrt(np.maximum(squared, _LIGHTEST * alike**2))

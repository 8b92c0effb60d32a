"""Which inputs the outputs depend on: the pseudometric, cross-checked by a Gaussian process."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from offmap.calls import at_each
from offmap.features import Features
from offmap.gp import GPConfig, edge_errors, fit_gps
from offmap.pseudometric import (
    Pseudometric,
    PseudometricConfig,
    Reduction,
    fit_pseudometric,
    retained_inputs,
)

_CHECK_POINTS = 300
_LEVEL = 1.05  # errors within this ratio count as equal
_FLOOR = 3e-4  # and so do all errors below this share of the outputs' spread
_FLAT = 3e-5  # a mean squared slope below this is none: half a per cent of the outputs' spread
_ABOVE_FLAT = 30.0  # times the largest of those: a slope, however small


@dataclass(frozen=True)
class Sparsity:
    """The inputs kept, and what spoke for and against them."""

    reduction: Reduction
    metric: Pseudometric | None
    sensitivity: dict[str, float]
    """Mean squared slope of a GP along each input, in standardised units; empty if unchecked."""
    disagreement: str
    """What the two judges kept, and who was right at the held-out edge; empty if they agree."""


def find_sparsity(
    inputs: Float[np.ndarray, "N d"],
    outputs: Float[np.ndarray, "N p"],
    names: tuple[str, ...],
    features: Features | None,
    *,
    states: int,
    key: PRNGKeyArray,
    config: PseudometricConfig,
    check: float | None,
    groups: np.ndarray | None = None,
) -> Sparsity:
    """Drop the inputs that do not matter; the first `states` of them are states, then controls.

    The pseudometric alone decides if `check` is None (the paper). Otherwise an input also counts
    as relevant if the outputs' GP has a mean squared slope above `check` along it, or far above
    those of inputs along which it is flat; a state along which it is flat is dropped. Where the two
    judges still disagree, the set that better predicts the held-out edge of the data is kept, and
    the smaller one if they are level; a control that either of them keeps stays. The contrastive
    loss alone would drop inputs that enter evenly, such as an angle through its cosine: the partner
    of a point may then be its mirror image. With many inputs it keeps them all.
    """
    seen = inputs if features is None else np.asarray(at_each(features, inputs))
    seen_names = names if features is None else features.names
    metric = fit_pseudometric(seen, outputs, seen_names, key=key, config=config)
    reduction = retained_inputs(metric, config.threshold, features)
    if check is None or config.form == "full":
        return Sparsity(reduction, metric, {}, "")
    chosen = np.asarray(jax.random.permutation(key, len(seen)))[:_CHECK_POINTS]
    x, y = seen[chosen], outputs[chosen]
    slopes = _squared_slopes(x, y, key)
    owner = np.arange(len(names)) if features is None else np.array(features.owner)
    sensitivity = {name: float(slopes[owner == i].max()) for i, name in enumerate(names)}
    other = _keeping(_with_slope(sensitivity, check), names, owner, features)
    if set(other.names) == set(reduction.names):
        return Sparsity(reduction, metric, sensitivity, "")
    if not other.names:
        return Sparsity(reduction, metric, sensitivity, "the GP sees no relevant input")
    text = f"pseudometric keeps {', '.join(reduction.names)}; slopes keep {', '.join(other.names)}"
    flat = {name for name in names[:states] if sensitivity[name] < _FLAT}
    reduction = _keeping({*reduction.names} - flat, names, owner, features)
    if set(other.names) == set(reduction.names):
        return Sparsity(reduction, metric, sensitivity, f"{text}; there is none along the others")
    errors = edge_errors(
        [(np.asarray(candidate.matrix) @ x.T).T for candidate in (reduction, other)],
        y,
        x,
        key=key,
        config=GPConfig(),
        groups=None if groups is None else groups[chosen],
    )
    level = [max(error, _FLOOR) for error in errors]
    small, large = np.argsort([len(reduction.names), len(other.names)])
    winner = (reduction, other)[small if level[small] <= _LEVEL * level[large] else large]
    controls = {*reduction.names, *other.names} & {*names[states:]}
    winner = _keeping({*winner.names} | controls, names, owner, features)
    text = f"{text}; errors at the held-out edge {errors[0]:.2g}, {errors[1]:.2g}"
    return Sparsity(winner, metric, sensitivity, text)


def _with_slope(sensitivity: dict[str, float], check: float) -> set[str]:
    """Inputs along which the outputs change."""
    flat = max((slope for slope in sensitivity.values() if slope < _FLAT), default=np.inf)
    least = min(check, max(_ABOVE_FLAT * flat, _FLAT))
    return {name for name, slope in sensitivity.items() if slope > least}


def _squared_slopes(
    x: Float[np.ndarray, "N d"], y: Float[np.ndarray, "N p"], key: PRNGKeyArray
) -> Float[np.ndarray, " d"]:
    """Largest mean squared slope of any output along each input, in units of their spreads."""
    source = np.zeros(len(x), dtype=int)
    gps = fit_gps(x, y, source, key=key, config=GPConfig(hyper_points=len(x)))
    slopes = np.asarray(_jacobians(gps, jnp.asarray(x)))
    scaled = slopes * np.asarray(gps.scaling.x_scale) / np.asarray(gps.scaling.y_scale)[:, None]
    return np.mean(scaled**2, axis=0).max(axis=0)


def _keeping(
    kept: set[str], names: tuple[str, ...], owner: np.ndarray, features: Features | None
) -> Reduction:
    chosen = [i for i, name in enumerate(names) if name in kept]
    matrix = jax.device_put(np.eye(len(owner))[np.isin(owner, chosen)])
    return Reduction(matrix, tuple(names[i] for i in chosen), features)


@eqx.filter_jit
def _jacobians(gps, x):
    return jax.vmap(jax.jacrev(gps))(x)

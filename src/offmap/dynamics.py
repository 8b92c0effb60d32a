"""The learned dynamics f̂: retained inputs, then a regressor for the velocity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.axes import TurnedAxes
from offmap.calls import at_each
from offmap.data import Samples
from offmap.gp import AbstractGPs, GPConfig, IndependentGPs, compact, complete, fit_gps, fold_in
from offmap.mlp import MLPConfig, fit_mlp
from offmap.pseudometric import Reduction
from offmap.regressor import AbstractRegressor
from offmap.tangent import TangentFrame

Frame = TangentFrame | TurnedAxes
"""Coordinates for velocities: of those a constraint allows, or as seen from a robot's own axes."""


class Dynamics(eqx.Module):
    """x' = f̂(x_red, u) (paper eq. learned_dynamics): "GP" with all inputs, "DGP" with retained.

    With a frame, the regressor gives the coordinates of x' in it.
    """

    reduction: Reduction
    regressor: AbstractRegressor
    frame: Frame | None = None

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Posterior mean of x' at one state and control."""
        mean = self.regressor(self.reduction(jnp.concatenate([x, u])))
        if self.frame is None:
            return mean
        basis, drift = self.frame(x)
        return drift + basis @ mean

    def variance(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Posterior variance of each component of x'."""
        variance = self.regressor.variance(self.reduction(jnp.concatenate([x, u])))
        if self.frame is None:
            return variance
        basis, _ = self.frame(x)
        return basis**2 @ variance


def compact_dynamics(dynamics: Dynamics) -> Dynamics:
    """The same predictions at less cost, where that is exact; without variances."""
    return Dynamics(dynamics.reduction, compact(dynamics.regressor), dynamics.frame)


def fit_dynamics(
    samples: Samples,
    reduction: Reduction,
    *,
    key: PRNGKeyArray,
    config: GPConfig | MLPConfig,
    frame: Frame | None = None,
    affine_in: tuple[int, ...] | None = None,
) -> Dynamics:
    """Fit f̂ to measured (x, u, x') on the inputs that `reduction` keeps (paper IV-A-3).

    Kernels that are affine in some inputs are so in `affine_in`; None: in the controls.
    """
    n, m = samples.x.shape[1], samples.u.shape[1]
    z, y, source = reduced_inputs(samples, reduction), targets(samples, frame), samples.source
    if isinstance(config, MLPConfig):
        return Dynamics(reduction, fit_mlp(z, y, source, key=key, config=config), frame)
    controls = reduction.rows_of(range(n, n + m)) if affine_in is None else affine_in
    gps = fit_gps(z, y, source, key=key, config=config, controls=controls)
    return Dynamics(reduction, gps, frame)


def complete_dynamics(
    dynamics: Dynamics, samples: Samples, primary: int, *, config: GPConfig | MLPConfig
) -> Dynamics:
    """The dynamics conditioned on all samples, where it was fitted to some of them."""
    gps = dynamics.regressor
    if gps.points() == len(samples):
        return dynamics
    if isinstance(gps, AbstractGPs) and isinstance(config, GPConfig):
        in_base = _in_base(samples, primary, config)
        z, y = reduced_inputs(samples, dynamics.reduction), targets(samples, dynamics.frame)
        if not (isinstance(gps, IndependentGPs) and gps.begins_with(z[in_base])):
            gps = complete(gps, z[in_base], y[in_base], config=config)
        dynamics = Dynamics(dynamics.reduction, gps, dynamics.frame)
    return update_dynamics(dynamics, samples, primary, config=config)


def update_dynamics(
    dynamics: Dynamics, samples: Samples, primary: int, *, config: GPConfig | MLPConfig
) -> Dynamics:
    """Condition on all samples, keeping the factorisation of those the fit was based on.

    `samples` begin with those of the fit, in their order; further ones come behind. Networks are
    trained again.
    """
    z, y = reduced_inputs(samples, dynamics.reduction), targets(samples, dynamics.frame)
    if isinstance(config, MLPConfig):
        again = fit_mlp(z, y, samples.source, key=jax.random.key(0), config=config)
        return Dynamics(dynamics.reduction, again, dynamics.frame)
    gps = dynamics.regressor
    assert isinstance(gps, AbstractGPs)
    base = np.flatnonzero(_in_base(samples, primary, config))[: gps.base_points()]
    further = np.setdiff1d(np.arange(len(samples)), base)
    gps = fold_in(
        gps.without_extension(),
        z[further],
        y[further],
        samples.source[further],
        config=config,
        known=primary,
    )
    return Dynamics(dynamics.reduction, gps, dynamics.frame)


def _in_base(samples: Samples, primary: int, config: GPConfig) -> np.ndarray:
    """Mask of the samples whose noise level the hyperparameter search found."""
    return np.full(len(samples), config.noise == "shared") | (samples.source == primary)


def reduced_inputs(samples: Samples, reduction: Reduction) -> Float[np.ndarray, "N r"]:
    """What the GPs see of each sample's (x, u)."""
    z = np.concatenate([samples.x, samples.u], axis=1)
    return np.asarray(at_each(reduction, z))


def targets(samples: Samples, frame: Frame | None) -> Float[np.ndarray, "N p"]:
    """What the GPs are to predict: x', or its coordinates in the frame."""
    if frame is None:
        return samples.xdot
    return np.asarray(at_each(frame.coordinates, samples.x, samples.xdot))

"""The learned dynamics f̂: retained inputs, then one GP for each component of the velocity."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.data import Samples
from offmap.gp import GPConfig, IndependentGPs, fit_gps, fold_in
from offmap.pseudometric import Reduction
from offmap.tangent import TangentFrame


class Dynamics(eqx.Module):
    """x' = f̂(x_red, u) (paper eq. learned_dynamics): "GP" with all inputs, "DGP" with retained.

    With a frame, the GPs give the coordinates of x' among the motions a constraint allows.
    """

    reduction: Reduction
    gps: IndependentGPs
    frame: TangentFrame | None = None

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Posterior mean of x' at one state and control."""
        mean = self.gps(self.reduction(jnp.concatenate([x, u])))
        if self.frame is None:
            return mean
        basis, drift = self.frame(x)
        return drift + basis @ mean

    def variance(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Posterior variance of each component of x'."""
        variance = self.gps.variance(self.reduction(jnp.concatenate([x, u])))
        if self.frame is None:
            return variance
        basis, _ = self.frame(x)
        return basis**2 @ variance


def fit_dynamics(
    samples: Samples,
    reduction: Reduction,
    *,
    key: PRNGKeyArray,
    config: GPConfig,
    frame: TangentFrame | None = None,
) -> Dynamics:
    """Fit f̂ to measured (x, u, x') on the inputs that `reduction` keeps (paper IV-A-3)."""
    n, m = samples.x.shape[1], samples.u.shape[1]
    gps = fit_gps(
        reduced_inputs(samples, reduction),
        targets(samples, frame),
        samples.source,
        key=key,
        config=config,
        controls=reduction.rows_of(range(n, n + m)),
    )
    return Dynamics(reduction, gps, frame)


def update_dynamics(
    dynamics: Dynamics, samples: Samples, primary: int, *, config: GPConfig
) -> Dynamics:
    """Condition on all samples, keeping the factorisation of those the fit was based on.

    `samples` begin with those of the fit, in their order; further ones come behind.
    """
    in_base = np.ones(len(samples), bool) if config.noise == "shared" else samples.source == primary
    base = np.flatnonzero(in_base)[: dynamics.gps.base[0].shape[0]]
    further = np.setdiff1d(np.arange(len(samples)), base)
    gps = fold_in(
        dynamics.gps.without_extension(),
        reduced_inputs(samples, dynamics.reduction)[further],
        targets(samples, dynamics.frame)[further],
        samples.source[further],
        config=config,
        known=primary,
    )
    return Dynamics(dynamics.reduction, gps, dynamics.frame)


def reduced_inputs(samples: Samples, reduction: Reduction) -> Float[np.ndarray, "N r"]:
    """What the GPs see of each sample's (x, u)."""
    z = np.concatenate([samples.x, samples.u], axis=1)
    return np.asarray(jax.vmap(reduction)(jnp.asarray(z)))


def targets(samples: Samples, frame: TangentFrame | None) -> Float[np.ndarray, "N p"]:
    """What the GPs are to predict: x', or its coordinates in the frame."""
    if frame is None:
        return samples.xdot
    return np.asarray(_coordinates(frame, jnp.asarray(samples.x), jnp.asarray(samples.xdot)))


@eqx.filter_jit
def _coordinates(frame, x, xdot):
    return jax.vmap(frame.coordinates)(x, xdot)

"""The learned dynamics f̂: retained inputs, then one GP for each state derivative."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from offmap.data import Samples
from offmap.gp import GPConfig, IndependentGPs, fit_gps, fold_in
from offmap.pseudometric import Reduction


class Dynamics(eqx.Module):
    """x' = f̂(x_red, u) (paper eq. learned_dynamics): "GP" with all inputs, "DGP" with retained."""

    reduction: Reduction
    gps: IndependentGPs

    def __call__(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Posterior mean of x' at one state and control."""
        return self.gps(self.reduction(jnp.concatenate([x, u])))

    def variance(self, x: Float[Array, " n"], u: Float[Array, " m"]) -> Float[Array, " n"]:
        """Posterior variance of each component of x'."""
        return self.gps.variance(self.reduction(jnp.concatenate([x, u])))


def fit_dynamics(
    samples: Samples, reduction: Reduction, *, key: PRNGKeyArray, config: GPConfig
) -> Dynamics:
    """Fit f̂ to measured (x, u, x') on the inputs that `reduction` keeps (paper IV-A-3)."""
    z = _reduced(samples, reduction)
    return Dynamics(reduction, fit_gps(z, samples.xdot, samples.source, key=key, config=config))


def update_dynamics(
    dynamics: Dynamics, samples: Samples, primary: int, *, config: GPConfig
) -> Dynamics:
    """Condition again on all samples but the primary source's, whose factorisation is kept."""
    further = samples.source != primary
    z = _reduced(samples, dynamics.reduction)
    gps = fold_in(
        dynamics.gps.without_extension(),
        z[further],
        samples.xdot[further],
        samples.source[further],
        config=config,
    )
    return Dynamics(dynamics.reduction, gps)


def _reduced(samples: Samples, reduction: Reduction) -> Float[np.ndarray, "N r"]:
    z = np.concatenate([samples.x, samples.u], axis=1)
    return np.asarray(jax.vmap(reduction)(jnp.asarray(z)))

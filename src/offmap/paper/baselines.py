"""What others would do with the same data: each baseline turns (offline, online) into a field.

All of them see raw inputs: nobody tells them which states are angles. They pool offline and online
samples, as their ordinary recipes do.
"""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from offmap.calls import at_each
from offmap.data import Dataset, Samples, Trajectory
from offmap.gp import RBF
from offmap.gp.expansion import Scaling
from offmap.gp.fit import maximise_likelihood
from offmap.gp.posterior import condition

Field = Callable[[Float[np.ndarray, "B n"], Float[np.ndarray, "B m"]], Float[np.ndarray, "B n"]]
"""x' for a batch of states and controls."""

Baseline = Callable[[Dataset, Trajectory], Field]
"""Fit to all offline data and one online trajectory."""

FAR = 1e6
"""A rollout that leaves ±FAR in some state stays there: worse than that is all the same."""

_HYPER_POINTS = 600  # hyperparameters are fitted to at most this many samples, as ours are
_NOISE_FLOOR = 1e-8  # below, the likelihood of a plain RBF on noise-free data is round-off
_THRESHOLD = 0.1  # of sequentially thresholded least squares, in the units of the terms


def unavailable() -> dict[str, str]:
    """Baselines that cannot run here, and why."""
    if find_spec("pysindy") is not None:
        return {}
    return {"PySINDy": "pysindy is not installed; install it with `pip install 'offmap[bench]'`"}


def roll_out(
    field: Field, starts: Float[np.ndarray, "B n"], controls: Float[np.ndarray, "B T m"], dt: float
) -> Float[np.ndarray, "B S n"]:
    """States of a field under held controls, by the Euler steps of the protocol."""
    states = [starts]
    for t in range(controls.shape[1]):
        with np.errstate(over="ignore", invalid="ignore"):
            following = states[-1] + dt * field(states[-1], controls[:, t])
        states.append(bounded(following))
    return np.stack(states, axis=1)


def bounded(states: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """States with those that ran away, or are no numbers, at ±FAR."""
    return np.clip(np.nan_to_num(states, nan=FAR), -FAR, FAR)


def gaussian_process(offline: Dataset, online: Trajectory, *, ard: bool) -> Field:
    """One exact GP per component: RBF with one length scale, or one per input; one noise level."""
    samples = offline.append(online).samples()
    z = _inputs(samples)
    scaling = Scaling.of(z, samples.xdot)
    chosen = np.random.default_rng(0).permutation(len(z))[:_HYPER_POINTS]
    kernel, noise = maximise_likelihood(
        RBF(jnp.full(z.shape[1] if ard else 1, np.log(1.5)), jnp.zeros(())),
        jnp.asarray(scaling.standardised_x(z[chosen])),
        jnp.asarray(scaling.standardised_y(samples.xdot[chosen])),
        iterations=150,
        noise_floor=_NOISE_FLOOR,
    )
    gps = condition(kernel, noise, scaling, z, samples.xdot).mean_only()
    return lambda x, u: np.asarray(at_each(gps, np.concatenate([x, u], axis=1)))


def least_squares(offline: Dataset, online: Trajectory) -> Field:
    """Linear regression on {1, x, sin x, cos x} ⊗ {1, u}: exact where this library holds f."""
    samples = offline.append(online).samples()
    features = trigonometric(samples.x, samples.u)
    size = np.linalg.norm(features, axis=0)
    weights = np.linalg.lstsq(features / size, samples.xdot, rcond=None)[0] / size[:, None]
    return lambda x, u: trigonometric(x, u) @ weights


def trigonometric(
    x: Float[np.ndarray, "N n"], u: Float[np.ndarray, "N m"]
) -> Float[np.ndarray, "N terms"]:
    """{1, x, sin x, cos x} ⊗ {1, u} at every sample."""
    one = np.ones((len(x), 1))
    states = np.concatenate([one, x, np.sin(x), np.cos(x)], axis=1)
    controls = np.concatenate([one, u], axis=1)
    return (states[:, :, None] * controls[:, None, :]).reshape(len(x), -1)


def sparse_regression(offline: Dataset, online: Trajectory) -> Field:
    """PySINDy on the same library: sequentially thresholded least squares (extra `bench`)."""
    import pysindy

    samples = offline.append(online).samples()
    n, m = offline.n, offline.m
    states = pysindy.PolynomialLibrary(1) + pysindy.FourierLibrary(n_frequencies=1)
    library = pysindy.GeneralizedLibrary(
        [states, pysindy.PolynomialLibrary(1)],
        tensor_array=[[1, 1]],
        inputs_per_library=[list(range(n)), list(range(n, n + m))],
        exclude_libraries=[0, 1],  # their product alone, which holds both
    )
    model = pysindy.SINDy(pysindy.STLSQ(threshold=_THRESHOLD), library)
    model.fit(samples.x, t=offline.dt, x_dot=samples.xdot, u=samples.u)
    return lambda x, u: np.asarray(model.predict(x, u=u))


def _inputs(samples: Samples) -> Float[np.ndarray, "N d"]:
    return np.concatenate([samples.x, samples.u], axis=1)


BASELINES: dict[str, Baseline] = {
    "isotropic GP": partial(gaussian_process, ard=False),
    "ARD-GP": partial(gaussian_process, ard=True),
    "least squares": least_squares,
    "PySINDy": sparse_regression,
}

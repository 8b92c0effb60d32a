"""Predictors put together by hand, at their kernels' first guesses."""

import jax
import jax.numpy as jnp
import numpy as np

from offmap.constraint import DictionaryConstraint, LearnedConstraint, Library
from offmap.constraint.learned import Row
from offmap.data import Dataset, Trajectory
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.features import Features
from offmap.gauge import commanded_gauge
from offmap.gp import kernel_named
from offmap.gp.expansion import Scaling
from offmap.gp.posterior import condition
from offmap.predictor import Predictor
from offmap.pseudometric import Reduction
from offmap.rollout import rollout
from offmap.systems import Box
from offmap.tangent import tangent_frame


def logs(system, reach, count, steps):
    start, control = jax.random.split(jax.random.key(0))
    x0 = Box(tuple(-r for r in reach), reach).sample(start, count)
    u = system.controls.sample(control, count, steps)
    x = jax.vmap(lambda x, u: rollout(system.f, x, u, system.dt))(x0, u)
    drives = [Trajectory(x[i], u[i], dt=system.dt) for i in range(count)]
    return Dataset(drives, system.state_names, system.control_names, angles=system.angles)


def gps_on(z, y, name, controls=(), noise=1e-4):
    kernel = kernel_named(name, z.shape[1], controls)
    kernel = jax.tree.map(lambda leaf: jnp.stack([leaf] * y.shape[1]), kernel)
    noise = jnp.full(y.shape[1], noise)
    return condition(kernel, noise, Scaling.of(z, y), jnp.asarray(z), jnp.asarray(y))


def dictionary_of(system, angles):
    """The true Γ as sums of library terms."""
    library = Library(system.state_names, angles)
    x = jnp.asarray(np.random.default_rng(1).normal(size=(300, system.n)))
    phi = np.asarray(jax.vmap(library)(x))
    rows = np.asarray(jax.vmap(system.gamma)(x))
    weights = np.linalg.lstsq(phi, rows.reshape(300, -1), rcond=None)[0]
    weights = weights.reshape(phi.shape[1], *rows.shape[1:]).swapaxes(0, 1)
    weights = np.where(np.abs(weights) > 1e-9, weights, 0.0)  # what round-off left
    return DictionaryConstraint(library, jnp.asarray(weights))


def predictor_of(system, dataset, kernel, constraint, framed, reduction=None, noise=1e-4):
    """Any kernel with any form of the constraint: "dictionary", a kernel for GP rows, or None."""
    samples, names = dataset.samples(), dataset.input_names
    angles = dataset.angle_indices
    gamma = None
    if constraint == "dictionary":
        gamma = dictionary_of(system, angles)
    elif constraint is not None:
        rows = np.asarray(jax.vmap(system.gamma)(jnp.asarray(samples.x)))
        states = Reduction.everything(system.state_names)
        gamma = LearnedConstraint(
            tuple(
                Row(states, gps_on(samples.x, rows[:, i], constraint), constraint)
                for i in range(rows.shape[1])
            )
        )
    mentions = None
    if isinstance(gamma, DictionaryConstraint):
        mentions = np.any(np.abs(np.asarray(gamma.weights)[:, :, :-1]) > 0, axis=1)
    frame = None
    if framed:
        frame = tangent_frame(gamma, samples.x, angles, mentions)
        frame = commanded_gauge(frame, samples.x, samples.u, samples.xdot)
    reduction = reduction or Reduction.everything(names, Features(names, angles))
    z = reduced_inputs(samples, reduction)
    controls = reduction.rows_of(range(system.n, system.n + system.m))
    gps = gps_on(z, targets(samples, frame), kernel, controls, noise)
    return Predictor(Dynamics(reduction, gps, frame), gamma)

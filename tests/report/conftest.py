"""One small model of each kind, and the page about it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.config import Config
from offmap.constraint import (
    ConstraintFit,
    DictionaryConstraint,
    Equation,
    Library,
    NormalSpace,
)
from offmap.data import Dataset, Trajectory
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.features import Features
from offmap.gp import kernel_named
from offmap.gp.expansion import Scaling
from offmap.gp.posterior import condition
from offmap.model import Model
from offmap.predictor import Predictor
from offmap.pseudometric import Pseudometric, Reduction
from offmap.report import write
from offmap.rollout import rollout
from offmap.summary import Choices
from offmap.systems import planar_quadrotor, unicycle
from offmap.tangent import tangent_frame

NASTY = "</script><b>&v"  # a column name that would break a page that trusted it


def drive(system, low, high, count, steps, names=None):
    rng = np.random.default_rng(0)
    trajectories = []
    for _ in range(count):
        u = rng.uniform(system.controls.low, system.controls.high, (steps, system.m))
        x0 = jnp.asarray(rng.uniform(low, high))
        x = np.asarray(rollout(system.f, x0, jnp.asarray(u), system.dt))
        trajectories.append(Trajectory(x, u, dt=system.dt))
    return Dataset(
        trajectories, system.state_names, names or system.control_names, angles=system.angles
    )


@pytest.fixture(scope="session")
def unicycle_model():
    """What a fit finds, put together by hand: tangent frame, pseudometric, one equation."""
    dataset = drive(unicycle(), [-5, -5, -1], [5, 5, 1], 8, 12, ("omega", NASTY))
    samples, names = dataset.samples(), dataset.state_names
    library = Library(names, (2,))
    weights = np.zeros((1, len(library.labels), 4))
    weights[0, library.labels.index("sin(theta)"), 0] = 1.0
    weights[0, library.labels.index("cos(theta)"), 1] = -1.0
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    features = Features(dataset.input_names, (2,))
    everything = Reduction.everything(dataset.input_names, features)
    world = Reduction(everything.matrix[2:], dataset.input_names[2:], features)
    along = Reduction(everything.matrix[4:], dataset.input_names[3:], features)
    metric = Pseudometric(
        jnp.diag(jnp.array([0.0, 0.01, 0.4, 0.3, 0.8, 1.0])),
        jnp.ones(6),
        jnp.zeros(1),
        True,
        features.names,
    )
    space = NormalSpace(samples.x, np.zeros((len(samples), 1, 4)), np.array([7, 4, 2, 1e-13]))
    found = ConstraintFit(
        gamma,
        space,
        space.basis,
        [],
        (("theta",),),
        (Equation("sin(theta)·px' − cos(theta)·py' = 0", 0.01, True),),
    )
    frame = tangent_frame(gamma, samples.x, (2,))
    structure = {"none": 2e-8, "projected": 2e-8, "tangent": 5e-12}
    dynamics = untrained(dataset, "affine", world)
    return Model(
        Predictor(untrained(dataset, "affine", along, frame), gamma),
        dynamics,
        Config(),
        dataset,
        "offline",
        metric,
        found,
        Choices({"affine": 1e-8, "rbf": 1e-5}, structure, "tangent"),
        0,
    )


@pytest.fixture(scope="session")
def quadrotor_model():
    """Put together by hand: six states, four equations, projection, no pseudometric."""
    dataset = drive(planar_quadrotor(), [-2] * 6, [2] * 6, 6, 15)
    names = dataset.state_names
    library = Library(names, (2,))
    weights = np.zeros((4, len(library.labels), 7))
    for row, (position, velocity) in enumerate(((0, "vx"), (1, "vz"), (2, "omega"))):
        weights[row, 0, position] = 1.0
        weights[row, library.labels.index(velocity), 6] = -1.0
    cos, sin = library.labels.index("cos(phi)"), library.labels.index("sin(phi)")
    weights[3, cos, 3], weights[3, sin, 4], weights[3, sin, 6] = 1.0, 1.0, 9.81
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    dynamics = untrained(dataset, "rbf+linear")
    return Model(
        Predictor(dynamics, gamma),
        dynamics,
        Config(),
        dataset,
        "offline",
        None,
        None,
        Choices({}, {}),
        0,
    )


@pytest.fixture(scope="session")
def free_model(unicycle_model):
    """No constraint and no pseudometric."""
    world = untrained(unicycle_model.dataset, "rbf")
    return replace(
        unicycle_model,
        predictor=Predictor(world, None),
        world=world,
        constraint_fit=None,
        pseudometric=None,
        choices=Choices({}, {}),
    )


def untrained(dataset, kernel, reduction=None, frame=None):
    """Dynamics at the kernel's first guess, given all samples."""
    samples = dataset.samples()
    reduction = reduction or Reduction.everything(dataset.input_names)
    x, y = reduced_inputs(samples, reduction), targets(samples, frame)
    controls = reduction.rows_of(range(dataset.n, dataset.n + dataset.m))
    one = kernel_named(kernel, x.shape[1], controls)
    kernels = jax.tree.map(lambda leaf: jnp.stack([leaf] * y.shape[1]), one)
    noise = jnp.full(y.shape[1], 1e-6)
    gps = condition(kernels, noise, Scaling.of(x, y), jnp.asarray(x), jnp.asarray(y))
    return Dynamics(reduction, gps, frame)


@pytest.fixture(scope="session")
def pages(tmp_path_factory, unicycle_model, quadrotor_model, free_model):
    folder = tmp_path_factory.mktemp("pages")
    models = {"unicycle": unicycle_model, "quadrotor": quadrotor_model, "free": free_model}
    return {name: write(model, folder / f"{name}.html") for name, model in models.items()}

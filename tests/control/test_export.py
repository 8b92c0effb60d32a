"""The exported function is the model: values, slopes and compiled C agree, the rest is refused."""

import subprocess
import sys
from dataclasses import replace

import casadi
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_models import gps_on, logs, predictor_of

from offmap.constraint import DictionaryConstraint, Library
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.export import to_casadi
from offmap.gp.kernels import Product, kernel_named
from offmap.mlp import MLPConfig, MLPEnsemble
from offmap.pattern import pattern_of
from offmap.predictor import Predictor
from offmap.pseudometric import Reduction
from offmap.sampling import find_doubt
from offmap.systems import planar_quadrotor, trailer, unicycle
from offmap.tangent import Guide, tangent_frame

UNICYCLE, QUADROTOR, TRAILER = unicycle(), planar_quadrotor(), trailer()

CASES = [
    (UNICYCLE, "affine", "rbf", False),
    (UNICYCLE, "linear", "cosine", True),
    pytest.param(UNICYCLE, "quadratic", None, False, marks=pytest.mark.slow),
    pytest.param(QUADROTOR, "rbf+linear", "dictionary", False, marks=pytest.mark.slow),
    (QUADROTOR, "affine", "dictionary", True),
    (TRAILER, "linear", "dictionary", True),  # whose frame is not measured by all states
]


def assert_agrees(f, predictor, n, m):
    """Values and Jacobians to 1e-8, among the data and beyond."""
    derivatives = f.factory("J", ["x", "u"], ["jac:xdot:x", "jac:xdot:u"])

    def twice(x, u):
        value = predictor(x, u)
        return value, value

    both = jax.jit(jax.jacfwd(twice, (0, 1), has_aux=True))
    rng = np.random.default_rng(0)
    for reach in (1, 2, 3):
        x, u = rng.uniform(-reach, reach, n), rng.uniform(0, reach, m)
        slopes, value = both(jnp.asarray(x), jnp.asarray(u))
        np.testing.assert_allclose(np.array(f(x, u))[:, 0], value, atol=1e-8)
        for ours, theirs in zip(slopes, derivatives(x, u), strict=True):
            np.testing.assert_allclose(np.array(theirs), ours, atol=1e-8)


@pytest.mark.parametrize(
    ("system", "kernel", "constraint", "framed"), CASES, ids=lambda v: getattr(v, "name", str(v))
)
def test_export_agrees_in_values_and_jacobians(system, kernel, constraint, framed):
    dataset = logs(system, (1.0,) * system.n, 6, 6)
    predictor = predictor_of(system, dataset, kernel, constraint, framed)
    f = to_casadi(predictor, system.n, system.m)
    assert_agrees(f, predictor, system.n, system.m)


def test_a_frame_in_another_gauge_is_exported(model):
    own = predictor_of(UNICYCLE, model.dataset, "linear", "dictionary", True)
    library, rng = own.gamma.library, np.random.default_rng(0)
    column = own.dynamics.frame.pattern.free.index(-1)
    sums = jnp.asarray(rng.normal(size=(3, len(library.labels))))
    guide, pull = Guide(library, sums, column), jnp.asarray(rng.normal(size=3))
    frame = replace(own.dynamics.frame, guide=guide, pull=pull)
    dynamics = Dynamics(own.dynamics.reduction, own.dynamics.regressor, frame)
    predictor = Predictor(dynamics, own.gamma)
    assert_agrees(to_casadi(predictor, 3, 2), predictor, 3, 2)


def test_a_frame_in_which_a_state_follows_others_is_exported(model):
    library, rng = Library(UNICYCLE.state_names, (2,)), np.random.default_rng(1)
    weights = np.zeros((1, len(library.labels), 4))
    weights[0, 0], weights[0, 1:3, :2] = [0, 0, 1, 0.2], rng.normal(size=(2, 2))
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    mentions, samples = np.array([[True, True, True]]), model.dataset.samples()
    frame = tangent_frame(gamma, samples.x, (), mentions)
    frame = replace(frame, pattern=pattern_of(mentions, ((0, 2),)))
    everything = Reduction.everything(model.dataset.input_names)
    gps = gps_on(reduced_inputs(samples, everything), targets(samples, frame), "linear")
    predictor = Predictor(Dynamics(everything, gps, frame), gamma)
    assert_agrees(to_casadi(predictor, 3, 2), predictor, 3, 2)


def test_a_product_of_kernels_is_exported(model):
    own = predictor_of(UNICYCLE, model.dataset, "rbf+linear", None, False).dynamics
    wave = jax.tree.map(lambda leaf: jnp.stack([leaf] * 3), kernel_named("cosine", 6))
    gps = eqx.tree_at(lambda g: g.kernel, own.regressor, Product(own.regressor.kernel, wave))
    dynamics = Dynamics(own.reduction, gps)
    predictor = Predictor(dynamics, None)
    assert_agrees(to_casadi(predictor, 3, 2), predictor, 3, 2)


@pytest.mark.parametrize(
    ("system", "kernel", "framed"),
    [
        pytest.param(QUADROTOR, "bilinear", True, marks=pytest.mark.slow),
        pytest.param(QUADROTOR, "quadratic", True, marks=pytest.mark.slow),
        (UNICYCLE, "rbf+linear", False),
    ],
    ids=lambda v: getattr(v, "name", str(v)),
)
def test_standard_deviations_agree_in_values_and_jacobians(system, kernel, framed):
    """Straight functions in a frame in closed form, and bumps under a projection."""
    dataset = logs(system, (1.0,) * system.n, 6, 6)
    noisy = [
        replace(log, xdot=log.samples()[2] + np.random.default_rng(i).normal(size=log.x[:-1].shape))
        for i, log in enumerate(dataset)
    ]
    dataset = replace(dataset, trajectories=tuple(noisy))
    predictor = predictor_of(system, dataset, kernel, "dictionary", framed, noise=1e-2)
    doubt = find_doubt(predictor, dataset.samples(), 0)
    own, rng = predictor.gamma.weights, np.random.default_rng(1)
    count = len(doubt.along) or 2
    directions = jnp.asarray(0.05 * rng.normal(size=(count, *own.shape)) * (np.asarray(own) != 0))
    doubt = replace(doubt, missed=jnp.linspace(0.1, 0.2, own.shape[0]), weights=directions)
    assert not framed or predictor.dynamics.frame.pattern is not None
    f = to_casadi(predictor, system.n, system.m, doubt=doubt)
    derivatives = f.factory("J", ["x", "u"], ["jac:std:x", "jac:std:u"])
    slopes = jax.jit(jax.jacfwd(doubt.std, (0, 1)))
    rng = np.random.default_rng(0)
    for reach in (1, 2, 3):
        x, u = rng.uniform(-reach, reach, system.n), rng.uniform(0, reach, system.m)
        at = jnp.asarray(x), jnp.asarray(u)
        np.testing.assert_allclose(np.array(f(x, u)[0])[:, 0], predictor(*at), atol=1e-8)
        np.testing.assert_allclose(np.array(f(x, u)[1])[:, 0], doubt.std(*at), atol=1e-8)
        for ours, theirs in zip(slopes(*at), derivatives(x, u), strict=True):
            np.testing.assert_allclose(np.array(theirs), ours, atol=1e-8)


def test_standard_deviations_of_too_many_samples_are_refused(model, monkeypatch):
    monkeypatch.setattr("offmap.export.gps._LARGEST_FACTOR", 1000)
    with pytest.raises(ValueError, match=r"at most 1,000 numbers .* Export the mean alone"):
        model.to_casadi(return_std=True)


def test_generated_c_code_agrees(model, tmp_path, monkeypatch):
    f = model.to_casadi(name="robot", return_std=True)
    slopes = f.factory("slopes", ["x", "u"], ["jac:xdot:x", "jac:xdot:u"])
    monkeypatch.chdir(tmp_path)
    code = casadi.CodeGenerator("robot.c")
    code.add(f)
    code.add(slopes)
    code.generate()
    command = ["gcc", "-O1", "-shared", "-fPIC", "robot.c", "-o", "robot.so", "-lm"]
    subprocess.run(command, check=True)
    compiled, compiled_slopes = (casadi.external(n, "./robot.so") for n in ("robot", "slopes"))
    rng = np.random.default_rng(0)
    for reach in (1, 3, 10):
        x, u = rng.uniform(-reach, reach, 3), rng.uniform(-1, 1, 2)
        for theirs, ours in zip(compiled(x, u), model.predict(x, u, return_std=True), strict=True):
            np.testing.assert_allclose(np.array(theirs)[:, 0], ours, atol=1e-8)
        ours = jax.jacfwd(model.predictor, (0, 1))(jnp.asarray(x), jnp.asarray(u))
        for theirs, slope in zip(compiled_slopes(x, u), ours, strict=True):
            np.testing.assert_allclose(np.array(theirs), slope, atol=1e-8)


def test_the_export_needs_neither_offmap_nor_jax(model, tmp_path):
    x, u = [3.0, -1.0, 2.5], [0.1, 0.7]
    model.to_casadi().save(str(tmp_path / "robot.casadi"))
    script = (
        "import sys, casadi\n"
        f"f = casadi.Function.load({str(tmp_path / 'robot.casadi')!r})\n"
        f"print(*f({x}, {u}).full().ravel())\n"
        "assert not {'jax', 'offmap'} & set(sys.modules)\n"
    )
    run = [sys.executable, "-c", script]
    printed = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    xdot = [float(number) for number in printed.split()]
    np.testing.assert_allclose(xdot, model.predict(np.array(x), np.array(u)), atol=1e-8)


def test_repeated_rows_of_a_constraint_drop_out(model):
    gamma = model.predictor.gamma
    twice = eqx.tree_at(lambda g: g.weights, gamma, jnp.tile(gamma.weights, (2, 1, 1)))
    doubled = model.with_constraint(twice)
    f, x, u = doubled.to_casadi(), np.array([3.0, -1.0, 2.5]), np.array([0.1, 0.7])
    np.testing.assert_allclose(np.array(f(x, u))[:, 0], doubled.predict(x, u), atol=1e-8)
    slope = np.array(f.factory("J", ["x", "u"], ["jac:xdot:x"])(x, u))
    once = model.to_casadi().factory("J", ["x", "u"], ["jac:xdot:x"])(x, u)
    np.testing.assert_allclose(slope, np.array(once), atol=1e-8)


def test_products_of_states_and_sums_of_angles_in_a_constraint_are_exported(model):
    library = replace(
        model.predictor.gamma.library,
        sums=((0, 2, 1), (1, 2, -1)),
        pairs=((1, 3), (4, 6), (1, 3, 3)),
    )
    weights = np.random.default_rng(0).normal(size=(1, len(library.labels), 4))
    changed = model.with_constraint(DictionaryConstraint(library, jnp.asarray(weights)))
    assert_agrees(changed.to_casadi(), changed.predictor, 3, 2)


def test_a_constraint_in_python_is_refused_unless_given_again(model):
    known = model.with_constraint(UNICYCLE.gamma)
    with pytest.raises(ValueError, match="to_casadi\\(gamma=…\\)"):
        known.to_casadi()
    sin, cos = casadi.sin, casadi.cos
    f = known.to_casadi(gamma=lambda x: casadi.horzcat(-sin(x[2]), cos(x[2]), 0, 0))
    x, u = np.array([3.0, -1.0, 0.7]), np.array([0.1, 0.7])
    np.testing.assert_allclose(np.array(f(x, u))[:, 0], known.predict(x, u), atol=1e-8)


def test_what_has_no_export_is_refused(model, monkeypatch):
    soft = model.with_constraint(model.predictor.gamma, softness=jnp.array([0.1]))
    with pytest.raises(ValueError, match="drawn towards its constraint"):
        soft.to_casadi()
    own = model.world
    networks = MLPEnsemble(
        (jnp.ones((2, 5, 3)),),
        (jnp.ones((2, 3)),),
        jnp.zeros((2, 1, 3)),
        own.regressor.scaling,
        9,
        MLPConfig(),
    )
    predictor = Predictor(Dynamics(own.reduction, networks), None)
    with pytest.raises(ValueError, match=r"must be Gaussian processes .* got MLPEnsemble"):
        replace(model, predictor=predictor).to_casadi()
    monkeypatch.setattr("offmap.export.gps._LARGEST", 100)
    with pytest.raises(ValueError, match="at most 100 numbers"):
        model.to_casadi()


def test_missing_casadi_is_said_plainly(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(ModuleNotFoundError, match="extra `casadi`"):
        model.to_casadi()

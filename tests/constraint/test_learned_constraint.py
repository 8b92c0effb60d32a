"""The learned Γ̂(x) spans the analytic Γ(x), inside the data and beyond their edge."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import subspace_angles

from offmap.constraint import ConstraintConfig, fit_constraint
from offmap.data import Samples
from offmap.gp import GPConfig
from offmap.systems import Box, planar_quadrotor, unicycle

EDGE = np.pi / 3  # headings of the unicycle's data reach this far
UNICYCLE, QUADROTOR = unicycle(), planar_quadrotor()


def true_samples(f, states, controls, count, seed=0):
    """Measurements of f at random states and controls."""
    keys = jax.random.split(jax.random.key(seed))
    x, u = states.sample(keys[0], count), controls.sample(keys[1], count)
    xdot = jax.vmap(f)(x, u)
    code = np.zeros(count, dtype=int)
    return Samples(*(np.array(a) for a in (x, u, xdot)), source=code, trajectory=np.arange(count))


def learn(system, samples, **options):
    return fit_constraint(
        system.f,
        samples,
        0,
        system.state_names,
        key=jax.random.key(1),
        config=ConstraintConfig(**options),
    )


@eqx.filter_jit
def evaluate(gamma, x):
    return jax.vmap(gamma)(x)


def angles_to_truth(fit, system, x):
    """Largest principal angle between the row spaces of Γ̂ and Γ at each state."""
    learned, true = np.asarray(evaluate(fit.gamma, x)), np.asarray(evaluate(system.gamma, x))
    return np.array([subspace_angles(a.T, b.T).max() for a, b in zip(learned, true, strict=True)])


def headings(low, high, count=50):
    """Unicycle states far away in position, where only the heading lies near the data."""
    theta = np.linspace(low, high, count)
    return np.column_stack([np.full(count, 40.0), np.linspace(-60, 60, count), theta])


@pytest.fixture(scope="module")
def unicycle_samples():
    box = Box((-10.0, -10.0, -EDGE), (10.0, 10.0, EDGE))
    return true_samples(UNICYCLE.f, box, UNICYCLE.controls, 250)


@pytest.fixture(scope="module")
def unicycle_fit(unicycle_samples):
    return learn(UNICYCLE, unicycle_samples)


@pytest.fixture(scope="module")
def quadrotor_box():
    return Box((-0.5, -0.5, -0.8, 0.0, -2.0, -1.0), (0.5, 0.5, 0.8, 2.0, 0.0, 1.0))


@pytest.fixture(scope="module")
def quadrotor_fit(quadrotor_box):
    samples = true_samples(QUADROTOR.f, quadrotor_box, QUADROTOR.controls, 400)
    gp = GPConfig(hyper_points=100, iterations=60, centre=False)
    return learn(QUADROTOR, samples, kernels=("linear", "cosine"), gp=gp)


def test_unicycle_depends_on_its_heading_only(unicycle_fit):
    assert unicycle_fit.c == 1
    assert unicycle_fit.retained == (("theta",),)


def test_unicycle_constraint_inside_the_data(unicycle_fit):
    inside = angles_to_truth(unicycle_fit, UNICYCLE, headings(-EDGE, EDGE))
    assert inside.max() < 1e-3


def test_unicycle_constraint_beyond_the_edge(unicycle_fit):
    for low, high in [(-EDGE - 0.5, -EDGE), (EDGE, EDGE + 0.5)]:
        outside = angles_to_truth(unicycle_fit, UNICYCLE, headings(low, high))
        assert outside.max() < 1e-2


def test_training_rows_are_unit_rows_of_one_sign(unicycle_fit, unicycle_samples):
    rows = unicycle_fit.rows
    np.testing.assert_allclose(np.linalg.norm(rows[..., :-1], axis=2), 1, rtol=1e-12)
    true = np.asarray(evaluate(UNICYCLE.gamma, unicycle_fit.normal_space.x))
    assert abs(np.sum(rows * true)) == pytest.approx(len(unicycle_samples), rel=1e-9)


def test_rows_as_printed_are_much_worse(unicycle_fit, unicycle_samples):
    # docs/deviations.md: the rref row [1, −cot θ, 0, 0] is unbounded at θ = 0, inside the data.
    literal = learn(UNICYCLE, unicycle_samples, rows="rref", kernels=("rbf",))
    assert np.abs(literal.rows).max() > 50
    for low, high in [(-EDGE, EDGE), (EDGE, EDGE + 0.5)]:
        x = headings(low, high)
        ours = np.median(angles_to_truth(unicycle_fit, UNICYCLE, x))
        assert np.median(angles_to_truth(literal, UNICYCLE, x)) > 100 * ours


def test_a_linear_kernel_alone_cannot_hold_the_unicycle(unicycle_fit, unicycle_samples):
    # docs/deviations.md: kernels are candidates, chosen by how they extrapolate.
    linear = learn(UNICYCLE, unicycle_samples, kernels=("linear",), sparsify=False)
    assert linear.retained == (UNICYCLE.state_names,)
    assert angles_to_truth(linear, UNICYCLE, headings(-EDGE, EDGE)).max() > 0.05
    assert unicycle_fit.gamma.rows[0].kernel != "linear"


def test_quadrotor_rows_keep_the_inputs_the_paper_names(quadrotor_fit):
    assert quadrotor_fit.c == 4
    assert quadrotor_fit.retained == (("vx",), ("vz",), ("omega",), ("phi",))


def test_quadrotor_constraint_inside_and_beyond_the_data(quadrotor_fit, quadrotor_box):
    inside = np.asarray(quadrotor_box.sample(jax.random.key(5), 50))
    assert angles_to_truth(quadrotor_fit, QUADROTOR, inside).max() < 1e-3
    low, high = np.array(quadrotor_box.low), np.array(quadrotor_box.high)
    margin = np.array([10.0, 10.0, 0.3, 3.0, 3.0, 1.0])
    wider = Box(tuple(low - margin), tuple(high + margin))
    outside = np.asarray(wider.sample(jax.random.key(6), 50))
    assert angles_to_truth(quadrotor_fit, QUADROTOR, outside).max() < 1e-2


def test_every_row_holds_for_the_true_motion(quadrotor_fit, quadrotor_box):
    further = true_samples(QUADROTOR.f, quadrotor_box, QUADROTOR.controls, 50, seed=9)
    gamma = np.asarray(evaluate(quadrotor_fit.gamma, further.x))
    augmented = np.column_stack([further.xdot, np.ones(50)])
    assert np.abs(np.einsum("kcq,kq->kc", gamma, augmented)).max() < 1e-4


def test_full_actuation_leaves_no_constraint():
    def f(x, u):
        return u * jnp.array([1.0, 2.0]) + jnp.stack([jnp.sin(x[1]), x[0] ** 2])

    box = Box((-1.0, -1.0), (1.0, 1.0))
    samples = true_samples(f, box, box, 60)
    fit = fit_constraint(
        f, samples, 0, ("a", "b"), key=jax.random.key(0), config=ConstraintConfig()
    )
    assert fit.c == 0
    assert fit.gamma is None
    assert fit.retained == ()
    assert fit.rows.shape == (60, 0, 3)


def test_states_come_from_the_primary_source_unless_told_otherwise():
    box = Box((0.0, 0.0), (1.0, 1.0))

    def f(x, u):
        return u

    samples = true_samples(f, box, box, 30)
    mixed = Samples(samples.x, samples.u, samples.xdot, np.arange(30) % 3, samples.trajectory)

    def states(**options):
        config = ConstraintConfig(**options)
        fit = fit_constraint(f, mixed, 1, ("a", "b"), key=jax.random.key(0), config=config)
        return {tuple(x) for x in fit.normal_space.x}

    assert states() == {tuple(x) for x in samples.x[mixed.source == 1]}
    assert states(sample_at="all") == {tuple(x) for x in samples.x}
    thinned = states(sample_at="all", samples=7)
    assert len(thinned) == 7
    assert thinned < {tuple(x) for x in samples.x}

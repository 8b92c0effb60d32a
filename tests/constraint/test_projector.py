"""The projector representation of Γ: gauge-free, over full turns, chosen where it extrapolates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint import (
    ConstraintConfig,
    NormalSpace,
    choose_representation,
    fit_projector,
    fit_rows,
    normal_space,
)
from offmap.constraint.angle import largest_angle
from offmap.constraint.projector import ProjectorConstraint, _within_reach, projectors
from offmap.gp import GPConfig
from offmap.projection import project
from offmap.systems import Box, rolling_disk, unicycle

CONFIG = ConstraintConfig(gp=GPConfig(hyper_points=80, centre=False))


def space_of(system, turn: float, count: int = 120) -> NormalSpace:
    """The true normal space at states whose angles reach `turn`, mixed by random rotations."""
    reach = tuple(turn if name in system.angles else 5.0 for name in system.state_names)
    x = np.asarray(Box(tuple(-r for r in reach), reach).sample(jax.random.key(0), count))
    gamma = np.asarray(jax.vmap(system.gamma)(jnp.asarray(x)))
    rng = np.random.default_rng(0)
    mixed = rng.normal(size=(count, gamma.shape[1], gamma.shape[1])) @ gamma
    return NormalSpace(x, mixed, np.zeros(system.n + 1))


@pytest.fixture(scope="module")
def learned():
    system = unicycle()
    space = space_of(system, np.pi)
    return fit_projector(
        space, system.state_names, (2,), np.ones(4), key=jax.random.key(0), config=CONFIG
    )


@pytest.mark.slow
def test_a_full_turn_is_learned_whatever_rows_were_given(learned):
    system = unicycle()
    x = np.zeros((200, 3))
    x[:, 2] = np.linspace(-3 * np.pi, 3 * np.pi, 200)
    rows = np.asarray(jax.vmap(learned.gamma)(jnp.asarray(x)))
    true = np.asarray(jax.vmap(system.gamma)(jnp.asarray(x)))
    assert largest_angle(rows, true) < 1e-3
    assert learned.c == 1 and learned.retained == (("theta",),)


@pytest.mark.slow
def test_its_rows_can_be_projected_onto_and_differentiated(learned):
    x, xdot = jnp.array([1.0, 2.0, 0.7]), jnp.array([1.0, 0.0, 0.3])
    projected = project(xdot, learned.gamma(x))
    assert abs(np.sin(0.7) * projected[0] - np.cos(0.7) * projected[1]) < 1e-3
    _, slope = jax.jvp(lambda x: project(xdot, learned.gamma(x)), (x,), (jnp.ones(3),))
    assert bool(jnp.all(jnp.isfinite(slope)))


@pytest.mark.slow
def test_two_constraints_in_units_of_their_own():
    system, units = rolling_disk(), np.array([0.5, 0.5, 0.3, 2.0, 1.0])
    space = space_of(system, 1.0)
    fit = fit_projector(
        space, system.state_names, (2, 3), units, key=jax.random.key(0), config=CONFIG
    )
    assert isinstance(fit.gamma, ProjectorConstraint) and fit.c == 2
    N = np.asarray(fit.gamma.projector(jnp.asarray(space.x[0])))
    np.testing.assert_allclose(N @ N, N, atol=1e-4)
    assert np.trace(N) == pytest.approx(2, abs=1e-3)
    rows = np.asarray(jax.vmap(fit.gamma)(jnp.asarray(space.x)))
    assert largest_angle(rows, space.basis) < 5e-3


@pytest.mark.slow
def test_the_better_representation_at_the_edge_is_chosen():
    system = unicycle()
    space = space_of(system, np.pi, 60)
    key = jax.random.key(0)
    fits = {
        "projector": lambda s: fit_projector(
            s, system.state_names, (2,), np.ones(4), key=key, config=CONFIG
        ),
        "rows": lambda s: fit_rows(s, system.state_names, key=key, config=CONFIG),
    }
    fit, name, errors = choose_representation(space, np.ones(4), fits)
    assert set(errors) == {"projector", "rows"}
    assert errors[name] <= 1.25 * max(min(errors.values()), 1e-4)
    assert fit.gamma is not None and fit.normal_space is space
    alone, name, errors = choose_representation(space, np.ones(4), {"rows": fits["rows"]})
    assert name == "rows" and errors == {} and alone.c == 1


def test_no_constraint_is_an_answer():
    x = np.random.default_rng(0).normal(size=(20, 2))
    stack = np.random.default_rng(1).normal(size=(20, 6, 3))
    space = normal_space(x, stack, np.ones(2))
    fit = fit_projector(space, ("a", "b"), (), np.ones(3), key=jax.random.key(0), config=CONFIG)
    assert space.c == 0 and fit.gamma is None and fit.c == 0


def test_projectors_do_not_depend_on_the_rows_chosen():
    space = space_of(rolling_disk(), 1.0, 10)
    other = NormalSpace(space.x, space.basis[:, ::-1] * 3.0, space.singular_values)
    units = np.array([1.0, 2.0, 3.0, 4.0, 1.0])
    np.testing.assert_allclose(projectors(space, units), projectors(other, units), atol=1e-10)


def test_far_from_the_data_the_iteration_does_not_diverge():
    """Entries that a linear kernel extrapolates made it overflow."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    eigenvalues = np.array([-30.0, -0.2, 0.1, 0.9, 1.4, 1e4])
    N = basis @ np.diag(eigenvalues) @ basis.T
    near = np.asarray(_within_reach(jnp.asarray(N)))
    found = np.linalg.eigvalsh(near)
    assert np.all(np.abs(found - 0.5) <= 0.7 + 1e-12)
    assert np.allclose(near @ N, N @ near, atol=1e-6)
    assert np.sum(found > 0.5) == 3
    assert np.all(np.isfinite(_within_reach(jnp.eye(6) / 2)))
    projector = basis[:, :2] @ basis[:, :2].T
    assert np.allclose(_within_reach(jnp.asarray(projector)), projector, atol=1e-15)

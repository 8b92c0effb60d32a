"""A robot that nothing constrains is seen from its own axes, if it is the same at every heading."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import offmap
from offmap.axes import TurnedAxes
from offmap.rollout import rollout
from offmap.structure import constrain
from offmap.symmetry import seen_from_its_axes
from offmap.systems import Box, System, slipping_unicycle, unicycle

WIND = jnp.array([0.3, -0.2, 0.0])


def holonomic(wind=0.0):
    """A robot on three wheels that drives ahead, sideways and about as it is told."""

    def f(x, u):
        sine, cosine = jnp.sin(x[2]), jnp.cos(x[2])
        ahead, side = 1.1 * u[0], 0.9 * u[1] + 0.1 * u[0]
        own = jnp.array([cosine * ahead - sine * side, sine * ahead + cosine * side, u[2]])
        return own + wind * WIND

    names = ("px", "py", "theta"), ("ahead", "side", "turn")
    free = jnp.zeros((0, 4))
    return replace(
        unicycle(),
        name="holonomic",
        f=f,
        gamma=lambda x: free,
        state_names=names[0],
        control_names=names[1],
        controls=Box((-1.0, -1.0, -0.3), (1.0, 1.0, 0.3)),
    )


def drives(system: System, noise=0.0, count=10, steps=25):
    """Headings are between −1 and 1 at first."""
    start, control, disturb = jax.random.split(jax.random.key(0), 3)
    x0 = Box((-3.0, -3.0, -1.0), (3.0, 3.0, 1.0)).sample(start, count)
    u = system.controls.sample(control, count, steps)
    x = jax.vmap(lambda x, u: rollout(system.f, x, u, system.dt))(x0, u)
    x = x + noise * jax.random.normal(disturb, x.shape)
    logs = [offmap.Trajectory(x[i], u[i], dt=system.dt) for i in range(count)]
    return offmap.Dataset(logs, system.state_names, system.control_names, ("theta",))


def errors_all_round(model, system):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.uniform([-50, -50, -9], [50, 50, 9], (200, 3)))
    u = system.controls.sample(jax.random.key(1), 200)
    true = jax.vmap(system.f)(x, u)
    return np.sqrt(np.mean((model.predict(x, u) - true) ** 2))


@pytest.fixture(scope="module")
def model():
    return offmap.fit(drives(holonomic()))


def test_a_robot_without_a_constraint_is_seen_from_its_own_axes(model):
    assert model.constraints.c == 0
    assert model.choices.used == "turned"
    assert "theta" in model.retained.dynamics
    assert model.retained.tangent == ("ahead", "side", "turn")
    assert "px', py' turn with theta" in model.summary()
    assert "predictions are not projected" in model.summary()


def test_it_is_predicted_at_every_heading(model):
    assert errors_all_round(model, holonomic()) < 1e-7


def test_a_current_that_does_not_turn_with_the_robot_is_no_symmetry():
    """Beside a wind the heading matters, in whatever axes."""
    model = offmap.fit(drives(holonomic(wind=1.0)))
    assert model.choices.used != "turned"
    assert model.predictor.dynamics.frame is None
    assert "theta" in model.retained.dynamics


def test_its_axes_stay_when_it_is_saved_updated_and_told_to_do_without(model, tmp_path):
    model.save(tmp_path / "it.offmap")
    again = offmap.load(tmp_path / "it.offmap")
    x, u = jnp.array([7.0, 1.0, 4.0]), jnp.array([0.5, -0.5, 0.1])
    assert isinstance(again.predictor.dynamics.frame, TurnedAxes)
    assert again.choices == model.choices
    np.testing.assert_array_equal(again(x, u), model(x, u))
    log = drives(holonomic(), count=1).trajectories[0]
    updated = model.update(replace(log, source="online"))
    assert isinstance(updated.predictor.dynamics.frame, TurnedAxes)
    np.testing.assert_allclose(updated(x, u), model(x, u), atol=1e-6)
    assert model.with_constraint(None).predictor.dynamics.frame is None


def test_it_can_be_exported_and_drawn_from(model):
    pytest.importorskip("casadi")
    f = model.to_casadi(return_std=True)
    rng = np.random.default_rng(3)
    x, u = rng.normal(scale=3, size=(5, 3)), rng.uniform(-1, 1, (5, 3))
    mean, std = model.predict(x, u, return_std=True)
    for i in range(5):
        there, spread = f(x[i], u[i])
        np.testing.assert_allclose(np.array(there)[:, 0], mean[i], atol=1e-9)
        # Without noise, variances are what round-off leaves of differences.
        np.testing.assert_allclose(np.array(spread)[:, 0], std[i], rtol=1e-2, atol=1e-9)
    fields = model.draw(400, seed=0)
    drawn = jax.vmap(lambda i: fields[i](jnp.asarray(x[0]), jnp.asarray(u[0])))(jnp.arange(400))
    np.testing.assert_allclose(np.mean(drawn, axis=0), mean[0], atol=5 * np.max(std[0]))
    np.testing.assert_allclose(np.std(drawn, axis=0), std[0], rtol=0.3, atol=1e-12)


def test_a_constraint_that_motions_break_gives_way_to_a_symmetry_only_where_that_is_better():
    """Made to obey that it never slips, a robot that does is found out; one that does not stays."""
    for system, used in ((slipping_unicycle(), "turned"), (unicycle(), "tangent")):
        free = offmap.fit(drives(system, noise=1e-4), project="none")
        held = seen_from_its_axes(constrain(free, unicycle().gamma))
        assert held.choices.used == used
        assert held.retained.tangent == ("omega", "v")

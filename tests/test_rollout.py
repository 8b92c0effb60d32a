"""Rollouts converge at the order their integrator claims, and errors add up as the paper says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config as jaxtyping_config
from scipy.integrate import solve_ivp

from offmap.rollout import cumulative_error, rollout, step
from offmap.systems import unicycle


def pendulum(x, u):
    """A pendulum with drag and torque: smooth, nonlinear, driven."""
    return jnp.stack([x[1], -jnp.sin(x[0]) - 0.3 * x[1] * jnp.abs(x[1]) ** 2 + u[0]])


def arc(x0, u, time):
    """Closed form of the unicycle under constant turn rate and speed."""
    (px, py, theta), (omega, v) = x0, u
    heading = theta + omega * time
    radius = v / omega
    return np.stack(
        [
            px + radius * (np.sin(heading) - np.sin(theta)),
            py - radius * (np.cos(heading) - np.cos(theta)),
            heading,
        ],
        axis=-1,
    )


def measured_order(errors):
    """Slope of log error over log step, for steps halved each time."""
    return np.polyfit(np.log(0.5) * np.arange(len(errors)), np.log(errors), 1)[0]


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("rk4", 4)])
def test_order_under_held_controls(integrator, order):
    start, hold = np.array([0.4, -0.2]), 0.5
    torques = np.array([0.8, -1.0, 0.3, 0.6])
    truth = start
    for torque in torques:
        truth = solve_ivp(
            lambda _, x, torque=torque: np.asarray(pendulum(x, np.array([torque]))),
            (0, hold),
            truth,
            method="DOP853",
            rtol=1e-12,
            atol=1e-13,
        ).y[:, -1]
    errors = []
    for parts in (4, 8, 16, 32):
        controls = jnp.asarray(np.repeat(torques, parts)[:, None])
        states = rollout(pendulum, jnp.asarray(start), controls, hold / parts, integrator)
        errors.append(np.linalg.norm(states[-1] - truth))
    assert measured_order(errors) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("rk4", 4)])
def test_order_at_every_state_of_the_unicycle_arc(integrator, order):
    start, control, duration = np.array([1.0, -2.0, 0.3]), np.array([0.9, 1.2]), 2.0
    errors = []
    for steps in (5, 10, 20, 40):
        dt = duration / steps
        controls = jnp.tile(jnp.asarray(control), (steps, 1))
        states = rollout(unicycle().f, jnp.asarray(start), controls, dt, integrator)
        truth = arc(start, control, dt * np.arange(steps + 1))
        errors.append(np.abs(states - truth).max())
    assert measured_order(errors) == pytest.approx(order, abs=0.15)


def test_euler_is_the_recursion_of_the_paper():
    f, dt = unicycle().f, 0.1
    start = jnp.array([0.0, 1.0, 0.2])
    controls = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, size=(6, 2)))
    states = rollout(f, start, controls, dt)
    assert states.shape == (7, 3)
    np.testing.assert_array_equal(states[0], start)
    for t in range(6):
        expected = np.asarray(states[t]) + dt * np.asarray(f(states[t], controls[t]))
        np.testing.assert_allclose(states[t + 1], expected, atol=1e-15)
    np.testing.assert_allclose(np.diff(states, axis=0)[:, 2], dt * controls[:, 0], atol=1e-15)


def test_each_control_acts_from_its_own_step_on():
    start, controls = jnp.zeros(3), jnp.ones((5, 2))
    base = rollout(unicycle().f, start, controls, 0.1, "rk4")
    changed = rollout(unicycle().f, start, controls.at[3].set(-1.0), 0.1, "rk4")
    np.testing.assert_array_equal(changed[:4], base[:4])
    assert np.all(np.abs(changed[4] - base[4]) > 1e-3)


def test_without_controls_only_the_start_remains():
    states = rollout(unicycle().f, jnp.arange(3.0), jnp.zeros((0, 2)), 0.1)
    np.testing.assert_array_equal(states, [[0.0, 1.0, 2.0]])


def test_batched_rollouts_equal_single_ones():
    rng = np.random.default_rng(1)
    starts, controls = jnp.asarray(rng.normal(size=(3, 3))), jnp.asarray(rng.normal(size=(3, 6, 2)))
    batched = jax.jit(jax.vmap(lambda x, u: rollout(unicycle().f, x, u, 0.1, "rk4")))
    for k, states in enumerate(batched(starts, controls)):
        single = rollout(unicycle().f, starts[k], controls[k], 0.1, "rk4")
        np.testing.assert_allclose(states, single, atol=1e-14)


def test_unknown_integrator_is_refused():
    arguments = unicycle().f, jnp.zeros(3), jnp.zeros(2), 0.1, "heun"
    jaxtyping_config.update("jaxtyping_disable", True)  # as for a user, who has no shape checker
    try:
        with pytest.raises(ValueError, match=r'"euler" or "rk4"; got \'heun\'. Choose'):
            step(*arguments)
    finally:
        jaxtyping_config.update("jaxtyping_disable", False)


def test_cumulative_error_sums_the_distances_of_all_states():
    rng = np.random.default_rng(2)
    true, predicted = rng.normal(size=(2, 4, 6, 3)), rng.normal(size=(2, 4, 6, 3))
    expected = np.zeros((2, 4))
    for i, j in np.ndindex(2, 4):
        for t in range(6):
            expected[i, j] += sum((true[i, j, t] - predicted[i, j, t]) ** 2) ** 0.5
    found = cumulative_error(jnp.asarray(true), jnp.asarray(predicted))
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    single = cumulative_error(jnp.asarray(true[0, 0]), jnp.asarray(predicted[0, 0]))
    assert float(single) == pytest.approx(expected[0, 0], rel=1e-13)

"""MPPI nears the optimum, keeps to its bounds, and drives the true robot through a model of it."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from offmap.control import MPPI
from offmap.data import Dataset
from offmap.systems import unicycle

UNICYCLE = unicycle()
BOUNDS = {"low": [-0.2, 0.0], "high": [0.2, 1.5]}


def to_goal(x, u, target):
    return jnp.sum((x[:2] - target) ** 2) + 0.01 * jnp.sum(u**2)


def test_mppi_comes_near_the_optimum_of_a_double_integrator():
    def f(x, u):
        return jnp.stack([x[1], u[0]])

    def cost(x, u, target):
        return x[0] ** 2 + 0.1 * x[1] ** 2 + 0.1 * u[0] ** 2

    dt = 0.1
    controller = MPPI(f, cost, low=[-5.0], high=[5.0], dt=dt, horizon=30, samples=500)
    x, plan, total = np.array([1.0, 0.0]), controller.start(), 0.0
    for _ in range(60):
        u, plan = controller.solve(x, plan)
        total += x[0] ** 2 + 0.1 * x[1] ** 2 + 0.1 * u[0] ** 2
        x = x + dt * np.array([x[1], u[0]])
    # The optimum by dynamic programming (Riccati).
    A, B = np.array([[1, dt], [0, 1]]), np.array([[0], [dt]])
    Q, R, P = np.diag([1, 0.1]), np.array([[0.1]]), np.zeros((2, 2))
    for _ in range(500):
        K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
    best = P[0, 0]
    assert best <= total < 1.3 * best  # sampling costs something


def drive(f, steps=25):
    """Costs and controls on the true robot, from a start far outside the data to a goal ahead."""
    controller = MPPI(f, to_goal, **BOUNDS, dt=0.1, horizon=15, samples=200)
    x, plan, controls, cost = np.array([40.0, 30.0, 0.5]), controller.start(), [], 0.0
    goal = jnp.tile(jnp.array([42.0, 32.0]), (15, 1))
    for _ in range(steps):
        u, plan = controller.solve(x, plan, goal)
        x = x + 0.1 * np.asarray(UNICYCLE.f(jnp.asarray(x), jnp.asarray(u)))
        controls.append(u)
        cost += float(to_goal(x, u, goal[0]))
    return cost, np.array(controls)


def test_a_model_drives_as_the_truth_would_from_a_start_outside_the_data(model):
    cost, controls = drive(model)
    assert np.all((controls >= BOUNDS["low"]) & (controls <= BOUNDS["high"]))
    oracle, _ = drive(UNICYCLE.f)
    assert cost < 1.2 * oracle
    again, same = drive(model)
    assert again == cost
    np.testing.assert_array_equal(same, controls)


def test_steps_default_to_those_of_the_data_and_its_integrator(model):
    plans = [
        MPPI(m, to_goal, **BOUNDS, dt=dt, horizon=4, samples=16).solve(
            np.ones(3), MPPI(m, to_goal, **BOUNDS, horizon=4).start(), jnp.zeros((4, 2))
        )[1]
        for m, dt in (
            (model, None),
            (model, 0.1),
            (replace(model, config=replace(model.config, integrator="rk4")), None),
        )
    ]
    np.testing.assert_array_equal(plans[0].controls, plans[1].controls)
    assert not np.allclose(plans[0].controls, plans[2].controls, rtol=1e-12)


def test_mppi_goes_where_it_is_trusted(model):
    def fast(x, u, target):
        return -u[1]

    def trust_of_choice(weight):
        controller = MPPI(
            model,
            fast,
            low=[-2.0, -5.0],
            high=[2.0, 5.0],
            horizon=3,
            samples=256,
            trust_weight=weight,
        )
        x = model.dataset.samples().x[3]
        u, _ = controller.solve(x, controller.start())
        return float(model.trust(x, u))

    assert trust_of_choice(100.0) > 2 * trust_of_choice(0.0)


def test_plans_that_diverge_have_no_say():
    def cost(x, u, target):
        return jnp.where(u[0] > 0, jnp.nan, -u[0])

    controller = MPPI(lambda x, u: u, cost, low=[-1.0], high=[1.0], dt=0.1, horizon=1, samples=64)
    u, _ = controller.solve(np.zeros(1), controller.start())
    assert -0.5 < u[0] <= 0
    hopeless = replace(controller, cost=lambda x, u, target: jnp.nan * u[0])
    u, plan = hopeless.solve(np.zeros(1), hopeless.start())
    assert u[0] == 0
    assert np.all(plan.controls == 0)


def test_a_terminal_cost_replaces_the_last():
    controller = MPPI(
        lambda x, u: u,
        lambda x, u, target: jnp.zeros(()),
        low=[-1.0],
        high=[1.0],
        dt=1.0,
        horizon=1,
        samples=2000,
        terminal=lambda x, u, target: (x[0] - target[0]) ** 2,
        temperature=0.01,
    )
    u, _ = controller.solve(np.zeros(1), controller.start(), jnp.full((1, 1), 0.4))
    assert u[0] == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": [1.0, 0.0]}, "low < high"),
        ({"samples": 0}, "at least 1; got 0"),
        ({"smoothness": 1.0}, r"\[0, 1\); got 1.0"),
        ({"temperature": 0.0}, "`temperature` is positive"),
        ({"trust_weight": 1.0}, "Only a fitted model"),
        ({"dt": None}, "has no time step"),
        ({"dt": -0.1}, "positive and finite; got -0.1"),
    ],
)
def test_mppi_refuses_what_cannot_be(change, message):
    settings = {"low": [-1.0, -1.0], "high": [1.0, 1.0], "dt": 0.1} | change
    with pytest.raises(ValueError, match=message):
        MPPI(UNICYCLE.f, to_goal, **settings)


def test_mppi_refuses_what_does_not_fit_the_model(model):
    with pytest.raises(ValueError, match="one pair for each of"):
        MPPI(model, to_goal, low=[0.0], high=[1.0])
    data = model.dataset
    names = ("v", "v[-1]")
    past = replace(model, dataset=Dataset(data.trajectories, data.state_names, names))
    with pytest.raises(ValueError, match="also takes past ones"):
        MPPI(past, to_goal, low=[0.0], high=[1.0])
    controller = MPPI(model, to_goal, **BOUNDS, horizon=8, samples=4)
    with pytest.raises(ValueError, match="each of the 8 steps; got shape"):
        controller.solve(np.zeros(3), controller.start(), jnp.zeros(2))

"""The simulated robots obey the paper's formulas and the constraints they are said to obey."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import subspace_angles
from scipy.spatial.transform import Rotation

from offmap.rollout import rollout
from offmap.systems import (
    bicycle,
    cart_pole,
    glider,
    planar_quadrotor,
    quadrotor3d,
    steered_car,
    trailer,
    two_trailers,
    unicycle,
)
from offmap.systems.cart_pole import CART, LENGTH, POLE
from offmap.systems.quadrotor import GRAVITY

SYSTEMS = [unicycle(), planar_quadrotor(), quadrotor3d()]
CONSTRAINTS = {"unicycle": 1, "quadrotor": 4, "quadrotor3d": 9}


def random_points(system, count=200, seed=0):
    """States over several turns of every angle, controls well beyond the system's box."""
    rng = np.random.default_rng(seed)
    x, u = rng.uniform(-7, 7, (count, system.n)), rng.uniform(-5, 5, (count, system.m))
    return np.array(jax.vmap(system.normalise)(jnp.asarray(x))), u


def velocities(system, x, u):
    return np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))


def gammas(system, x):
    return np.asarray(jax.vmap(system.gamma)(jnp.asarray(x)))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_no_motion_violates_the_constraint(system):
    x, u = random_points(system)
    gamma = gammas(system, x)
    assert gamma.shape == (len(x), CONSTRAINTS[system.name], system.n + 1)
    augmented = np.column_stack([velocities(system, x, u), np.ones(len(x))])
    # The terms of a row reach 1e2, so 1e-12 is a few units of round-off.
    np.testing.assert_allclose(np.einsum("kcq,kq->kc", gamma, augmented), 0, atol=1e-12)
    assert np.abs(gamma[..., :-1]).max() <= 1 + 1e-12  # bounded, also where ratios would not be


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_rows_are_independent_everywhere_also_where_tan_is_not_defined(system):
    x, _ = random_points(system)
    x[0], x[1] = np.pi / 2, -np.pi / 2
    singular_values = np.linalg.svd(gammas(system, x)[..., :-1], compute_uv=False)
    assert singular_values.min() > 0.99


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_there_are_no_further_constraints(system):
    x, _ = random_points(system, count=1, seed=1)
    _, u = random_points(system, count=20, seed=2)
    stack = np.column_stack([velocities(system, np.tile(x, (20, 1)), u), np.ones(20)])
    assert np.linalg.matrix_rank(stack) == system.n + 1 - CONSTRAINTS[system.name]


@pytest.mark.parametrize(
    ("system", "c"),
    [(trailer(), 2), (two_trailers(), 3), (steered_car(), 2), (cart_pole(), 3), (glider(), 2)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_constraints_of_harder_systems_are_all_there_are(system, c):
    x, u = random_points(system)
    gamma = gammas(system, x)
    assert gamma.shape == (len(x), c, system.n + 1)
    motions = np.column_stack([velocities(system, x, u), np.ones(len(x))])
    scale = np.abs(gamma) @ np.abs(motions)[:, :, None]
    left = np.einsum("kcq,kq->kc", gamma, motions)
    assert np.all(np.abs(left) <= 1e-14 * scale[:, :, 0])
    assert np.linalg.svd(gamma[..., :-1], compute_uv=False).min() > 0.1
    stack = np.column_stack([velocities(system, np.tile(x[:1], (20, 1)), u[:20]), np.ones(20)])
    assert np.linalg.matrix_rank(stack) == system.n + 1 - c


def test_a_steered_car_is_a_bicycle_whose_steering_is_a_state():
    x, u = random_points(bicycle(), count=20)
    steered = np.column_stack([x, u[:, 0]])
    rates = np.column_stack([u[:, 1], np.full(20, 0.3)])
    expected = np.column_stack([velocities(bicycle(), x, u), np.full(20, 0.3)])
    np.testing.assert_allclose(velocities(steered_car(), steered, rates), expected, rtol=1e-14)


def test_the_second_trailer_is_a_trailer_of_the_first():
    # Seen from the first trailer's axle, which moves along its heading at speed v cos(θ − ψ₁).
    x, u = random_points(two_trailers(), count=20)
    theta, first, second = x[:, 2:].T
    v = u[:, 1] * np.cos(theta - first)
    as_tractor = np.column_stack([x[:, :2], first, second])
    towed = velocities(trailer(0.8), as_tractor, np.column_stack([u[:, 0], v]))
    both = velocities(two_trailers((1.0, 0.8)), x, u)
    np.testing.assert_allclose(both[:, 4], towed[:, 3], rtol=1e-13)
    np.testing.assert_allclose(both[:, :4], velocities(trailer(), x[:, :4], u), rtol=1e-13)


def test_a_swinging_pole_keeps_its_energy():
    x0, still = jnp.array([0.0, 1.2, 0.5, -1.0]), jnp.zeros((2000, 1))
    _, theta, v, omega = np.asarray(rollout(cart_pole().f, x0, still, 1e-3, "rk4")).T
    bob = (v + LENGTH * omega * np.cos(theta)) ** 2 + (LENGTH * omega * np.sin(theta)) ** 2
    energy = 0.5 * CART * v**2 + 0.5 * POLE * bob - POLE * GRAVITY * LENGTH * np.cos(theta)
    assert np.ptp(theta) > 2.0
    np.testing.assert_allclose(energy, energy[0], atol=1e-9)


def test_a_glider_moves_along_its_nose():
    x, u = random_points(glider(), count=20)
    nose = Rotation.from_euler("ZY", np.column_stack([x[:, 3], -x[:, 4]])).apply([1.0, 0.0, 0.0])
    np.testing.assert_allclose(velocities(glider(), x, u)[:, :3], u[:, :1] * nose, atol=1e-14)


def test_unicycle_by_hand():
    system = unicycle()
    np.testing.assert_allclose(
        system.f(jnp.array([4.0, -3.0, np.pi / 6]), jnp.array([0.1, 2.0])),
        [np.sqrt(3), 1.0, 0.1],
        rtol=1e-15,
    )
    np.testing.assert_allclose(
        system.f(jnp.array([0.0, 0.0, np.pi / 2]), jnp.array([-0.2, 1.5])),
        [0.0, 1.5, -0.2],
        atol=1e-15,
    )
    np.testing.assert_allclose(
        system.gamma(jnp.array([4.0, -3.0, np.pi / 6])), [[-0.5, np.sqrt(3) / 2, 0, 0]], rtol=1e-15
    )


def test_quadrotor_by_hand():
    # m = 0.486, J = 0.0383; thrust 3 N tilted by 30°, torque −1.
    x, u = jnp.array([1.0, 2.0, np.pi / 6, 3.0, -4.0, 0.5]), jnp.array([1.0, 2.0])
    thrust = 6.172839506172840
    np.testing.assert_allclose(
        planar_quadrotor().f(x, u),
        [3.0, -4.0, 0.5, -thrust / 2, thrust * 0.8660254037844386 - 9.81, -26.10966057441253],
        rtol=1e-14,
    )


def test_quadrotor_hovers_at_the_lower_corner_of_its_controls():
    system = planar_quadrotor()
    hover = jnp.asarray(system.controls.low)
    np.testing.assert_allclose(system.f(jnp.zeros(6), hover), np.zeros(6), atol=1e-14)
    np.testing.assert_allclose(hover, 0.486 * 9.81 / 2, rtol=1e-15)


def test_quadrotor_rows_span_the_matrix_printed_in_the_paper():
    x, _ = random_points(planar_quadrotor(), count=30, seed=3)
    x[:, 2] = np.linspace(-1.4, 1.4, 30)  # tan φ is bounded here
    for state, gamma in zip(x, gammas(planar_quadrotor(), x), strict=True):
        _, _, phi, vx, vz, omega = state
        printed = np.zeros((4, 7))
        printed[:3, :3] = np.eye(3)
        printed[:3, 6] = [-vx, -vz, -omega]
        printed[3, 3:] = [1, np.tan(phi), 0, 9.81 * np.tan(phi)]
        assert subspace_angles(printed.T, gamma.T).max() < 1e-7


def test_quadrotor_in_space_against_rigid_body_mechanics():
    system = quadrotor3d()
    x, u = random_points(system, count=20, seed=5)
    xdot = velocities(system, x, u)
    rotation = Rotation.from_quat(x[:, [4, 5, 6, 3]])  # SciPy puts the scalar last
    np.testing.assert_allclose(xdot[:, :3], x[:, 7:10], rtol=1e-14)
    # A small turn by the body's rate is what q' says.
    step = 1e-6
    turned = (rotation * Rotation.from_rotvec(step * x[:, 10:])).as_quat()[:, [3, 0, 1, 2]]
    turned *= np.sign((turned * x[:, 3:7]).sum(axis=1))[:, None]  # q and −q are one rotation
    np.testing.assert_allclose(xdot[:, 3:7], (turned - x[:, 3:7]) / step, atol=1e-4)
    # Newton: the only force beside gravity is thrust along the body's third axis.
    force = 0.486 * (xdot[:, 7:10] + [0, 0, 9.81])
    np.testing.assert_allclose(
        rotation.inv().apply(force), np.outer(u[:, 0], [0, 0, 1]), atol=1e-12
    )
    # Euler: the angular momentum J ω in the world changes by the torque alone.
    inertia, rate = np.array([2.3e-3, 2.6e-3, 4.2e-3]), x[:, 10:]
    change = rotation.apply(inertia * xdot[:, 10:] + np.cross(rate, inertia * rate))
    np.testing.assert_allclose(change, rotation.apply(u[:, 1:]), atol=1e-12)


def test_quadrotor_in_space_hovers_level():
    system = quadrotor3d()
    level = jnp.zeros(13).at[3].set(1.0)
    hover = jnp.array([0.486 * 9.81, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(system.f(level, hover), np.zeros(13), atol=1e-14)
    low, high = np.asarray(system.controls.low), np.asarray(system.controls.high)
    assert np.all((low <= hover) & (hover <= high))


@pytest.mark.parametrize(
    ("system", "irrelevant"),
    [(SYSTEMS[0], [0, 1]), (SYSTEMS[1], [0, 1]), (SYSTEMS[2], [0, 1, 2])],
    ids=lambda value: getattr(value, "name", ""),
)
def test_positions_change_neither_dynamics_nor_constraint(system, irrelevant):
    x, u = random_points(system, count=20, seed=4)
    moved = x.copy()
    moved[:, irrelevant] += 13.0
    np.testing.assert_array_equal(velocities(system, moved, u), velocities(system, x, u))
    np.testing.assert_array_equal(gammas(system, moved), gammas(system, x))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_names_count_states_and_controls(system):
    x, u = random_points(system, count=1)
    assert system.f(jnp.asarray(x[0]), jnp.asarray(u[0])).shape == (len(system.state_names),)
    assert len(system.controls.low) == system.m
    assert set(system.angles) <= set(system.state_names)

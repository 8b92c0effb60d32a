"""Angles that nobody declared are found where they matter, and only there."""

import jax
import numpy as np
import pytest

from offmap.angles import find_angles
from offmap.systems import (
    Box,
    bicycle,
    planar_quadrotor,
    rolling_disk,
    slipping_unicycle,
    tanh_unicycle,
    unicycle,
)


def data(system, reach: float, noise: float, seed: int):
    """States in a box, random controls, and the velocities there."""
    low = tuple(-reach if name in system.angles else -3.0 for name in system.state_names)
    box = Box(low, tuple(-value for value in low))
    state, control = jax.random.split(jax.random.key(seed))
    x, u = box.sample(state, 300), system.controls.sample(control, 300)
    xdot = np.asarray(jax.vmap(system.f)(x, u))
    rng = np.random.default_rng(seed)
    shaken = [
        values + noise * values.std(axis=0) * rng.normal(size=values.shape)
        for values in (np.asarray(x), xdot)
    ]
    return shaken[0], np.asarray(u), shaken[1]


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("system", "angle"),
    [
        (unicycle(), "theta"),
        (slipping_unicycle(), "theta"),
        (planar_quadrotor(), "phi"),
        (rolling_disk(), "theta"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_heading_is_found(system, angle, noise, seed):
    found = find_angles(*data(system, np.pi / 2, noise, seed))
    assert tuple(system.state_names[i] for i in found) == (angle,)


@pytest.mark.parametrize("seed", range(3))
def test_a_heading_that_hardly_turns_is_left_alone(seed):
    x, u, xdot = data(unicycle(), 0.02, 0.01, seed)
    assert find_angles(x, u, xdot) == ()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_what_is_no_angle_is_not_taken_for_one(noise, seed):
    rng = np.random.default_rng(seed)
    x, u = rng.uniform(-3, 3, size=(300, 3)), rng.uniform(-1, 1, size=(300, 2))
    xdot = np.stack([x[:, 1], -x[:, 0] + x[:, 2] * u[:, 0], x[:, 0] * x[:, 1] - x[:, 2] ** 3], 1)
    assert find_angles(x, u, xdot + noise * rng.normal(size=xdot.shape)) == ()


@pytest.mark.parametrize("system", [tanh_unicycle(), bicycle()], ids=lambda system: system.name)
def test_systems_outside_the_library_have_no_false_angles(system):
    found = find_angles(*data(system, np.pi / 2, 0.0, 0))
    assert {system.state_names[i] for i in found} <= {"theta"}


def test_parts_of_a_quaternion_are_no_angles():
    """Their squares do as well as cosines would."""
    rng = np.random.default_rng(0)
    q = np.c_[np.ones(600), rng.uniform(-0.3, 0.3, (600, 3))]
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    w, x, y, z = q.T
    thrust = rng.uniform(5, 15, (600, 1))
    up = np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x**2 + y**2)], axis=1)
    assert find_angles(q, thrust, thrust * up) == ()

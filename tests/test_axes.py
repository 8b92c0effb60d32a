"""Axes that turn with an angle: a rotation, its inverse, and which two components turn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.axes import TurnedAxes, likeliest_turning
from offmap.turning import Turning


def test_turned_axes_rotate_two_components_and_leave_the_others():
    axes = TurnedAxes(Turning(angle=1, first=3, second=0), 4)
    x = jnp.array([0.3, 0.7, -1.0, 2.0])
    T, drift = axes(x)
    np.testing.assert_allclose(T.T @ T, np.eye(4), atol=1e-15)
    np.testing.assert_allclose(T[:, 3], [np.sin(0.7), 0, 0, np.cos(0.7)], atol=1e-15)
    np.testing.assert_allclose(T[:, 0], [np.cos(0.7), 0, 0, -np.sin(0.7)], atol=1e-15)
    np.testing.assert_allclose(T[1:3], np.eye(4)[1:3], atol=1e-15)
    assert np.linalg.det(T) == pytest.approx(1)
    assert np.all(np.asarray(drift) == 0)


def test_coordinates_are_those_that_give_the_velocity():
    axes = TurnedAxes(Turning(2, 0, 1), 3)
    rng = np.random.default_rng(0)
    x, xdot = jnp.asarray(rng.normal(size=(20, 3))), jnp.asarray(rng.normal(size=(20, 3)))
    a = jax.vmap(axes.coordinates)(x, xdot)
    again = jax.vmap(lambda x, a: axes(x)[0] @ a)(x, a)
    np.testing.assert_allclose(again, xdot, atol=1e-14)
    assert np.max(np.abs(a - xdot)) > 0.1


@pytest.mark.parametrize(("first", "second", "angle"), [(0, 1, 2), (3, 1, 0), (1, 3, 2)])
def test_the_components_that_turn_are_found_whatever_the_order_of_the_states(first, second, angle):
    """A robot that drives ahead and sideways as it likes; its fourth state is a clock's angle."""
    rng = np.random.default_rng(1)
    x, u = rng.uniform(-1, 1, (400, 4)), rng.uniform(-1, 1, (400, 3))
    other = ({0, 1, 2, 3} - {first, second, angle}).pop()
    ahead, side = u[:, 0] + 0.3, 0.4 * u[:, 1] * u[:, 2]
    sine, cosine = np.sin(x[:, angle]), np.cos(x[:, angle])
    xdot = np.empty((400, 4))
    xdot[:, first], xdot[:, second] = cosine * ahead - sine * side, sine * ahead + cosine * side
    xdot[:, angle], xdot[:, other] = u[:, 2], 1.0
    xdot += 1e-3 * rng.normal(size=xdot.shape)
    expected = Turning(angle, first, second)
    assert likeliest_turning(x, u, xdot, tuple(sorted((angle, other)))) == expected


def test_without_an_angle_or_two_further_states_nothing_turns():
    rng = np.random.default_rng(2)
    x, u = rng.normal(size=(50, 3)), rng.normal(size=(50, 1))
    assert likeliest_turning(x, u, x, ()) is None
    assert likeliest_turning(x[:, :2], u, x[:, :2], (1,)) is None

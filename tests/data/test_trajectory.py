"""One log: what is stored, how samples line up, and what is refused."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offmap.data import Trajectory

RNG_SEED = 0


def unicycle(x, u):
    return np.array([u[1] * np.cos(x[2]), u[1] * np.sin(x[2]), u[0]])


def euler_run(steps, dt=0.1, seed=RNG_SEED):
    rng = np.random.default_rng(seed)
    u = rng.uniform(-1.0, 1.0, (steps, 2))
    x = [rng.uniform(-1.0, 1.0, 3)]
    for control in u:
        x.append(x[-1] + dt * unicycle(x[-1], control))
    return np.array(x), u


def test_euler_states_give_back_the_vector_field():
    x, u = euler_run(30)
    states, controls, derivatives = Trajectory(x, u).samples()
    truth = np.array([unicycle(a, b) for a, b in zip(states, controls, strict=True)])
    assert states.shape == (30, 3)
    np.testing.assert_allclose(derivatives, truth, rtol=0, atol=1e-14)


@pytest.mark.parametrize("extra", [0, 1])
def test_differences_pair_each_control_with_the_state_it_met(extra):
    x, u = euler_run(6)
    states, controls, derivatives = Trajectory(x[: 6 + extra], u).samples()
    assert len(states) == len(controls) == len(derivatives) == 5 + extra
    np.testing.assert_array_equal(states, x[: 5 + extra])
    np.testing.assert_array_equal(controls, u[: 5 + extra])


@pytest.mark.parametrize("state_rows", [4, 5])
@pytest.mark.parametrize("derivative_rows", [4, 5])
def test_measured_derivatives_give_one_sample_per_control(state_rows, derivative_rows):
    x, u = euler_run(4)
    measured = np.arange(15.0).reshape(5, 3)[:derivative_rows]
    states, controls, derivatives = Trajectory(x[:state_rows], u, xdot=measured).samples()
    np.testing.assert_array_equal(states, x[:4])
    np.testing.assert_array_equal(controls, u)
    np.testing.assert_array_equal(derivatives, measured[:4])


def test_one_state_with_a_measured_derivative_is_one_sample():
    trajectory = Trajectory([[1.0]], [[2.0]], xdot=[[3.0]])
    assert [part.item() for part in trajectory.samples()] == [1.0, 2.0, 3.0]


def test_angles_are_unwrapped_before_differencing_but_states_stay_as_logged():
    theta = np.linspace(0.0, 20.0, 101)
    wrapped = np.angle(np.exp(1j * theta))
    x = np.stack([np.sin(theta), wrapped], axis=1)
    states, _, derivatives = Trajectory(x, np.zeros((100, 1)), dt=0.5).samples(angles=[1])
    np.testing.assert_allclose(derivatives[:, 1], 0.4, atol=1e-12)
    np.testing.assert_allclose(derivatives[:, 0], np.diff(np.sin(theta)) / 0.5, atol=1e-12)
    np.testing.assert_array_equal(states, x[:100])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    steps=st.integers(1, 12),
    extra=st.integers(0, 1),
    dt=st.floats(1e-3, 10.0),
    seed=st.integers(0, 1000),
)
def test_integrating_the_samples_returns_the_log(steps, extra, dt, seed):
    x = np.random.default_rng(seed).normal(size=(steps + 1 + extra, 2))
    u = np.zeros((steps + 1, 1))
    states, _, derivatives = Trajectory(x, u, dt=dt).samples()
    assert len(states) == len(x) - 1
    np.testing.assert_allclose(states + dt * derivatives, x[1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, lambda a: np.asarray(a).tolist()])
def test_arrays_jax_arrays_and_lists_are_stored_alike(convert):
    x, u = [[0, 1], [2, 3], [4, 5]], [[1], [2]]
    trajectory = Trajectory(convert(x), convert(u), xdot=convert(x))
    for stored, given_values in ((trajectory.x, x), (trajectory.u, u), (trajectory.xdot, x)):
        assert type(stored) is np.ndarray
        assert stored.dtype == np.float64
        assert stored.flags.c_contiguous
        np.testing.assert_array_equal(stored, given_values)


def test_stored_arrays_are_read_only_copies():
    x = np.asfortranarray(np.arange(6.0).reshape(3, 2))
    trajectory = Trajectory(x, np.ones((2, 1)))
    x[0, 0] = 99.0
    assert trajectory.x[0, 0] == 0.0
    assert trajectory.x.flags.c_contiguous
    for array in (trajectory.x, trajectory.u, *trajectory.samples()):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        trajectory.dt = 0.2


def test_sizes_defaults_and_repr():
    trajectory = Trajectory(np.zeros((5, 3)), np.zeros((4, 2)))
    assert (trajectory.T, trajectory.n, trajectory.m) == (4, 3, 2)
    assert (trajectory.dt, trajectory.xdot, trajectory.source) == (0.1, None, "offline")
    assert type(Trajectory([[0], [1]], [[1]], dt=1).dt) is float
    assert "T=4, n=3, m=2" in repr(trajectory)


X, U = np.zeros((4, 3)), np.zeros((4, 2))


def with_bad_entries():
    x = np.zeros((4, 3))
    x[2:, 1], x[1, 2] = np.nan, -np.inf
    return x


@pytest.mark.parametrize(
    ("arguments", "rule", "received", "remedy"),
    [
        (dict(x=X[:, 0]), "x must be 2-D", "shape (4,)", "shape (T, 1)"),
        (dict(u=np.zeros(4)), "u must be 2-D", "1-D", "one row per time step"),
        (dict(x=np.zeros((2, 4, 3))), "x must be 2-D", "(2, 4, 3)", "one Trajectory per run"),
        (dict(x=1.0), "x must be 2-D", "0-D", "one row per time step"),
        (dict(xdot=np.zeros(4)), "xdot must be 2-D", "shape (4,)", "shape (T, 1)"),
        (dict(u=np.zeros((0, 2))), "u must not be empty", "(0, 2)", "leave this trajectory out"),
        (dict(u=np.zeros((4, 0))), "u must not be empty", "(4, 0)", "one column"),
        (dict(x=np.zeros((4, 0))), "x must not be empty", "(4, 0)", "one column"),
        (dict(x=np.zeros((6, 3))), "T or T + 1 rows", "6 rows of x and 4 of u", "same time span"),
        (dict(x=np.zeros((3, 3))), "T or T + 1 rows", "3 rows of x and 4 of u", "same time span"),
        (dict(xdot=np.zeros((3, 3))), "T or T + 1 rows", "3 rows of xdot", "same time span"),
        (dict(xdot=np.zeros((4, 2))), "one column per state", "2 columns for 3", "xdot=None"),
        (dict(x=X[:1], u=U[:1]), "at least one sample", "1 state and no xdot", "second state"),
        (dict(x=X + 1j), "real numbers", "complex dtype complex128", "float64"),
        (dict(u=[["a", "b"]] * 4), "real numbers", "non-numeric dtype <U1", "float64"),
        (dict(x=[[None] * 3] * 4), "real numbers", "non-numeric dtype object", "float64"),
        (dict(x=[[1.0], [1.0, 2.0]]), "rectangular", "received a list", "equal length"),
        (dict(dt=0.0), "positive, finite", "received 0.0", "sampling period"),
        (dict(dt=-0.1), "positive, finite", "received -0.1", "sampling period"),
        (dict(dt=np.nan), "positive, finite", "received nan", "sampling period"),
        (dict(dt=np.inf), "positive, finite", "received inf", "sampling period"),
        (dict(dt="0.1"), "positive, finite", "received '0.1'", "sampling period"),
        (dict(dt=None), "positive, finite", "received None", "sampling period"),
        (dict(dt=True), "positive, finite", "received True", "sampling period"),
        (dict(source=""), "non-empty string", "received ''", '"offline" or "online"'),
        (dict(source=3), "non-empty string", "received 3", '"offline" or "online"'),
    ],
)
def test_what_is_refused_and_what_is_said(arguments, rule, received, remedy):
    with pytest.raises(ValueError) as error:
        Trajectory(**{"x": X, "u": U, **arguments})
    before, middle, after = str(error.value).split("; ", 2)
    assert rule in before
    assert "received" in middle
    assert received in str(error.value)
    assert remedy in after


@pytest.mark.parametrize("name", ["x", "xdot"])
def test_bad_entries_are_counted_and_located(name):
    with pytest.raises(ValueError) as error:
        Trajectory(**{"x": X, "u": U, name: with_bad_entries()})
    message = str(error.value)
    assert message.startswith(f"{name} must be finite; received NaN or inf in ")
    assert "column 1: 2 (first at row 2), column 2: 1 (first at row 1)" in message
    assert "column 0" not in message
    assert "split the trajectory" in message


def test_masked_entries_count_as_missing():
    x = np.ma.masked_array(X, mask=with_bad_entries() != 0)
    with pytest.raises(ValueError, match=r"column 1: 2 \(first at row 2\)"):
        Trajectory(x, U)

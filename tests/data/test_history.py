"""Past commands as inputs: stacking, names, datasets, and what a rollout carries along."""

import numpy as np
import pytest

from offmap.data import Dataset, Trajectory, complete_history, history_names, stack_history
from offmap.data.history import history_length

NAMES = ("omega", "v")


def test_rows_hold_the_newest_command_first():
    u = np.arange(10.0).reshape(5, 2)
    stacked = stack_history(u, 2)
    assert stacked.shape == (3, 6)
    np.testing.assert_array_equal(stacked[0], [4, 5, 2, 3, 0, 1])


def test_names_and_length_belong_together():
    assert history_names(NAMES, 1) == ("omega", "v", "omega[-1]", "v[-1]")
    for k in range(4):
        assert history_length(history_names(NAMES, k)) == k
    assert history_length(("a[1]", "b")) == 0
    assert history_length(history_names(("u[0]", "u[1]"), 2)) == 2


def test_too_short_a_log_is_refused():
    with pytest.raises(ValueError, match="k = 5 and 5 commands"):
        stack_history(np.zeros((5, 2)), 5)
    with pytest.raises(ValueError, match="0 or more past commands; received -1"):
        stack_history(np.zeros((5, 2)), -1)


def test_dataset_drops_steps_without_history():
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(9, 3)), rng.normal(size=(8, 2))
    data = Dataset([Trajectory(x, u)], control_names=NAMES).with_history(3)
    assert data.history == 3 and data.m == 8
    samples = data.samples()
    np.testing.assert_array_equal(samples.x, x[3:8])
    np.testing.assert_array_equal(samples.u[:, 2:4], u[2:7])
    np.testing.assert_allclose(samples.xdot, (x[4:] - x[3:8]) / 0.1)
    longer = data.append(Trajectory(x, 2 * u))
    np.testing.assert_array_equal(longer.trajectories[1].u, 2 * data.trajectories[0].u)
    with pytest.raises(ValueError, match="added once"):
        data.with_history(1)


def test_a_rollout_carries_the_commands_before_it():
    names = history_names(NAMES, 2)
    u = np.random.default_rng(1).normal(size=(7, 2))
    np.testing.assert_array_equal(complete_history(u[2:], names, u[:2]), stack_history(u, 2))
    held = complete_history(u, names)
    np.testing.assert_array_equal(held[0], np.tile(u[0], 3))
    np.testing.assert_array_equal(complete_history(held, names), held)
    with pytest.raises(ValueError, match=r"holds the 2 commands before"):
        complete_history(u, names, u[:1])
    with pytest.raises(ValueError, match="leave `before` out"):
        complete_history(held, names, u[:2])

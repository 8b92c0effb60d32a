"""The protocols hold exactly the paper's numbers (section V)."""

from math import pi

import jax
import numpy as np
import pytest

from offmap.paper import EXPERIMENTS, ROWS
from offmap.paper.reference import PAPER

KEY = jax.random.key(3)


@pytest.mark.parametrize(
    ("name", "trajectories", "steps", "online", "horizon", "dt"),
    [("unicycle", 20, 25, 25, 100, 0.1), ("quadrotor", 5000, 2, 50, 100, 0.01)],
)
def test_counts_horizons_and_time_steps(name, trajectories, steps, online, horizon, dt):
    experiment = EXPERIMENTS[name]
    trial = experiment.trial(KEY, ROWS[1])
    assert (experiment.offline_trajectories, experiment.offline_steps) == (trajectories, steps)
    assert online == trial.online.T
    assert trial.test_controls.shape == (5, horizon, experiment.system.m)
    assert trial.test_states.shape == (5, horizon + 1, experiment.system.n)
    assert trial.online.dt == dt


def test_boxes_of_the_unicycle():
    experiment = EXPERIMENTS["unicycle"]
    np.testing.assert_allclose(experiment.id_box.low, (-10, -10, -pi / 3))
    np.testing.assert_allclose(experiment.ood_online_box.low, (15, 15, pi / 3))
    np.testing.assert_allclose(experiment.ood_online_box.high, (20, 20, pi / 2))
    np.testing.assert_allclose(experiment.system.controls.high, (0.2, 1.5))


def test_boxes_of_the_quadrotor():
    experiment = EXPERIMENTS["quadrotor"]
    assert experiment.ood_offline_box.high == (0.5, 0.5, pi / 4, 2, 0, pi / 3)
    assert experiment.ood_online_box.low == (-1, -1, -pi / 3, 0, -5, -pi / 3)
    np.testing.assert_allclose(experiment.system.controls.low, 0.486 * 9.81 / 2)
    assert experiment.system.controls.high == (2.5, 2.5)


def test_offline_data_obey_the_dynamics_and_start_in_the_box():
    experiment = EXPERIMENTS["unicycle"]
    dataset = experiment.offline(KEY, out_of_distribution=True)
    samples = dataset.samples()
    expected = jax.vmap(experiment.system.f)(samples.x, samples.u)
    np.testing.assert_allclose(samples.xdot, expected, atol=1e-12)
    starts = np.stack([trajectory.x[0] for trajectory in dataset])
    assert np.all(starts >= experiment.ood_offline_box.low)
    assert np.all(starts <= experiment.ood_offline_box.high)


def test_tests_start_where_the_online_trajectory_ends_and_controls_are_held():
    experiment = EXPERIMENTS["unicycle"]
    trial = experiment.trial(KEY, ROWS[1])
    np.testing.assert_allclose(trial.test_starts, np.tile(trial.online.x[-1], (5, 1)))
    held = trial.test_controls.reshape(5, 20, 5, 2)
    np.testing.assert_array_equal(held, np.repeat(held[:, :, :1], 5, axis=2))
    assert len(np.unique(held[:, :, 0], axis=0)) == 5


def test_rows_of_a_trial_differ_by_noise_alone():
    experiment = EXPERIMENTS["unicycle"]
    clean, noisy = (experiment.trial(KEY, row) for row in (ROWS[1], ROWS[2]))
    np.testing.assert_array_equal(clean.test_states, noisy.test_states)
    np.testing.assert_array_equal(clean.online.u, noisy.online.u)
    assert not np.allclose(clean.online.x, noisy.online.x)


@pytest.mark.parametrize("row", ROWS[2:])
def test_noise_on_states_is_eta_before_filtering(row, monkeypatch):
    from offmap.paper import protocol

    monkeypatch.setattr(protocol, "smooth", lambda trajectory, cutoff_hz: trajectory)
    experiment = EXPERIMENTS["quadrotor"]
    keys = jax.random.split(KEY, 6)
    residuals = [
        experiment.trial(key, row).online.x - experiment.trial(key, ROWS[1]).online.x
        for key in keys
    ]
    # 6 · 51 · 6 draws: the sample deviation is within 7 % of η with great certainty.
    assert np.std(residuals) == pytest.approx(row.noise, rel=0.07)


def test_filtering_lowers_the_noise_of_derivatives():
    experiment = EXPERIMENTS["unicycle"]
    clean, noisy = (experiment.trial(KEY, row) for row in (ROWS[1], ROWS[3]))
    error = noisy.online.samples()[2] - clean.online.samples()[2]
    assert np.std(error) < 0.5 * np.sqrt(2) * 0.10 / experiment.system.dt


def test_reference_tables_are_complete():
    for name in EXPERIMENTS:
        assert set(PAPER[name]) == {row.key for row in ROWS}
        assert all(len(cells) == 6 for cells in PAPER[name].values())

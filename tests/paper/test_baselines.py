"""Baselines against what they should reach, and against independent implementations."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from offmap.paper import EXPERIMENTS, ROWS
from offmap.paper.baselines import (
    BASELINES,
    FAR,
    bounded,
    gaussian_process,
    least_squares,
    roll_out,
    unavailable,
)
from offmap.paper.cases import noise_adder
from offmap.paper.experiment import distances

UNICYCLE = EXPERIMENTS["unicycle"]


@pytest.fixture(scope="module")
def trial():
    return UNICYCLE.trial(jax.random.key(1), ROWS[1])


def offline(trajectories=20):
    experiment = replace(UNICYCLE, offline_trajectories=trajectories)
    return experiment.offline(jax.random.key(0), out_of_distribution=True)


def summed_errors(field, trial):
    states = roll_out(field, trial.test_starts, trial.test_controls, UNICYCLE.system.dt)
    return distances([trial], [states]).sum(axis=-1)


def test_least_squares_recovers_the_unicycle(trial):
    assert summed_errors(least_squares(offline(), trial.online), trial).max() < 1e-9


@pytest.mark.skipif("PySINDy" in unavailable(), reason="pysindy is not installed")
@pytest.mark.filterwarnings("ignore")
def test_sparse_regression_recovers_the_unicycle(trial):
    assert summed_errors(BASELINES["PySINDy"](offline(), trial.online), trial).max() < 1e-9


@pytest.mark.parametrize("ard", [False, True])
@pytest.mark.filterwarnings("ignore:.*close to the specified:sklearn.exceptions.ConvergenceWarning")
def test_the_gaussian_process_predicts_as_scikit_learns(trial, ard):
    measured = noise_adder(offline(), 0.05)  # with noise the likeliest hyperparameters are clear
    data = offline(4)
    rng = np.random.default_rng(0)
    data = replace(data, trajectories=tuple(measured(log, rng) for log in data))
    online = measured(trial.online, rng)
    samples = data.append(online).samples()
    z, y = np.concatenate([samples.x, samples.u], axis=1), samples.xdot[:, 0]
    inputs, targets = (z - z.mean(axis=0)) / z.std(axis=0), (y - y.mean()) / y.std()
    kernel = ConstantKernel(1.0, (1e-6, 1e5)) * RBF(
        np.full(5, 1.5) if ard else 1.5, (0.05, 1e3)
    ) + WhiteKernel(1e-2, (1e-8, 1.0))
    peer = GaussianProcessRegressor(kernel).fit(inputs, targets)
    x, u = samples.x[:50] + 0.1 * rng.normal(size=(50, 3)), samples.u[:50]
    asked = (np.concatenate([x, u], axis=1) - z.mean(axis=0)) / z.std(axis=0)
    expected = peer.predict(asked) * y.std() + y.mean()
    found = gaussian_process(data, online, ard=ard)(x, u)[:, 0]
    # Far below the spread of 1; the two searches stop at slightly different length scales.
    assert np.sqrt(np.mean((found - expected) ** 2)) < 0.03 * y.std()


def test_rollouts_are_eulers():
    starts, controls = np.array([[1.0], [2.0]]), np.full((2, 3, 1), 0.5)
    states = roll_out(lambda x, u: u - x, starts, controls, 0.1)
    expected = 0.5 + (starts - 0.5) * 0.9 ** np.arange(4)
    np.testing.assert_allclose(states[:, :, 0], expected, rtol=1e-14)


def test_rollouts_that_run_away_stay_far_and_finite():
    states = roll_out(lambda x, u: x**3, np.full((1, 1), 100.0), np.zeros((1, 50, 1)), 1.0)
    assert states.max() == FAR
    np.testing.assert_array_equal(
        bounded(np.array([np.nan, np.inf, -np.inf, 3.0])), [FAR, FAR, -FAR, 3.0]
    )

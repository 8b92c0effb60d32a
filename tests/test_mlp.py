"""The neural ensemble learns, says where it does not know, and tells noisy sources apart."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.mlp import MLPConfig, fit_mlp

SMALL = MLPConfig(members=3, width=24, steps=800)


def wave(x):
    return np.stack([np.sin(2 * x[:, 0]), x[:, 0] * x[:, 1]], axis=1)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(300, 2))
    return x, wave(x)


@pytest.fixture(scope="module")
def ensemble(data):
    x, y = data
    return fit_mlp(x, y, np.zeros(len(x), dtype=int), key=jax.random.key(0), config=SMALL)


def test_learns_a_smooth_function_and_is_unsure_where_there_are_no_data(ensemble):
    x = np.random.default_rng(1).uniform(-0.9, 0.9, size=(50, 2))
    predicted = np.asarray(jax.vmap(ensemble)(jnp.asarray(x)))
    assert np.sqrt(np.mean((predicted - wave(x)) ** 2)) < 0.03
    inside = np.asarray(jax.vmap(ensemble.variance)(jnp.asarray(x))).mean()
    outside = np.asarray(jax.vmap(ensemble.variance)(jnp.asarray(4 * x + np.sign(x)))).mean()
    assert outside > 10 * inside


def test_a_noisy_source_has_its_own_noise_level(data):
    x, y = data
    source = (np.arange(len(x)) >= 200).astype(int)
    noisy = y + 0.3 * y.std(axis=0) * source[:, None] * np.random.default_rng(2).normal(
        size=y.shape
    )
    fitted = fit_mlp(x, noisy, source, key=jax.random.key(0), config=SMALL)
    levels = np.exp(np.asarray(fitted.log_noise).mean(axis=0))
    assert np.all(levels[0] < 0.1)
    assert np.all((levels[1] > 0.15) & (levels[1] < 0.5))
    assert np.allclose(fitted.noise_level(), levels[0])
    # The larger source comes first whatever its code.
    swapped = fit_mlp(x, noisy, 1 - source, key=jax.random.key(0), config=SMALL)
    assert np.allclose(swapped.noise_level(), fitted.noise_level())


def test_equal_keys_give_equal_networks_and_others_do_not(data):
    x, y = data
    short = replace(SMALL, steps=20)
    source = np.zeros(len(x), dtype=int)
    point = jnp.array([0.2, -0.3])
    a, b, c = (
        fit_mlp(x, y, source, key=jax.random.key(seed), config=short)(point) for seed in (0, 0, 1)
    )
    assert np.array_equal(a, b)
    assert not np.allclose(a, c)


def test_can_be_differentiated(ensemble):
    slope = jax.jacobian(ensemble)(jnp.array([0.1, 0.5]))
    assert np.allclose(slope, [[2 * np.cos(0.2), 0.0], [0.5, 0.1]], atol=0.15)

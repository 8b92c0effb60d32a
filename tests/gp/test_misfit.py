"""Straight functions are doubted where the samples stray from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import kernel_named, strayed
from offmap.gp.expansion import Scaling
from offmap.gp.posterior import condition

NOISE = 0.02


def fitted(name, bend, seed, count=300):
    """Two straight functions of three inputs; to the first, a product of all three is added."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, 3))
    product = bend * np.prod(x, axis=1)
    y = np.stack([x[:, 0] + product, x[:, 1] - x[:, 2]], axis=1)
    y += NOISE * rng.normal(size=y.shape)
    kernel = kernel_named(name, 3, (1, 2))
    kernel = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), kernel)
    gps = condition(kernel, jnp.full(2, NOISE**2), Scaling.of(x, y), x, y)
    return strayed(gps, x, y), np.sqrt(np.mean(product**2))


@pytest.mark.parametrize("name", ["linear", "bilinear", "quadratic"])
def test_noise_is_no_misfit(name):
    for seed in range(5):
        np.testing.assert_array_equal(fitted(name, 0.0, seed)[0], 0)


@pytest.mark.parametrize("name", ["linear", "bilinear", "quadratic"])
def test_a_bend_is_seen_by_as_much_as_it_bends(name):
    level, bend = fitted(name, 0.3, 0)
    assert level[0] == pytest.approx(bend, rel=0.15)
    assert level[1] == 0


def test_functions_that_bend_are_not_asked():
    np.testing.assert_array_equal(fitted("rbf", 0.3, 0)[0], 0)


def test_few_samples_are_asked_for_less():
    """Ten have no say in products of three inputs, and none is worse than silent."""
    assert fitted("linear", 0.3, 0, count=10)[0].shape == (2,)

"""Straight functions are doubted where the samples stray from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import kernel_named, strayed
from offmap.gp.expansion import Scaling
from offmap.gp.misfit import standing_out
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
    return strayed(gps, x, y), x, product


@pytest.mark.parametrize("name", ["linear", "bilinear", "quadratic"])
def test_noise_is_no_misfit(name):
    for seed in range(5):
        assert fitted(name, 0.0, seed)[0] is None


@pytest.mark.parametrize("name", ["linear", "bilinear", "quadratic"])
def test_a_bend_is_seen_by_as_much_as_it_bends(name):
    strays, x, product = fitted(name, 0.3, 0)
    level = np.sqrt(np.mean(jax.vmap(strays.variance)(x), axis=0))
    assert level[0] == pytest.approx(np.sqrt(np.mean(product**2)), rel=0.15)
    assert level[1] == 0


def test_beyond_the_samples_it_grows_as_what_is_missed():
    """A product of three inputs, wherever it may vanish: Π (1 + zᵢ²), and flat along no other."""
    strays, x, _ = fitted("bilinear", 0.3, 0)
    assert strays.products[-1] == (0, 1, 2)
    size = x.std(axis=0)
    at = np.stack([x.mean(axis=0) + size * z for z in ([0, 0, 0], [3, 0, 0], [3, -2, 1])])
    found = np.asarray(jax.vmap(strays.variance)(at))[:, 0]
    np.testing.assert_allclose(found / found[0], [1, 10, 10 * 5 * 2], rtol=1e-6)


def test_columns_that_explain_stand_out_by_name():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(400, 30))
    columns[:, 7] = columns[:, 3] + 0.1 * columns[:, 7]  # nearly the same
    residual = columns[:, 3] - 0.5 * columns[:, 20] + 0.3 * rng.normal(size=400)
    assert standing_out(residual, columns) == [3, 20]
    assert standing_out(rng.normal(size=400), columns) == []


def test_a_bend_that_no_product_explains_alone_is_a_constant(monkeypatch):
    monkeypatch.setattr("offmap.gp.misfit.standing_out", lambda residual, columns: [])
    strays, x, product = fitted("linear", 0.3, 0)
    assert strays.products == ((),)
    level = np.asarray(strays.variance(jnp.asarray(100 * x[0])))
    np.testing.assert_allclose(level, [np.mean(product**2), 0], rtol=0.3)


def test_functions_that_bend_are_not_asked():
    assert fitted("rbf", 0.3, 0)[0] is None


def test_few_samples_are_asked_for_less():
    """Ten have no say in products of three inputs, and none is worse than silent."""
    strays, *_ = fitted("linear", 0.3, 0, count=10)
    assert strays is None or max(map(len, strays.products)) < 3

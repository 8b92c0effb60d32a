"""Functions drawn from a posterior have its mean and its covariance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import draw_functions, kernel_named
from offmap.gp.draws import draw_prior
from offmap.gp.expansion import Scaling
from offmap.gp.induced import induce
from offmap.gp.posterior import condition, extend
from offmap.gp.straight import StraightMean


def two_gps(name, noise=0.02):
    """Two outputs of 2 inputs, the second a control; few points, so that there is doubt."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 2))
    y = np.stack([np.sin(x[:, 0]) + x[:, 1], x[:, 0] * x[:, 1]], 1) + 0.1 * rng.normal(size=(12, 2))
    kernel = kernel_named(name, 2, (1,))
    kernel = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf - 0.2]), kernel)
    return condition(kernel, jnp.full(2, noise), Scaling.of(x, y), x, y), x, y


def values(gps, points, count, widen=(1.0, 1.0), seed=0):
    draws = draw_functions(gps, count, key=jax.random.key(seed), widen=np.array(widen))
    each = jax.jit(jax.vmap(lambda i: jax.vmap(draws[i])(points)))
    return np.asarray(each(jnp.arange(count))), draws


POINTS = jnp.array([[0.1, 0.2], [1.0, -1.5], [4.0, 3.0]])  # among the data, at their edge, beyond


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("bilinear", "exact"),
        ("affine", "extended"),
        ("rbf+linear", "induced"),
    ],
)
def test_draws_have_the_mean_and_variance_of_the_posterior(name, form):
    gps, x, y = two_gps(name)
    if form == "extended":
        gps = extend(gps, x[:3] + 0.5, y[:3], np.full(2, 0.5))
    elif form == "induced":
        gps, complete = induce(gps, x, y, most=12)
        assert complete
    count = 800
    drawn, _ = values(gps, POINTS, count)
    mean = np.asarray(jax.vmap(gps)(POINTS))
    std = np.sqrt(np.asarray(jax.vmap(gps.variance)(POINTS)))
    assert np.max(np.abs(drawn.mean(axis=0) - mean) / std) < 4.5 / np.sqrt(count)
    np.testing.assert_allclose(drawn.std(axis=0), std, rtol=0.12)


def test_a_draw_is_one_function():
    """Errors at two points far from the data and near each other are the same error."""
    gps, _, _ = two_gps("rbf")
    near = jnp.array([[4.0, 3.0], [4.05, 3.0]])
    drawn, _ = values(gps, near, 500)
    correlation = np.corrcoef(drawn[:, 0, 0], drawn[:, 1, 0])[0, 1]
    assert correlation > 0.99


def test_straight_draws_are_a_few_products_and_those_of_the_sum():
    gps, _, _ = two_gps("bilinear")
    drawn, draws = values(gps, POINTS, 5)
    assert isinstance(draws[0], StraightMean)
    slow = type(draws)(draws.gps, draws.alpha, draws.prior, None, None)
    again = np.stack([jax.vmap(slow[i])(POINTS) for i in range(5)])
    np.testing.assert_allclose(drawn, again, atol=1e-10)


def test_wider_draws_keep_the_mean_and_the_randomness():
    gps, _, _ = two_gps("affine")
    mean = np.asarray(jax.vmap(gps)(POINTS))[None]
    (plain, _), (wide, _) = (values(gps, POINTS, 20, widen) for widen in ((1.0, 1.0), (1.0, 3.0)))
    expected = mean + (plain - mean) * np.array([1.0, 3.0])
    np.testing.assert_allclose(wide, expected, atol=1e-9)
    other, _ = values(gps, POINTS, 20, seed=1)
    assert np.max(np.abs(other - plain)) > 0.1


@pytest.mark.parametrize("name", ["cosine", "rbf+linear", "affine"])
def test_prior_draws_have_the_kernels_covariance(name):
    kernel, keys = kernel_named(name, 2, (1,)), jax.random.split(jax.random.key(1), 1000)

    def value(key):
        return jax.vmap(draw_prior(kernel, 2, key))(POINTS)

    drawn = np.asarray(jax.jit(jax.vmap(value))(keys))
    covariance = np.asarray(kernel(POINTS, POINTS))
    size = np.sqrt(np.diag(covariance))
    off = (drawn.T @ drawn / len(drawn) - covariance) / np.outer(size, size)
    assert np.max(np.abs(off)) < 0.15

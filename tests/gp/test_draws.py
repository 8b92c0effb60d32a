"""Functions drawn from a posterior have its mean and its covariance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import Linear, doubtful, draw_functions, kernel_named
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


def values(gps, points, count, seed=0):
    draws = draw_functions(gps, count, key=jax.random.key(seed))
    each = jax.jit(jax.vmap(lambda i: jax.vmap(draws[i])(points)))
    return np.asarray(each(jnp.arange(count))), draws


POINTS = jnp.array([[0.1, 0.2], [1.0, -1.5], [4.0, 3.0]])  # among the data, at their edge, beyond


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("bilinear", "exact"),
        pytest.param("affine", "extended", marks=pytest.mark.slow),
        pytest.param("rbf+linear", "induced", marks=pytest.mark.slow),
    ],
)
def test_draws_have_mean_0_and_the_variance_of_the_posterior(name, form):
    gps, x, y = two_gps(name)
    if form == "extended":
        gps = extend(gps, x[:3] + 0.5, y[:3], np.full(2, 0.5))
    elif form == "induced":
        gps, complete = induce(gps, x, y, most=12)
        assert complete
    count = 800
    drawn, _ = values(gps, POINTS, count)
    std = np.sqrt(np.asarray(jax.vmap(gps.variance)(POINTS)))
    assert np.max(np.abs(drawn.mean(axis=0)) / std) < 4.5 / np.sqrt(count)
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


def test_doubt_is_that_of_least_squares_where_the_search_turned_lines_off():
    """A line fitted to noise: the posterior must not be sure of slope 0 and of a known mean."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(50, 1)), 0.3
    y = noise * rng.normal(size=(50, 1))
    scaling = Scaling(jnp.zeros(1), jnp.ones(1), jnp.zeros(1), jnp.ones(1))
    closed = jax.tree.map(lambda leaf: leaf[None], Linear(jnp.full(1, -12.0), jnp.array(-12.0)))
    gps = condition(closed, jnp.full(1, noise**2), scaling, x, y)
    at = np.array([5.0])
    assert float(gps.variance(jnp.asarray(at))[0]) < 1e-8
    design = np.concatenate([np.ones_like(x), x], axis=1)
    query = np.concatenate([np.ones(1), at])
    expected = noise**2 * query @ np.linalg.solve(design.T @ design, query)
    wide = doubtful(gps, x)
    assert float(wide.variance(jnp.asarray(at))[0]) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("name", ["affine"])
def test_doubt_counts_all_samples_at_their_noise_and_is_never_less(name):
    gps, x, y = two_gps(name)
    more = extend(gps, x[:5] + 2.0, y[:5], np.array([0.1, 0.2]))
    more = extend(more, x[:3] + 4.0, y[:3], np.array([0.3, 0.4]))
    alone, wide = (np.asarray(jax.vmap(doubtful(g, x).variance)(POINTS)) for g in (gps, more))
    assert np.all(wide >= np.asarray(jax.vmap(more.variance)(POINTS)) - 1e-12)
    assert np.all(wide[2] < 0.5 * alone[2])
    induced, _ = induce(gps, x, y, most=12)
    known = np.asarray(jax.vmap(doubtful(induced, x).variance)(POINTS))
    np.testing.assert_allclose(known, alone, rtol=1e-2)


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

"""Functions drawn from a posterior have its mean and its covariance."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import (
    GPConfig,
    Linear,
    doubtful,
    draw_functions,
    fit_gps,
    kernel_named,
    shared_noise,
)
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
    key, noise = jax.random.split(jax.random.key(seed))
    draws = draw_functions(gps, jax.random.normal(noise, (count, *gps.alpha.shape)), key=key)
    each = jax.jit(jax.vmap(lambda i: jax.vmap(draws[i])(points)))
    return np.asarray(each(jnp.arange(count))), draws


POINTS = jnp.array([[0.1, 0.2], [1.0, -1.5], [4.0, 3.0]])  # among the data, at their edge, beyond


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("bilinear", "exact"),
        pytest.param("quadratic", "exact", marks=pytest.mark.slow),
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


@pytest.mark.parametrize("form", ["exact", "induced"])
def test_draws_share_noise_with_whatever_else_it_moves(form):
    """Two numbers that are sums over the samples' noise, the second with more of it than it has."""
    gps, x, y = two_gps("bilinear")
    if form == "induced":
        gps, _ = induce(gps, x, y, most=12)
    errors = (
        np.random.default_rng(1).normal(size=(2, *y.shape)) * np.array([0.02, 3.0])[:, None, None]
    )
    share, along = shared_noise(gps, x, errors)
    count = 3000
    key, noise_key = jax.random.split(jax.random.key(0))
    noise = jax.random.normal(noise_key, (count, *gps.alpha.shape))
    draws = draw_functions(gps, noise, key=key)
    drawn = np.asarray(jax.jit(jax.vmap(lambda i: jax.vmap(draws[i])(POINTS)))(jnp.arange(count)))
    chance = np.asarray(jnp.einsum("spn,epn->se", noise, share))
    assert np.all(chance.var(axis=0) < 1.1)
    found = np.einsum("szp,se->ezp", drawn, chance) / count
    expected = np.stack([jax.vmap(one)(POINTS) for one in along])
    size = drawn.std(axis=0)[None] * chance.std(axis=0)[:, None, None]
    assert np.max(np.abs(found - expected) / size) < 4.5 / np.sqrt(count)
    assert np.max(np.abs(expected) / size) > 0.3


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


PLAIN = Scaling(jnp.zeros(3), jnp.ones(3), jnp.zeros(1), jnp.ones(1))


def lines(x, y, slope, noise):
    """A GP of lines with these slopes' deviations and a constant that is off."""
    kernel = Linear(jnp.log(jnp.asarray(slope)), jnp.array(-12.0))
    kernel = jax.tree.map(lambda leaf: leaf[None], kernel)
    return condition(kernel, jnp.full(1, noise**2), PLAIN, x, y)


def test_doubt_is_that_of_least_squares_where_the_search_turned_off_what_is_there():
    """The posterior must not be sure of slopes 0 that the data speak against, nor of the mean."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(50, 3)), 0.3
    y = x.sum(axis=1, keepdims=True) + noise * rng.normal(size=(50, 1))
    gps = lines(x, y, np.full(3, 1e-6), noise)
    at = np.array([5.0, 2.0, -1.0])
    assert float(gps.variance(jnp.asarray(at))[0]) < 1e-8
    design = np.concatenate([np.ones((50, 1)), x], axis=1)
    query = np.concatenate([np.ones(1), at])
    expected = noise**2 * query @ np.linalg.solve(design.T @ design, query)
    assert float(doubtful(gps, x, y).variance(jnp.asarray(at))[0]) == pytest.approx(
        expected, rel=0.05
    )


@pytest.mark.parametrize("there", [0.0, 0.5, 1.0])
def test_doubt_is_as_large_as_errors_are(there):
    """Of data whose lines are there or not: the mean is that of the likeliest slopes."""
    rng, noise, count = np.random.default_rng(1), 0.1, 200
    at, errors, doubts = np.array([3.0, -3.0, 3.0]), [], []
    for _ in range(count):
        x = rng.normal(size=(40, 3))
        slopes = rng.normal(size=3) * (rng.random(3) < there)
        y = (x @ slopes + noise * rng.normal(size=40))[:, None]
        found = np.linalg.lstsq(x, y[:, 0], rcond=None)[0]
        error = noise**2 * np.diag(np.linalg.inv(x.T @ x))
        gps = lines(x, y, np.sqrt(np.maximum(found**2 - error, 1e-12)), noise)
        errors.append(float(gps(jnp.asarray(at))[0]) - at @ slopes)
        doubts.append(float(doubtful(gps, x, y).variance(jnp.asarray(at))[0]))
    ratio = np.mean(np.square(errors)) / np.mean(doubts)
    assert 0.8 < ratio < 1.35


def test_doubt_of_a_proportional_function_is_as_large_as_its_errors():
    """With a constant to doubt as well, commands that are far from 0 would tell less of slopes."""
    rng, noise, at = np.random.default_rng(2), 0.05, np.array([3.0, 3.0])
    errors, doubts, free = [], [], []
    for _ in range(60):
        u, slopes = rng.uniform(0.5, 1.5, (40, 2)), rng.normal(size=2)
        y = (u @ slopes + noise * rng.normal(size=40))[:, None]
        own, other = (
            fit_gps(u, y, np.zeros(40, int), key=jax.random.key(0), config=GPConfig(kernel=name))
            for name in ("proportional", "linear")
        )
        errors.append(float(own(jnp.asarray(at))[0]) - at @ slopes)
        doubts.append(float(doubtful(own, u, y).variance(jnp.asarray(at))[0]))
        free.append(float(doubtful(other, u, y).variance(jnp.asarray(at))[0]))
    assert 0.7 < np.mean(np.square(errors)) / np.mean(doubts) < 1.4
    assert np.mean(doubts) < 0.5 * np.mean(free)


def test_a_line_of_one_control_leaves_no_room_for_those_of_others():
    """Y = u x: that neither drift nor the other control has a slope along x is seen, and stays."""
    rng, noise = np.random.default_rng(0), 0.05
    x = rng.normal(size=(200, 3))
    y = x[:, :1] * x[:, 1:2] + noise * rng.normal(size=(200, 1))
    kernel = kernel_named("bilinear", 3, (1, 2))
    kernel = eqx.tree_at(lambda k: k.log_weights, kernel, kernel.log_weights.at[1:].set(-12.0))
    kernel = eqx.tree_at(lambda k: k.log_weights, kernel, kernel.log_weights.at[1, 1].set(0.0))
    kernel = jax.tree.map(lambda leaf: leaf[None], kernel)
    wide = doubtful(condition(kernel, jnp.full(1, noise**2), PLAIN, x, y), x, y).kernel
    room = np.sqrt(np.asarray(jax.tree.map(lambda leaf: leaf[0], wide).slopes()))
    error = noise / np.sqrt(200)
    assert room[1, 0] > 0.5  # as least squares would have it
    assert max(room[0, 0], room[2, 0]) < 2 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["affine"])
def test_doubt_counts_all_samples_at_their_noise_and_is_never_less(name):
    gps, x, y = two_gps(name)
    more = extend(gps, x[:5] + 2.0, y[:5], np.array([0.1, 0.2]))
    more = extend(more, x[:3] + 4.0, y[:3], np.array([0.3, 0.4]))
    alone, wide = (np.asarray(jax.vmap(doubtful(g, x, y).variance)(POINTS)) for g in (gps, more))
    assert np.all(wide >= np.asarray(jax.vmap(more.variance)(POINTS)) - 1e-12)
    assert np.all(wide[2] < 0.5 * alone[2])
    induced, _ = induce(gps, x, y, most=12)
    known = np.asarray(jax.vmap(doubtful(induced, x, y).variance)(POINTS))
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

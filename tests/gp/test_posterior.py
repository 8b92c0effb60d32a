"""The cached posterior against dense formulas and scikit-learn, and the algebra of folding in."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize_scalar
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from offmap.gp import RBF, Linear, Sum
from offmap.gp.expansion import Scaling
from offmap.gp.induced import induce
from offmap.gp.likelihood import JITTER
from offmap.gp.posterior import condition, extend, most_likely_noise

N, E, d, p = 40, 16, 2, 2


def rbf_plus_linear(lengthscale, variance, slope, bias):
    rbf = RBF(jnp.log(jnp.array(lengthscale)), jnp.log(variance))
    return Sum(rbf, Linear(jnp.log(jnp.array(slope)), jnp.log(bias)))


def stacked(*kernels):
    """One kernel for each output: every leaf has a leading axis p."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *kernels)


KERNELS = (
    rbf_plus_linear([0.7, 1.5], 2.5, [0.5, 1.0], 0.3),
    rbf_plus_linear([1.1, 0.4], 0.8, [2.0, 0.1], 0.9),
)
KERNEL = stacked(*KERNELS)
NOISE = jnp.array([0.02, 0.3])
FURTHER_NOISE = jnp.array([0.5, 0.004])


def points(seed, count):
    """Two noisy outputs; inputs and outputs far from standardised."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, d)) * [3.0, 0.2] + [5.0, -1.0]
    y = np.stack([np.sin(x[:, 0]) * 40 + 100, x[:, 1] ** 2 + x[:, 0]], axis=1)
    return jnp.asarray(x), jnp.asarray(y + rng.normal(size=y.shape) * [4.0, 0.5])


X, Y = points(0, N)
FURTHER_X, FURTHER_Y = points(1, E)
AT, _ = points(2, 8)
SCALING = Scaling.of(np.asarray(X), np.asarray(Y))


@pytest.fixture(scope="module")
def base():
    return condition(KERNEL, NOISE, SCALING, X, Y)


@pytest.fixture(scope="module")
def extended(base):
    return extend(base, FURTHER_X, FURTHER_Y, FURTHER_NOISE)


@eqx.filter_jit
def predict(gps, at=AT):
    return jax.vmap(gps)(at), jax.vmap(gps.variance)(at)


def dense_posterior(x, y, noise):
    """Mean and variance at AT, and weights, by the textbook formulas; noise is (p, count)."""
    z, at = ((points - SCALING.x_mean[None]) / SCALING.x_scale[None] for points in (x, AT))
    mean, scale = np.asarray(SCALING.y_mean), np.asarray(SCALING.y_scale)
    targets = (np.asarray(y) - mean) / scale
    means, variances, weights = [], [], []
    for k in range(p):
        kernel = KERNELS[k]
        factor = cho_factor(np.asarray(kernel(z, z)) + np.diag(noise[k]), lower=True)
        cross = np.asarray(kernel(at, z))
        weights.append(cho_solve(factor, targets[:, k]))
        means.append(cross @ weights[k] * scale[k] + mean[k])
        explained = np.sum(cross.T * cho_solve(factor, cross.T), axis=0)
        variances.append((np.diag(kernel(at, at)) - explained) * scale[k] ** 2)
    return np.stack(means, axis=1), np.stack(variances, axis=1), np.stack(weights)


def assert_same(first, second, tolerance=1e-8):
    for ours, theirs in zip(predict(first), predict(second), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance)
    np.testing.assert_allclose(first.alpha, second.alpha, rtol=tolerance, atol=tolerance)


def assert_dense(gps):
    """Conditioning on base and further points is what the dense formula says."""
    mean, variance, alpha = dense_posterior(
        jnp.concatenate([X, FURTHER_X]), jnp.concatenate([Y, FURTHER_Y]), gps.noise
    )
    ours = predict(gps)
    np.testing.assert_allclose(ours[0], mean, rtol=1e-8)
    np.testing.assert_allclose(ours[1], variance, rtol=1e-8)
    np.testing.assert_allclose(gps.alpha, alpha, rtol=1e-8, atol=1e-8)


# --- conditioning


def test_scaling_standardises_what_it_was_made_from():
    x, y = np.asarray(X), np.asarray(Y)
    x_mean, x_scale, y_mean, y_scale = map(np.asarray, jax.tree.leaves(SCALING))
    z, targets = (x - x_mean) / x_scale, (y - y_mean) / y_scale
    for values in (z, targets):
        np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(values.std(axis=0), 1.0, rtol=1e-12)
    not_centred = Scaling.of(x, y, centre=False)
    np.testing.assert_array_equal(not_centred.y_mean, 0.0)
    np.testing.assert_allclose(not_centred.y_scale, np.sqrt(np.mean(y**2, axis=0)), rtol=1e-12)


def test_columns_that_do_not_vary_are_not_blown_up():
    x, y = np.full((5, 1), 1 / 3), np.zeros((5, 1))
    for centre in (True, False):
        scaling = Scaling.of(x, y, centre=centre)
        assert scaling.x_scale == scaling.y_scale == 1.0


def test_posterior_is_the_textbook_formula(base):
    mean, variance, alpha = dense_posterior(X, Y, np.repeat(NOISE[:, None], N, axis=1))
    ours = predict(base)
    np.testing.assert_allclose(ours[0], mean, rtol=1e-7)
    np.testing.assert_allclose(ours[1], variance, rtol=1e-7)
    np.testing.assert_allclose(base.alpha, alpha, rtol=1e-7, atol=1e-8)


def test_posterior_agrees_with_scikit_learn():
    lengthscale, variance, noise = np.array([0.7, 1.5]), 2.5, 0.02
    kernel = stacked(RBF(jnp.log(lengthscale), jnp.log(variance)))
    identity = Scaling(jnp.zeros(d), jnp.ones(d), jnp.zeros(1), jnp.ones(1))
    rng = np.random.default_rng(3)
    z, at = rng.normal(size=(N, d)), rng.normal(size=(8, d))
    y = np.sin(2 * z[:, 0]) + 0.1 * z[:, 1]
    ours = condition(kernel, jnp.array([noise]), identity, jnp.asarray(z), jnp.asarray(y)[:, None])
    theirs = GaussianProcessRegressor(
        sklearn_kernels.ConstantKernel(variance) * sklearn_kernels.RBF(lengthscale),
        alpha=noise + JITTER * variance,
        optimizer=None,
    ).fit(z, y)
    their_mean, their_std = theirs.predict(at, return_std=True)
    our_mean, our_variance = predict(ours, jnp.asarray(at))
    np.testing.assert_allclose(our_mean[:, 0], their_mean, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(our_variance[:, 0], their_std**2, rtol=1e-8, atol=1e-8)


def test_jitter_stays_far_below_the_noise(base):
    np.testing.assert_allclose(base.noise, np.repeat(NOISE[:, None], N, axis=1), rtol=1e-7)


def test_variance_vanishes_at_exact_data_and_returns_to_the_prior_far_away():
    kernel = stacked(RBF(jnp.zeros(d), jnp.log(2.0)))
    scaling = Scaling.of(np.asarray(X), np.asarray(Y[:, :1]))
    gps = condition(kernel, jnp.array([0.0]), scaling, X, Y[:, :1])
    prior = 2.0 * float(scaling.y_scale[0]) ** 2
    mean, variance = predict(gps, X[:8])
    np.testing.assert_allclose(mean, Y[:8, :1], rtol=1e-3)
    assert np.max(variance) < 1e-6 * prior
    mean, variance = predict(gps, X[:8] + 1e3)
    np.testing.assert_allclose(variance, prior, rtol=1e-12)
    np.testing.assert_allclose(mean, np.mean(Y[:, 0]), rtol=1e-12)


def test_repeated_rows_share_their_average():
    # Twice the same inputs and no noise: only the jitter lets the covariance factor.
    kernel = stacked(RBF(jnp.zeros(d), jnp.zeros(())))
    x = jnp.concatenate([X[:20], X[:20]])
    y = jnp.concatenate([Y[:20, :1], Y[:20, :1] + 2.0])
    scaling = Scaling.of(np.asarray(x), np.asarray(y))
    gps = condition(kernel, jnp.array([0.0]), scaling, x, y)
    mean, _ = predict(gps, X[:8])
    np.testing.assert_allclose(mean, Y[:8, :1] + 1.0, atol=1e-2)


def test_mean_alone_is_the_same_mean_and_says_what_it_lacks(base):
    alone = base.mean_only()
    np.testing.assert_array_equal(jax.vmap(alone)(AT), jax.vmap(base)(AT))
    for needs_factor in (
        lambda: alone.variance(AT[0]),
        lambda: alone.without_extension(),
        lambda: extend(alone, FURTHER_X, FURTHER_Y, FURTHER_NOISE),
    ):
        with pytest.raises(ValueError, match=r"need the factorised covariance.*mean_only"):
            needs_factor()


# --- folding further points in


def test_extension_is_conditioning_on_the_union(extended):
    noise = np.concatenate(
        [np.repeat(NOISE[:, None], N, axis=1), np.repeat(FURTHER_NOISE[:, None], E, axis=1)], axis=1
    )
    np.testing.assert_allclose(extended.noise, noise, rtol=1e-6)
    assert_dense(extended)


def test_two_extensions_equal_one(base, extended):
    half = E // 2
    twice = base
    for rows in (slice(None, half), slice(half, None)):
        twice = extend(twice, FURTHER_X[rows], FURTHER_Y[rows], FURTHER_NOISE)
    # The jitter follows the mean variance of each batch, so the two differ by that much,
    assert_same(twice, extended, 1e-5)
    # and each is exact for the jitter it holds.
    assert_dense(twice)


def test_removing_the_extension_undoes_it(base, extended):
    restored = extended.without_extension()
    assert jax.tree.map(jnp.shape, restored) == jax.tree.map(jnp.shape, base)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12),
        restored,
        base,
    )
    mean, extended_mean = predict(restored)[0], predict(extended)[0]
    assert np.abs(mean - extended_mean).max() > 0.1


def test_further_points_never_raise_the_variance(base, extended):
    before, after = predict(base)[1], predict(extended)[1]
    assert (after < before).all()
    assert (after >= 0).all()


# --- the noise level of further points


def innovation_problem(seed, count, noise):
    """A covariance, and a draw from it with noise on top."""
    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.uniform(-3, 3, (count, 1)))
    covariance = np.asarray(RBF(jnp.zeros(1), jnp.zeros(()))(x, x))
    total = covariance + (noise + 1e-12) * np.eye(count)
    return covariance, np.linalg.cholesky(total) @ rng.normal(size=count)


def negative_log_density(log_noise, covariance, innovation):
    total = covariance + np.exp(log_noise) * np.eye(len(innovation))
    _, log_determinant = np.linalg.slogdet(total)
    return 0.5 * innovation @ np.linalg.solve(total, innovation) + 0.5 * log_determinant


most_likely = jax.jit(most_likely_noise)


@pytest.mark.parametrize("noise", [1e-3, 0.1, 10.0])
def test_noise_is_the_most_likely_one(noise):
    problem = innovation_problem(1, 30, noise)
    # Oracle: a fine scan for the right basin, then Brent's method inside it.
    scan = np.linspace(np.log(1e-8), np.log(1e4), 400)
    best = scan[np.argmin([negative_log_density(level, *problem) for level in scan])]
    oracle = minimize_scalar(
        negative_log_density,
        bounds=(best - 0.1, best + 0.1),
        args=problem,
        method="bounded",
        options={"xatol": 1e-9},
    )
    found = float(jnp.log(most_likely(*map(jnp.asarray, problem))))
    np.testing.assert_allclose(found, oracle.x, atol=1e-4)
    assert negative_log_density(found, *problem) <= oracle.fun + 1e-8


def test_noise_is_found_again_from_many_points():
    for noise in (0.01, 1.0):
        covariance, innovation = innovation_problem(2, 400, noise)
        found = most_likely(jnp.asarray(covariance), jnp.asarray(innovation))
        # The standard error of a variance from 400 draws is √(2/400), 7 %.
        np.testing.assert_allclose(found, noise, rtol=0.2)


def test_points_that_fit_exactly_have_no_noise():
    covariance, _ = innovation_problem(1, 30, 0.1)
    assert most_likely(jnp.asarray(covariance), jnp.zeros(30)) < 1.1e-10


def test_extension_learns_the_noise_given_what_is_known_before(base, extended):
    learned = extend(base, FURTHER_X, FURTHER_Y, None)
    for k in range(p):
        # Covariance and mean of the new points given the old, by the dense formula.
        kernel, z = KERNELS[k], learned.x
        K = np.asarray(kernel(z, z))
        old = cho_factor(K[:N, :N] + np.diag(base.noise[k]), lower=True)
        targets = (np.concatenate([Y, FURTHER_Y])[:, k] - SCALING.y_mean[k]) / SCALING.y_scale[k]
        covariance = K[N:, N:] - K[N:, :N] @ cho_solve(old, K[:N, N:])
        innovation = np.asarray(targets[N:] - K[N:, :N] @ cho_solve(old, targets[:N]))
        found = np.log(np.asarray(learned.noise[k, N]))
        value = negative_log_density(found, covariance, innovation)
        for other in found + np.array([-1.0, -0.01, 0.01, 1.0]):
            assert value < negative_log_density(other, covariance, innovation)
    # The rest of the posterior is the same as with that level given.
    assert_same(learned, extend(base, FURTHER_X, FURTHER_Y, learned.noise[:, N]), 1e-6)


@pytest.mark.parametrize("by_centres", [False, True])
def test_noisy_points_do_not_move_what_is_known_exactly(by_centres):
    """Two straight functions, one known to round-off and one from noisy data: only it may move."""
    rng = np.random.default_rng(3)
    x, further = rng.normal(size=(200, d)), 3 + rng.normal(size=(25, d))
    line = np.array([[0.4, -1.3], [1.0, 0.2]])
    y = x @ line + np.array([0.0, 0.5]) * rng.normal(size=(200, p))
    noisy = further @ line + 0.1 * rng.normal(size=(25, p))
    kernel = stacked(*[Linear(jnp.zeros(d), jnp.zeros(()))] * p)
    scaling = Scaling.of(x, y)
    before = condition(kernel, jnp.array([1e-10, 0.1]), scaling, x, y)
    if by_centres:
        before, complete = induce(before, x, y, most=20)
        assert complete
    after = before.extended(further, noisy, None)
    known, moved = (np.asarray(jax.vmap(gps)(jnp.asarray(further))) for gps in (before, after))
    deviation = np.sqrt(np.asarray(jax.vmap(before.variance)(jnp.asarray(further))))
    assert np.max(np.abs(moved - known)[:, 0]) < 1e-12
    assert np.max(np.abs(moved - known)[:, 1]) > 0.1 * np.min(deviation[:, 1])

"""Marginal likelihood and its maximum, against scikit-learn and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sklearn_kernels

from offmap.gp import RBF, Cosine, Linear, Product, Sum, log_marginal_likelihood
from offmap.gp import triangular as module
from offmap.gp.fit import _NOISE, maximise_likelihood
from offmap.gp.kernels import bounds, kernel_named, starts
from offmap.gp.likelihood import JITTER, turned, turned_log_likelihood
from offmap.gp.straight import straight_terms, straight_variances

N, d = 30, 2
LENGTHSCALE, PERIOD, SLOPE = np.array([[0.7, 1.5], [3.0, 5.0], [0.3, 1.2]])
rbf = RBF(jnp.log(LENGTHSCALE), jnp.log(2.5))
linear = Linear(jnp.log(SLOPE), jnp.log(0.6))
cosine = Cosine(jnp.log(PERIOD), jnp.log(1.7))


def data():
    """A smooth function with noise 0.1 on standardised inputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, d))
    y = np.sin(1.3 * x[:, 0]) + 0.4 * x[:, 1] ** 2 + 0.1 * rng.normal(size=N)
    return x, (y - y.mean()) / y.std()


X, Y = map(jnp.asarray, data())


@jax.jit
def likelihood(kernel, log_noise, x, y):
    return log_marginal_likelihood(kernel, jnp.exp(log_noise), x, y)


def test_likelihood_agrees_with_scikit_learn():
    x, y = data()
    noise = 0.03
    ours = [likelihood(kernel, jnp.log(noise), X, Y) for kernel in (rbf, linear)]
    theirs = []
    for kernel, inputs, variance in (
        (
            sklearn_kernels.ConstantKernel(2.5) * sklearn_kernels.RBF(LENGTHSCALE),
            x,
            rbf.variance(X),
        ),
        (sklearn_kernels.DotProduct(0.6), x * SLOPE, linear.variance(X)),
    ):
        alpha = noise + JITTER * float(jnp.mean(variance))
        gp = GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(inputs, y)
        theirs.append(gp.log_marginal_likelihood_value_)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8)


def test_gradient_matches_finite_differences_for_every_parameter():
    kernel = Sum(Product(rbf, cosine), linear)
    vector, unravel = ravel_pytree((kernel, jnp.log(0.05)))
    gradient, _ = ravel_pytree(jax.grad(likelihood, argnums=(0, 1))(*unravel(vector), X, Y))
    h = 1e-5
    numeric = [
        (likelihood(*unravel(vector + h * e), X, Y) - likelihood(*unravel(vector - h * e), X, Y))
        / (2 * h)
        for e in jnp.eye(len(vector))
    ]
    assert np.abs(numeric).min() > 1e-3
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_gradient_for_the_data_matches_finite_differences():
    # The likelihood has a hand-written backward pass, so its y and x need a check too.
    by_x, by_y = jax.grad(likelihood, argnums=(2, 3))(rbf, jnp.log(0.05), X, Y)
    h = 1e-5
    for i in (0, 7):
        e = h * jnp.eye(N)[i]
        up, down = (likelihood(rbf, jnp.log(0.05), X, Y + sign * e) for sign in (1, -1))
        np.testing.assert_allclose(by_y[i], (up - down) / (2 * h), rtol=1e-5)
        shift = jnp.outer(e, jnp.array([0.0, 1.0]))
        up, down = (likelihood(rbf, jnp.log(0.05), X + sign * shift, Y) for sign in (1, -1))
        np.testing.assert_allclose(by_x[i, 1], (up - down) / (2 * h), rtol=1e-5)


# --- its maximum


def fitted(kernel="rbf", targets=Y[:, None], iterations=200):
    return maximise_likelihood(kernel_named(kernel, d), X, targets, iterations=iterations)


def single(tree, index=0):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def test_maximum_is_as_high_as_scikit_learns():
    x, y = data()
    kernel, noise = fitted()
    ours = likelihood(single(kernel), jnp.log(noise[0]), X, Y)
    theirs = GaussianProcessRegressor(
        sklearn_kernels.ConstantKernel(1.0, (1e-6, 1e5))
        * sklearn_kernels.RBF([1.5] * d, (0.05, 1e3))
        + sklearn_kernels.WhiteKernel(1e-2, (1e-10, 1.0)),
        alpha=1e-10,
        n_restarts_optimizer=4,
        random_state=0,
    ).fit(x, y)
    assert ours >= theirs.log_marginal_likelihood_value_ - 1e-3
    # And the noise that was put in is found: 0.1 in raw units.
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(N, d))
    spread = (np.sin(1.3 * raw[:, 0]) + 0.4 * raw[:, 1] ** 2 + 0.1 * rng.normal(size=N)).std()
    assert 0.05 < np.sqrt(noise[0]) * spread < 0.2


@pytest.mark.parametrize("name", ["rbf", "linear", "rbf+linear"])
def test_gradient_vanishes_at_the_maximum_or_points_out_of_bounds(name):
    kernel, noise = fitted(name)
    point = single(kernel), jnp.log(noise[0])
    gradient, _ = ravel_pytree(jax.grad(likelihood, argnums=(0, 1))(*point, X, Y))
    low, high = bounds(kernel_named(name, d))
    (low, _), (high, _) = (
        ravel_pytree((low, jnp.log(1e-10))),
        ravel_pytree((high, jnp.log(_NOISE[1]))),
    )
    value, _ = ravel_pytree(point)
    # First-order optimality in a box: a step uphill is undone by the bounds.
    step = np.clip(value + gradient, low, high) - value
    assert np.abs(step).max() < 0.02
    interior = (np.asarray(value - low) > 1e-6) & (np.asarray(high - value) > 1e-6)
    assert interior[-1] and interior.sum() >= 2
    assert np.abs(np.asarray(gradient)[interior]).max() < 0.02


def test_outputs_are_fitted_independently():
    targets = jnp.stack([Y, jnp.tanh(X[:, 1])], axis=1)
    kernel, noise = fitted(targets=targets)
    for k in range(2):
        alone_kernel, alone_noise = fitted(targets=targets[:, k : k + 1])
        np.testing.assert_allclose(noise[k], alone_noise[0], rtol=1e-10)
        jax.tree.map(
            lambda both, alone, k=k: np.testing.assert_allclose(both[k], alone[0], rtol=1e-10),
            kernel,
            alone_kernel,
        )
    assert abs(kernel.log_lengthscale[0, 0] - kernel.log_lengthscale[1, 0]) > 0.5


def test_the_inverse_by_blocks_is_the_inverse(monkeypatch):
    monkeypatch.setattr(module, "_WHOLE", 8)
    monkeypatch.setattr(module, "_BLOCK", 5)
    monkeypatch.setattr(module, "_WORTH", 10)
    rng = np.random.default_rng(0)
    for size in (8, 13):
        root = rng.normal(size=(size, size))
        K = root @ root.T + size * np.eye(size)
        half = module.half_inverse(jnp.linalg.cholesky(jnp.asarray(K)))
        np.testing.assert_allclose((half + half.T) @ K, np.eye(size), atol=1e-12)


@pytest.mark.parametrize(
    "name", ["linear", "bilinear", pytest.param("quadratic", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("count", [5, 60])
@pytest.mark.parametrize("noise", [1e-5, 0.3])
def test_turned_data_are_as_likely_and_as_steep(name, count, noise):
    """Also with fewer points than terms, and with little noise (with less, the dense one errs)."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(count, 4))
    y = x @ rng.normal(size=(4, 2)) + np.sqrt(noise) * rng.normal(size=(count, 2))
    (kernel,) = starts(name, 4, (2, 3))
    terms = straight_terms(kernel, x)

    def dense(kernel, noise):
        return log_marginal_likelihood(kernel, noise, jnp.asarray(x), jnp.asarray(y[:, 1]))

    def few(kernel, noise):
        return turned_log_likelihood(straight_variances(kernel), noise, turned(terms, y)[1])

    found = [jax.value_and_grad(f, (0, 1))(kernel, jnp.asarray(noise)) for f in (dense, few)]
    scale = float(abs(found[0][1][1])) + 1
    for a, b in zip(*(jax.tree.leaves(one) for one in found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9 * scale * noise)

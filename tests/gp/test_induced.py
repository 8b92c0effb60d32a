"""GPs by way of few centres against the exact posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import IndependentGPs
from offmap.gp import induced as module
from offmap.gp.expansion import Scaling
from offmap.gp.induced import induce
from offmap.gp.kernels import KernelName, kernel_named
from offmap.gp.pivots import pivoted_factor
from offmap.gp.posterior import condition

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, size=(300, 3))
Y = np.stack([1 + X[:, 0] - 2 * X[:, 2] * X[:, 1], np.sin(X[:, 0]) + X[:, 1]], axis=1)
Y = Y + 0.01 * RNG.normal(size=Y.shape)
FAR = RNG.uniform(-5, 5, size=(50, 3))
NOISE = jnp.array([1e-4, 1e-6])


def exact(name: KernelName, x: np.ndarray = X, y: np.ndarray = Y) -> IndependentGPs:
    """Two outputs whose kernels differ."""
    kernel = kernel_named(name, 3, (2,))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf - 0.3]), kernel)
    return condition(stacked, NOISE, Scaling.of(x, y), x, y)


def assert_same(one, other, at: np.ndarray, tolerance: float) -> None:
    for what in ("__call__", "variance"):
        a, b = (np.asarray(jax.vmap(getattr(gps, what))(jnp.asarray(at))) for gps in (one, other))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(a).max())


@pytest.mark.parametrize("name", [pytest.param("linear", marks=pytest.mark.slow), "bilinear"])
def test_where_few_functions_span_all_the_posterior_is_exact(name: KernelName) -> None:
    gps = exact(name)
    few, explained = induce(gps, X, Y, most=20)
    assert explained and len(few.x) < 10 and few.points() == 300
    assert_same(gps, few, FAR, 1e-8)


def test_smooth_functions_need_more_centres_and_say_when_they_lack_them() -> None:
    gps = exact("rbf")
    smooth = eqx.tree_at(lambda kernel: kernel.log_lengthscale, gps.kernel, jnp.ones((2, 3)))
    gps = condition(smooth, NOISE, gps.scaling, X, Y)
    assert not induce(gps, X, Y, most=20)[1]
    many, explained = induce(gps, X, Y, most=200)
    assert explained and len(many.x) < 200
    assert_same(gps, many, X[:40], 1e-3)


@pytest.mark.parametrize("noise", [None, jnp.array([1e-2, 1e-3])])
def test_further_samples_are_folded_in_as_in_the_exact_posterior(noise) -> None:
    further = slice(200, 300)
    shaken = Y[further] + 0.2 * RNG.normal(size=(100, 2))
    gps = exact("bilinear", X[:200], Y[:200])
    few, _ = induce(gps, X[:200], Y[:200], most=20)
    after, few_after = (g.extended(X[further], shaken, noise) for g in (gps, few))
    assert few_after.points() == 300 and few_after.base_points() == 200
    # Learned noise levels come from a search: they agree as far as it goes.
    assert_same(after, few_after, FAR, 1e-3 if noise is None else 1e-8)
    assert_same(gps, few_after.without_extension(), FAR, 1e-8)
    assert np.allclose(few_after.noise_level(), gps.noise_level())


def test_blocks_change_nothing(monkeypatch) -> None:
    gps = exact("bilinear")
    whole, _ = induce(gps, X, Y, most=20)
    monkeypatch.setattr(module, "_BLOCK", 128)
    assert_same(whole, induce(gps, X, Y, most=20)[0], FAR, 1e-9)


def test_conditioned_on_other_samples_at_the_same_centres() -> None:
    gps = exact("bilinear")
    few, _ = induce(gps, X, Y, most=20)
    # To factor its covariance the exact posterior adds 1e-10 to the noise, each time.
    assert_same(gps.conditioned(X[:50], Y[:50]), few.conditioned(X[:50], Y[:50]), FAR, 1e-4)


def test_the_pivoted_factor_rebuilds_the_covariance_even_if_one_output_is_simpler() -> None:
    kernel = kernel_named("linear", 3)
    slopes = jnp.array([[0.0, 0.0, 0.0], [0.0, -60.0, -60.0]])  # the second sees one input only
    where = lambda kernel: (kernel.log_slope, kernel.log_bias)  # noqa: E731
    stacked = eqx.tree_at(where, kernel, (slopes, jnp.zeros(2)))
    found = pivoted_factor(stacked, X, tolerance=1e-13, most=20)
    assert found.complete and len(found.chosen) == 4
    for j in range(2):
        one = type(kernel)(slopes[j], jnp.zeros(()))
        np.testing.assert_allclose(
            found.factor[j] @ found.factor[j].T, one(jnp.asarray(X), jnp.asarray(X)), atol=1e-12
        )
    assert np.all(np.isfinite(np.linalg.inv(found.corner)))

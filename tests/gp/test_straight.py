"""Compact means are the same everywhere, at the cost of a few products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.gp import IndependentGPs, compact
from offmap.gp.expansion import Scaling
from offmap.gp.induced import induce
from offmap.gp.kernels import ControlAffine, KernelName, kernel_named
from offmap.gp.posterior import condition
from offmap.gp.straight import StraightMean, with_variances

RNG = np.random.default_rng(1)
X = RNG.uniform(-1, 1, size=(120, 3)) * [1.0, 5.0, 0.1] + [3.0, 0.0, 1.0]
Y = np.stack([1 + X[:, 0] - 2 * X[:, 2] * X[:, 1], np.sin(X[:, 0]) + X[:, 1]], axis=1)
FAR = RNG.uniform(-50, 50, size=(40, 3))


def gps(name: KernelName, controls: tuple[int, ...]) -> IndependentGPs:
    """Two outputs whose kernels differ."""
    kernel = kernel_named(name, 3, controls)
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf - 0.3]), kernel)
    return condition(stacked, jnp.array([1e-3, 1e-2]), Scaling.of(X, Y), X, Y)


@pytest.mark.parametrize(
    ("name", "controls"),
    [
        ("linear", ()),
        ("bilinear", (0, 2)),
        pytest.param("quadratic", (2,), marks=pytest.mark.slow),
        pytest.param("bilinear", (), marks=pytest.mark.slow),
        pytest.param("bilinear", (0, 1, 2), marks=pytest.mark.slow),
        pytest.param(
            "affine", (0, 1, 2), marks=pytest.mark.slow
        ),  # bumps over no input are constants
    ],
)
def test_a_straight_mean_is_the_same_anywhere(name: KernelName, controls: tuple[int, ...]) -> None:
    exact = gps(name, controls)
    for whole in (exact, induce(exact, X, Y, most=30)[0]):
        short = compact(whole)
        assert isinstance(short, StraightMean) and short.points() == 120
        for at in (X, FAR):
            a, b = (np.asarray(jax.vmap(f)(jnp.asarray(at))) for f in (whole, short))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(a).max())


@pytest.mark.parametrize(("name", "controls"), [("linear", ()), ("bilinear", (0, 2))])
def test_variances_of_straight_functions_are_a_few_products_too(
    name: KernelName, controls: tuple[int, ...]
) -> None:
    exact = gps(name, controls)
    more = exact.extended(X[:30] + 0.1, Y[:30], jnp.array([1e-2, 1e-3]))
    for whole in (exact, more, induce(exact, X, Y, most=30)[0], induce(exact, X, Y, most=3)[0]):
        short = with_variances(whole)
        assert short is not None
        for at in (X, FAR):
            a, b = (np.asarray(jax.vmap(f.variance)(jnp.asarray(at))) for f in (whole, short))
            np.testing.assert_allclose(a, b, rtol=1e-6)
            assert np.all(b > 0)
    assert with_variances(gps("rbf", ())) is None


@pytest.mark.parametrize("name", ["rbf", "affine", "rbf+linear"])
def test_a_curved_mean_keeps_its_terms(name: KernelName) -> None:
    whole = gps(name, (2,))
    same = compact(whole)
    assert isinstance(same, IndependentGPs) and len(same.x) == 120
    at = jnp.asarray(FAR)
    np.testing.assert_array_equal(jax.vmap(whole)(at), jax.vmap(same)(at))


def test_bumps_pinned_to_nothing_are_nothing() -> None:
    straight = kernel_named("bilinear", 3, (2,))
    assert isinstance(straight, ControlAffine)
    slopes, weights = straight.log_slope, straight.log_weights
    bumps = ControlAffine(straight.log_lengthscale, slopes, weights, (2,), smooth=True)
    x = jnp.asarray(X)
    np.testing.assert_array_equal(straight(x, x), bumps(x, x))
    np.testing.assert_array_equal(straight.variance(x), bumps.variance(x))


def test_what_needs_the_samples_says_so() -> None:
    short = compact(gps("linear", ()))
    for ask in (
        lambda: short.variance(jnp.zeros(3)),
        lambda: short.noise_level(),
        lambda: short.conditioned(X, Y),
    ):
        with pytest.raises(ValueError, match="need the samples"):
            ask()
    assert short.mean_only() is short

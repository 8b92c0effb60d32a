"""Kernels are covariances, and agree with tinygp and scikit-learn."""

import inspect
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tinygp
from sklearn.gaussian_process import kernels as sklearn_kernels

from offmap.gp import RBF, AbstractKernel, Cosine, KernelName, Linear, Product, Sum, kernel_named
from offmap.gp.kernels import ControlAffine, bounds
from offmap.gp.straight import straight_variances

d = 3
rng = np.random.default_rng(0)
A, B = jnp.asarray(rng.normal(size=(12, d))), jnp.asarray(2 * rng.normal(size=(9, d)))
LENGTHSCALE, PERIOD, SLOPE = np.array([[0.7, 1.5, 4.0], [3.0, 5.0, 11.0], [0.3, 1.2, 2.0]])

rbf = RBF(jnp.log(LENGTHSCALE), jnp.log(2.5))
linear = Linear(jnp.log(SLOPE), jnp.log(0.6))
cosine = Cosine(jnp.log(PERIOD), jnp.log(1.7))
# Two other inputs and one control, which is the middle column.
WEIGHTS = np.array([[1.0, 0.5], [0.2, 0.7], [0.4, 0.3]])
affine = ControlAffine(
    jnp.log(LENGTHSCALE[[0, 2]]), jnp.log(SLOPE[[0, 2]]), jnp.log(WEIGHTS), controls=(1,)
)
KERNELS = {
    "rbf": rbf,
    "linear": linear,
    "cosine": cosine,
    "affine": affine,
    "product plus linear": Sum(Product(rbf, cosine), linear),
}
every_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS.keys())


def written_out(kernel, a, b):
    """The formulas of the docstrings, for two points."""
    if isinstance(kernel, RBF):
        scaled = (a - b) / np.exp(kernel.log_lengthscale)
        return np.exp(kernel.log_variance) * np.exp(-0.5 * np.sum(scaled**2))
    if isinstance(kernel, Linear):
        return np.sum(np.exp(kernel.log_slope) ** 2 * a * b) + np.exp(kernel.log_bias) ** 2
    if isinstance(kernel, Cosine):
        phase = 2 * np.pi * (a - b) / np.exp(kernel.log_period)
        return np.exp(kernel.log_variance) * np.prod(np.cos(phase))
    if isinstance(kernel, ControlAffine):
        x, y = a[[0, 2]], b[[0, 2]]
        smooth = np.exp(-0.5 * np.sum(((x - y) / LENGTHSCALE[[0, 2]]) ** 2))
        parts = np.array([smooth, np.sum(SLOPE[[0, 2]] ** 2 * x * y), 1.0])
        of_drift, of_control = WEIGHTS.T @ parts
        return of_drift + a[1] * b[1] * of_control
    first, second = written_out(kernel.first, a, b), written_out(kernel.second, a, b)
    return first + second if isinstance(kernel, Sum) else first * second


def tinygp_matrix(kernel, a, b):
    with jax.numpy_rank_promotion("allow"):
        return np.asarray(kernel(a, b))


@every_kernel
def test_matrix_holds_the_formula_for_every_pair(kernel):
    a, b = np.asarray(A[:5]), np.asarray(B[:4])
    expected = [[written_out(kernel, x, y) for y in b] for x in a]
    np.testing.assert_allclose(kernel(A[:5], B[:4]), expected, rtol=1e-10, atol=1e-12)


@every_kernel
def test_kernel_is_symmetric_and_positive_semi_definite(kernel):
    K = np.asarray(kernel(A, A))
    np.testing.assert_allclose(K, K.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(kernel(A, B), kernel(B, A).T, rtol=1e-12, atol=1e-14)
    eigenvalues = np.linalg.eigvalsh(K)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]


@every_kernel
def test_variance_is_the_diagonal(kernel):
    np.testing.assert_allclose(kernel.variance(B), np.diag(kernel(B, B)), rtol=1e-12)


def test_rbf_agrees_with_tinygp_and_scikit_learn():
    theirs = 2.5 * tinygp.kernels.ExpSquared(distance=tinygp.kernels.distance.L2Distance())
    scaled = A / LENGTHSCALE[None], B / LENGTHSCALE[None]
    np.testing.assert_allclose(rbf(A, B), tinygp_matrix(theirs, *scaled), atol=1e-10)
    theirs = sklearn_kernels.ConstantKernel(2.5) * sklearn_kernels.RBF(LENGTHSCALE)
    np.testing.assert_allclose(rbf(A, B), theirs(np.asarray(A), np.asarray(B)), atol=1e-10)


def test_linear_agrees_with_tinygp_and_scikit_learn():
    theirs = tinygp.kernels.DotProduct() + tinygp.kernels.Constant(0.36)
    scaled = A * SLOPE[None], B * SLOPE[None]
    np.testing.assert_allclose(linear(A, B), tinygp_matrix(theirs, *scaled), atol=1e-10)
    theirs = sklearn_kernels.DotProduct(sigma_0=0.6)
    np.testing.assert_allclose(linear(A, B), theirs(*map(np.asarray, scaled)), atol=1e-10)


def test_cosine_agrees_with_tinygp():
    one_input = Cosine(jnp.log(PERIOD[:1]), jnp.log(1.7))
    theirs = 1.7 * tinygp.kernels.Cosine(PERIOD[0])
    np.testing.assert_allclose(
        one_input(A[:, :1], B[:, :1]), tinygp_matrix(theirs, A[:, :1], B[:, :1]), atol=1e-10
    )
    expected = 1.7
    for k, period in enumerate(PERIOD):
        column = A[:, k : k + 1], B[:, k : k + 1]
        expected = expected * tinygp_matrix(tinygp.kernels.Cosine(period), *column)
    np.testing.assert_allclose(cosine(A, B), expected, atol=1e-10)


def test_affine_kernel_makes_functions_that_are_affine_in_the_control():
    # So is every posterior mean, a combination of k(·, b): its second difference in u is 0.
    x = np.array([0.3, -0.5])
    along = jnp.array([[x[0], u, x[1]] for u in (-1.0, 0.5, 2.0)])
    K = np.asarray(affine(along, B))
    np.testing.assert_allclose(K[0] - 2 * K[1] + K[2], 0.0, atol=1e-12)
    assert np.abs(K[0] - K[1]).max() > 0.1
    # It is not affine in the other inputs.
    across = jnp.array([[u, x[0], x[1]] for u in (-1.0, 0.5, 2.0)])
    K = np.asarray(affine(across, B))
    assert np.abs(K[0] - 2 * K[1] + K[2]).max() > 0.1


def test_drift_and_controls_may_have_slopes_of_their_own():
    """Equal ones are those that are shared; others are the sum over (1, u) written out."""
    slope = np.array([[0.5, 2.0], [1.5, 0.1]])
    shared = eqx.tree_at(lambda k: k.log_slope, affine, jnp.log(jnp.asarray(slope[0])))
    equal = eqx.tree_at(lambda k: k.log_slope, shared, jnp.stack([shared.log_slope] * 2))
    np.testing.assert_allclose(equal(A, B), shared(A, B), rtol=1e-12)
    own = eqx.tree_at(lambda k: k.log_slope, shared, jnp.log(jnp.asarray(slope)))
    (a, u), (b, v) = ((np.asarray(z)[:, [0, 2]], np.asarray(z)[:, 1]) for z in (A, B))
    further = WEIGHTS[1, 1] * np.outer(u, v) * (a * (slope[1] ** 2 - slope[0] ** 2) @ b.T)
    np.testing.assert_allclose(own(A, B) - shared(A, B), further, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(own.variance(A), np.diag(own(A, A)), rtol=1e-12)
    drawn = straight_variances(own)[jnp.array([1, 2, 4, 5])]
    np.testing.assert_allclose(drawn, (WEIGHTS[1][:, None] * slope**2).ravel(), rtol=1e-12)


def test_sum_and_product_combine_matrices():
    theirs = sklearn_kernels.ConstantKernel(2.5) * sklearn_kernels.RBF(LENGTHSCALE)
    first, second = theirs(np.asarray(A), np.asarray(B)), np.asarray(linear(A, B))
    np.testing.assert_allclose(Sum(rbf, linear)(A, B), first + second, atol=1e-10)
    np.testing.assert_allclose(Product(rbf, linear)(A, B), first * second, atol=1e-10)


# --- names and bounds


@pytest.mark.parametrize("name", get_args(KernelName))
def test_search_starts_strictly_inside_its_bounds(name):
    start = kernel_named(name, d, (1,))
    low, high = bounds(start)
    assert jax.tree.structure(start) == jax.tree.structure(low) == jax.tree.structure(high)
    for lower, value, upper in zip(*map(jax.tree.leaves, (low, start, high)), strict=True):
        assert lower.shape == value.shape == upper.shape
        assert (lower < value).all() and (value < upper).all()


def test_name_gives_its_kernel():
    assert isinstance(kernel_named("rbf", 2), RBF)
    assert isinstance(kernel_named("linear", 2), Linear)
    assert isinstance(kernel_named("cosine", 2), Cosine)
    combined = kernel_named("rbf+linear", 2)
    np.testing.assert_allclose(
        combined(A[:, :2], B[:, :2]),
        kernel_named("rbf", 2)(A[:, :2], B[:, :2]) + kernel_named("linear", 2)(A[:, :2], B[:, :2]),
    )


def test_unknown_name_is_refused():
    # Around the type checker, which only tests have and which would object first.
    with pytest.raises(ValueError) as error:
        inspect.unwrap(kernel_named)("matern", 2)
    message = str(error.value)
    assert all(f'"{name}"' in message for name in get_args(KernelName))
    assert "got 'matern'" in message
    assert "Choose one" in message


def test_kernel_without_bounds_is_refused():
    class Constant(AbstractKernel):
        def __call__(self, a, b):
            return jnp.ones((len(a), len(b)))

        def variance(self, a):
            return jnp.ones(len(a))

    with pytest.raises(TypeError, match="No bounds are known for Constant"):
        bounds(Constant())

"""The learned distance is a pseudometric, and its reduction keeps what the distance can see."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from offmap.pseudometric import Pseudometric, Reduction, retained_inputs

d = 3
# Steps of 1e-6: squares of far smaller numbers underflow, which is not what is tested here.
coordinate = st.floats(-100.0, 100.0).map(lambda value: round(value, 6))
entry = st.one_of(st.just(0.0), st.floats(-3.0, 3.0).map(lambda value: round(value, 6)))
point = hnp.arrays(np.float64, d, elements=coordinate)
diagonal_factor = hnp.arrays(np.float64, d, elements=entry).map(np.diag)
full_factor = hnp.arrays(np.float64, (d, d), elements=entry)
factors = st.one_of(diagonal_factor, full_factor)
scales = hnp.arrays(np.float64, d, elements=st.floats(0.01, 100.0))


@jax.jit
def distance(P, scale, a, b):
    return metric_of(P, scale).distance(a, b)


def metric_of(P, scale=None, *, diagonal=False, names=("a", "b", "c")):
    scale = jnp.ones(P.shape[0]) if scale is None else jnp.asarray(scale)
    return Pseudometric(jnp.asarray(P), scale, jnp.zeros(1), diagonal, names[: P.shape[0]])


def rounding(factor, scale, *differences):
    """Round-off in δᵀPδ is relative to ‖P‖‖δ‖², and the root halves its digits."""
    reach = max(np.linalg.norm(difference / scale) for difference in differences)
    return 1e-7 * np.linalg.norm(factor, 2) * reach


@given(factor=factors, scale=scales, a=point, b=point)
def test_distance_is_the_norm_of_the_embedded_difference(factor, scale, a, b):
    expected = np.linalg.norm(factor @ ((a - b) / scale))
    found = distance(factor.T @ factor, scale, a, b)
    assert abs(found - expected) <= rounding(factor, scale, a - b)


@given(factor=factors, scale=scales, a=point)
def test_distance_to_itself_is_zero(factor, scale, a):
    assert distance(factor.T @ factor, scale, a, a) == 0.0


@given(factor=factors, scale=scales, a=point, b=point)
def test_distance_is_symmetric_and_not_negative(factor, scale, a, b):
    there = distance(factor.T @ factor, scale, a, b)
    assert there >= 0.0
    assert there == distance(factor.T @ factor, scale, b, a)


@given(factor=factors, scale=scales, a=point, b=point, c=point)
def test_triangle_inequality(factor, scale, a, b, c):
    P = factor.T @ factor
    direct = distance(P, scale, a, c)
    detour = distance(P, scale, a, b) + distance(P, scale, b, c)
    assert direct <= detour + rounding(factor, scale, a - b, b - c, a - c)


def test_printed_square_breaks_the_triangle_inequality():
    # Deviation: eq. metric_learned has no root. Three points on a line refute it.
    metric = metric_of(np.eye(3))
    start, middle, end = jnp.zeros(3), jnp.array([1.0, 0, 0]), jnp.array([2.0, 0, 0])

    def printed(a, b):
        return (a - b) @ metric.P @ (a - b)

    assert printed(start, end) > printed(start, middle) + printed(middle, end)
    np.testing.assert_allclose(metric.distance(start, end), np.sqrt(printed(start, end)))
    np.testing.assert_allclose(
        metric.distance(start, end),
        metric.distance(start, middle) + metric.distance(middle, end),
    )


def test_distance_ignores_dropped_inputs():
    metric = metric_of(np.diag([1.0, 0.0, 0.5]), [2.0, 3.0, 4.0])
    a = jnp.array([1.0, 2.0, 3.0])
    assert metric.distance(a, a + jnp.array([0.0, 50.0, 0.0])) == 0.0
    np.testing.assert_allclose(metric.distance(a, a + jnp.array([6.0, 50.0, 0.0])), 3.0)


@pytest.mark.parametrize("move", [[0.0, 0.0, 0.0], [1.0, -1.0, 0.0]], ids=["same", "null space"])
def test_gradient_is_finite_where_the_distance_is_zero(move):
    row = np.array([[1.0, 1.0, 2.0]])
    metric = metric_of(row.T @ row)
    a = jnp.array([0.3, -0.2, 0.7])
    gradient = jax.grad(metric.distance)(a, a + jnp.asarray(move))
    assert np.isfinite(gradient).all()
    if not any(move):
        np.testing.assert_array_equal(gradient, 0.0)


def test_gradient_away_from_zero_is_that_of_a_norm():
    factor = np.random.default_rng(0).normal(size=(3, 3))
    metric = metric_of(factor.T @ factor)
    a, b = jnp.array([0.3, -0.2, 0.7]), jnp.array([1.0, 0.5, -2.0])
    embedded = factor @ np.asarray(a - b)
    expected = factor.T @ embedded / np.linalg.norm(embedded)
    np.testing.assert_allclose(jax.grad(metric.distance)(a, b), expected, rtol=1e-10)


# --- what is retained


def test_diagonal_threshold_selects_columns_by_name():
    metric = metric_of(np.diag([1.0, 0.04, 0.06]), [10.0, 20.0, 30.0], diagonal=True)
    reduction = retained_inputs(metric, 0.05)
    assert reduction.names == ("a", "c")
    np.testing.assert_array_equal(reduction(jnp.array([5.0, 6.0, 7.0])), [5.0, 7.0])
    assert retained_inputs(metric, 0.03).names == ("a", "b", "c")
    assert retained_inputs(metric, 0.5).names == ("a",)


def test_threshold_zero_drops_only_what_has_no_weight():
    metric = metric_of(np.diag([1.0, 0.0, 1e-9]), diagonal=True)
    assert retained_inputs(metric, 0.0).names == ("a", "c")


def test_full_P_is_reduced_to_its_heavy_eigendirections():
    rng = np.random.default_rng(3)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    P = rotation @ np.diag([1.0, 0.3, 1e-3]) @ rotation.T
    scale = np.array([1.0, 10.0, 0.1])
    reduction = retained_inputs(metric_of(P / np.abs(P).max(), scale), 0.05)
    assert reduction.matrix.shape == (2, 3)
    # In standardised units the rows are an orthonormal basis of the heavy eigenspace.
    rows = np.asarray(reduction.matrix) * scale
    np.testing.assert_allclose(rows @ rows.T, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(rows.T @ rows, rotation[:, :2] @ rotation[:, :2].T, atol=1e-10)


def test_weights_of_full_P_are_relative_to_the_heaviest_direction():
    # As fit_pseudometrics leaves it: largest entry 1. The light direction has 4 % of the heaviest.
    P = np.array([[1.0, 0.923], [0.923, 1.0]])
    metric = metric_of(P)
    eigenvalues = np.linalg.eigvalsh(P)[::-1]
    np.testing.assert_allclose(metric.weights, eigenvalues / eigenvalues[0])
    assert len(retained_inputs(metric, 0.05).names) == 1


@pytest.mark.parametrize("threshold", [-0.1, 1.0, 20.0, float("nan")])
def test_threshold_outside_its_range_is_refused(threshold):
    metric = metric_of(np.diag([1.0, 0.5, 0.2]), diagonal=True)
    with pytest.raises(ValueError) as error:
        retained_inputs(metric, threshold)
    message = str(error.value)
    assert "relative to the largest weight" in message
    assert f"got {threshold}" in message
    assert "0.05 is a good start" in message


def test_everything_keeps_every_input_as_it_is():
    reduction = Reduction.everything(("a", "b", "c"))
    z = jnp.array([1.5, -2.0, 1e6])
    np.testing.assert_array_equal(reduction(z), z)
    assert reduction.names == ("a", "b", "c")

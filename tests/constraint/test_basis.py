"""Rows that vary smoothly with x: rref against SymPy, unit rows, signs along a chain of states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from offmap.constraint import align_signs, rref, unit_rows
from offmap.systems import planar_quadrotor, unicycle


def exact_rref(matrix):
    reduced, _ = sympy.Matrix(matrix.astype(int).tolist()).rref()
    return np.array(reduced.tolist(), dtype=float)


def integer_matrix(rows, columns):
    row = st.lists(st.integers(-4, 4), min_size=columns, max_size=columns)
    return st.lists(row, min_size=rows, max_size=rows).map(lambda rows: np.array(rows, dtype=float))


# --- rref


@settings(max_examples=60)
@given(matrix=st.one_of(integer_matrix(3, 5), integer_matrix(1, 4), integer_matrix(4, 4)))
def test_rref_agrees_with_exact_arithmetic(matrix):
    np.testing.assert_allclose(rref(matrix[None])[0], exact_rref(matrix), atol=1e-9)


@settings(max_examples=40)
@given(left=integer_matrix(4, 2), right=integer_matrix(2, 5), lead=st.integers(0, 3))
def test_rref_of_rank_deficient_matrices_with_leading_zero_columns(left, right, lead):
    matrix = np.concatenate([np.zeros((4, lead)), left @ right], axis=1)
    np.testing.assert_allclose(rref(matrix[None])[0], exact_rref(matrix), atol=1e-9)


def test_rref_of_fractions():
    rng = np.random.default_rng(0)
    for _ in range(10):
        over, under = rng.integers(-9, 10, (3, 6)), rng.integers(1, 10, (3, 6))
        exact = sympy.Matrix(
            3, 6, lambda i, j, o=over, u=under: sympy.Rational(int(o[i, j]), int(u[i, j]))
        )
        expected = np.array(exact.rref()[0].tolist(), dtype=float)
        np.testing.assert_allclose(rref((over / under)[None])[0], expected, rtol=1e-9, atol=1e-9)


def test_a_batch_of_mixed_ranks_equals_one_by_one():
    rng = np.random.default_rng(1)
    batch = rng.normal(size=(7, 3, 5))
    batch[1] = 0.0
    batch[2, :, :2] = 0.0
    batch[3, 2] = batch[3, 0] - batch[3, 1]
    batch[4, 1:] = batch[4, :1]
    given = batch.copy()
    together = rref(batch)
    np.testing.assert_array_equal(batch, given)
    for matrix, reduced in zip(batch, together, strict=True):
        np.testing.assert_allclose(rref(matrix[None])[0], reduced, atol=1e-14)
    ranks = [np.linalg.matrix_rank(matrix) for matrix in together]
    assert ranks == [3, 0, 3, 2, 1, 3, 3]


def test_rref_is_the_same_for_every_basis_of_a_row_space():
    rng = np.random.default_rng(2)
    basis = rng.normal(size=(5, 4, 7))
    mixed = np.linalg.qr(rng.normal(size=(5, 4, 4)))[0] @ basis
    np.testing.assert_allclose(rref(mixed), rref(basis), atol=1e-10)


@pytest.mark.parametrize("shape", [(0, 2, 4), (3, 0, 4)])
def test_nothing_to_reduce(shape):
    assert rref(np.zeros(shape)).shape == shape


# --- unit rows


def test_unicycle_rows_are_unbounded_as_rref_and_bounded_as_unit_rows():
    theta = np.array([-1e-2, -1e-3, 1e-4, 1e-2, 0.5])
    states = jnp.asarray(np.column_stack([theta, theta, theta]))
    field = np.asarray(jax.vmap(unicycle().gamma)(states))
    reduced = rref(field)
    np.testing.assert_allclose(reduced[:, 0, 1], -1 / np.tan(theta), rtol=1e-9)
    assert np.abs(reduced).max() > 9e3
    unit = unit_rows(reduced)
    np.testing.assert_allclose(np.linalg.norm(unit[..., :-1], axis=2), 1, rtol=1e-14)
    agreement = np.einsum("kcq,kcq->kc", unit, field)
    np.testing.assert_allclose(np.abs(agreement), 1, rtol=1e-12)


def test_unit_rows_measure_the_velocity_part_only():
    gamma = np.array([[[3.0, 4.0, 100.0]], [[0.0, -2.0, 0.0]]])
    np.testing.assert_allclose(unit_rows(gamma), [[[0.6, 0.8, 20.0]], [[0.0, -1.0, 0.0]]])


# --- signs


def flipped(gamma, seed):
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(*gamma.shape[:2], 1))
    assert np.any(signs < 0)
    return signs * gamma


def assert_equal_up_to_one_sign_per_row(aligned, gamma):
    for row in range(gamma.shape[1]):
        signs = np.sign(np.sum(aligned[:, row] * gamma[:, row], axis=1))
        assert abs(signs.sum()) == len(gamma), f"row {row} changes sign"
        np.testing.assert_allclose(aligned[:, row], signs[0] * gamma[:, row], atol=1e-15)


def full_turn(count=60, seed=3):
    """States along a drive through one full turn, in random order."""
    theta = np.linspace(0, 2 * np.pi, count)
    x = np.column_stack([theta, 1 - np.cos(theta), theta])
    return np.random.default_rng(seed).permutation(x)


@pytest.mark.parametrize("seed", range(5))
def test_random_flips_are_undone_along_a_full_turn(seed):
    x = full_turn(seed=seed)
    field = np.asarray(jax.vmap(unicycle().gamma)(jnp.asarray(x)))
    assert_equal_up_to_one_sign_per_row(align_signs(x, flipped(field, seed)), field)


def test_each_row_is_aligned_by_itself():
    x = np.random.default_rng(4).uniform(-1, 1, size=(80, 6))
    field = np.asarray(jax.vmap(planar_quadrotor().gamma)(jnp.asarray(x)))
    assert_equal_up_to_one_sign_per_row(align_signs(x, flipped(field, 5)), field)


def test_the_bias_does_not_decide():
    # docs/deviations.md: x' + 100 x = 0 is the same direction on both sides of x = 0, but the
    # product of whole rows, as printed, is negative across it.
    x = np.linspace(-10, 10, 40)[:, None]
    field = np.stack([np.ones(40), 100 * x[:, 0]], axis=1)[:, None]
    np.testing.assert_array_equal(align_signs(x, field), field)
    literal = align_signs(x, field, "row")
    np.testing.assert_array_equal(np.sign(literal[:, 0, 0]), np.repeat([1, -1], 20))


def test_units_of_the_states_do_not_decide():
    # The rows turn with the second state; the first, in far larger numbers, says nothing.
    rng = np.random.default_rng(6)
    theta = np.linspace(0, 2 * np.pi, 400)
    x = np.column_stack([1e6 * rng.normal(size=400), theta])
    field = np.stack([-np.sin(theta), np.cos(theta), 0 * theta], axis=1)[:, None]
    # One turn of 400 states in a band of random positions: neighbours are within a small angle.
    assert_equal_up_to_one_sign_per_row(align_signs(x, flipped(field, 7)), field)


def test_coincident_states_get_the_same_sign():
    x = np.repeat(full_turn(count=20), 3, axis=0)
    field = np.asarray(jax.vmap(unicycle().gamma)(jnp.asarray(x)))
    assert_equal_up_to_one_sign_per_row(align_signs(x, flipped(field, 8)), field)


def test_coincident_states_are_each_others_neighbours():
    # Seen from the first state, the other two would point to opposite sides.
    turn = np.deg2rad([0.0, 89.0, 91.0])
    field = np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)[:, None]
    aligned = align_signs(np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]), field)[:, 0]
    assert aligned[1] @ aligned[2] > 0.99


def test_where_no_consistent_sign_exists_one_seam_remains():
    # A line that turns by half a revolution around a ring of states: the Möbius band.
    angle = np.arange(50) * 2 * np.pi / 50
    x = np.column_stack([np.cos(angle), np.sin(angle)])
    field = np.stack([np.cos(angle / 2), np.sin(angle / 2), 0 * angle], axis=1)[:, None]
    aligned = align_signs(x, flipped(field, 10))[:, 0]
    neighbours = np.sum(aligned * np.roll(aligned, 1, axis=0), axis=1)
    assert np.sum(neighbours < 0) == 1


@pytest.mark.parametrize("shape", [(1, 2, 4), (5, 0, 4)])
def test_nothing_to_align(shape):
    gamma = np.ones(shape)
    np.testing.assert_array_equal(align_signs(np.ones((shape[0], 3)), gamma), gamma)

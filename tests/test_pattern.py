"""Closed forms of tangent frames: which rows can be followed, and that columns are tangent."""

import jax.numpy as jnp
import numpy as np
import pytest

from offmap.pattern import cross_product, pattern_of, ways_to_follow

CHAIN = np.array(  # px, py, θ and the headings of three trailers, each row about one more
    [
        [True, True, False, False, False, False],
        [True, True, False, True, False, False],
        [True, True, False, True, True, False],
        [True, True, False, True, True, True],
    ]
)


def test_trailers_follow_one_after_the_other():
    found = list(ways_to_follow(CHAIN))
    assert ((3, 5),) in found
    assert ((1, 3), (2, 4), (3, 5)) in found  # in the order in which their rates are told
    assert all(len(follows) <= 4 for follows in found)
    assert found == sorted(found, key=len)


def test_a_row_about_one_state_is_not_followed_but_told():
    mentions = np.array([[True, False, False], [True, True, True]])
    found = list(ways_to_follow(mentions))
    assert ((1, 1),) in found and ((1, 2),) in found
    assert all((0, 0) not in follows for follows in found)
    pattern = pattern_of(mentions, ((1, 1),))
    assert pattern.told == ((0, 0),) and pattern.free == (2,) and not pattern.rows


@pytest.mark.parametrize("follows", [((3, 5),), ((1, 3), (2, 4), (3, 5))])
def test_columns_are_tangent_and_the_drift_is_admissible(follows):
    rng = np.random.default_rng(0)
    pattern = pattern_of(CHAIN, follows)
    gamma = np.where(np.pad(CHAIN, ((0, 0), (0, 1)), constant_values=True), 1.0, 0.0)
    gamma = jnp.asarray(gamma * rng.normal(size=gamma.shape))
    basis, drift = pattern(gamma)
    assert basis.shape == (6, 2)
    np.testing.assert_allclose(gamma[:, :-1] @ basis, 0, atol=1e-9)
    np.testing.assert_allclose(gamma[:, :-1] @ drift + gamma[:, -1], 0, atol=1e-9)
    leading = [j for j in range(6) if j not in {state for _, state in follows}]
    np.testing.assert_allclose(basis[jnp.array(leading)].T @ basis[jnp.array(leading)], np.eye(2))


def test_the_cross_product_is_at_a_right_angle_to_all_rows():
    rows = np.random.default_rng(1).normal(size=(3, 4))
    found = np.array(cross_product([list(row) for row in rows]))
    np.testing.assert_allclose(rows @ found, 0, atol=1e-12)
    length = np.sqrt(np.linalg.det(rows @ rows.T))
    np.testing.assert_allclose(np.linalg.norm(found), length)

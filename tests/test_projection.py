"""The projection is the optimum of its QP: KKT conditions, invariances, rank loss, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.projection import project, soft_project, tangent_projector, unit_residual

# (n, c): from no freedom left to no constraint; seven rows are too many to be written out
SHAPES = [(3, 1), (6, 4), (5, 2), (4, 4), (3, 0), (8, 7)]
project_one = jax.jit(project)
project_all = jax.jit(jax.vmap(project))
projector_all = jax.jit(jax.vmap(tangent_projector))
jacobians = {
    "forward": jax.jit(jax.jacfwd(project, argnums=(0, 1))),
    "reverse": jax.jit(jax.jacrev(project, argnums=(0, 1))),
}


def well_conditioned(rng, count, c, n):
    """Random (count, c, n) matrices with singular values in [1, 2]."""
    left = np.linalg.qr(rng.normal(size=(count, c, c)))[0]
    right = np.linalg.qr(rng.normal(size=(count, n, c)))[0]
    return left * rng.uniform(1, 2, size=(count, 1, c)) @ np.swapaxes(right, 1, 2)


def problems(n, c, count=50, seed=0):
    rng = np.random.default_rng(seed)
    G, g = well_conditioned(rng, count, c, n), rng.normal(size=(count, c))
    return rng.normal(size=(count, n)), np.concatenate([G, g[..., None]], axis=2)


def differences(function, at, step=1e-5):
    """Central finite differences, derivative axis last."""
    at = np.asarray(at)
    columns = []
    for index in np.ndindex(at.shape):
        nudge = np.zeros_like(at)
        nudge[index] = step
        columns.append((function(at + nudge) - function(at - nudge)) / (2 * step))
    return np.stack(columns, axis=-1).reshape(-1, *at.shape)


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_result_satisfies_the_kkt_conditions(n, c):
    xdot, gamma = problems(n, c)
    nearest = np.asarray(project_all(xdot, gamma))
    for x, star, (G, g) in zip(xdot, nearest, [(m[:, :-1], m[:, -1]) for m in gamma], strict=True):
        assert np.all(np.abs(G @ star + g) < 1e-12), "feasibility"
        multipliers = np.linalg.lstsq(G.T, x - star, rcond=None)[0]
        assert np.all(np.abs(star - x + G.T @ multipliers) < 1e-12), "stationarity"


@pytest.mark.parametrize(("n", "c"), [(3, 1), (6, 4), (4, 4)])
def test_finds_a_manufactured_optimum(n, c):
    optimum, gamma = problems(n, c, seed=1)
    G = gamma[..., :-1]
    gamma[..., -1] = -np.einsum("kcn,kn->kc", G, optimum)
    multipliers = np.random.default_rng(2).normal(size=(len(G), c))
    start = optimum + np.einsum("kcn,kc->kn", G, multipliers)
    np.testing.assert_allclose(project_all(start, gamma), optimum, atol=1e-12)


def test_no_other_feasible_point_is_nearer():
    xdot, gamma = problems(5, 2, seed=3)
    nearest = np.asarray(project_all(xdot, gamma))
    detours = np.random.default_rng(4).normal(size=(len(gamma), 5, 8))
    G = gamma[..., :-1]
    detours -= np.linalg.pinv(G) @ (G @ detours)  # moves along the feasible set
    distance = np.linalg.norm(nearest - xdot, axis=1)
    others = np.linalg.norm(nearest[..., None] + detours - xdot[..., None], axis=1)
    assert np.all(others > distance[:, None] + 1e-6)


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_projecting_again_changes_nothing(n, c):
    xdot, gamma = problems(n, c, seed=5)
    once = project_all(xdot, gamma)
    np.testing.assert_allclose(project_all(once, gamma), once, atol=1e-12)


@pytest.mark.parametrize(("n", "c"), [(3, 1), (6, 4)])
def test_points_do_not_move_apart_and_tangent_moves_are_kept(n, c):
    a, gamma = problems(n, c, seed=6)
    b = np.random.default_rng(7).normal(size=a.shape)
    moved = np.asarray(project_all(a, gamma) - project_all(b, gamma))
    assert np.all(np.linalg.norm(moved, axis=1) <= np.linalg.norm(a - b, axis=1) + 1e-12)
    tangent = moved  # differences of feasible points span the tangent space
    kept = project_all(a + tangent, gamma) - project_all(a, gamma)
    np.testing.assert_allclose(kept, tangent, atol=1e-12)


@pytest.mark.parametrize(("n", "c"), [(3, 1), (6, 4), (4, 4)])
def test_only_the_row_space_matters(n, c):
    xdot, gamma = problems(n, c, seed=8)
    rng = np.random.default_rng(9)
    mixed = well_conditioned(rng, len(gamma), c, c) @ gamma
    scaled = gamma * 10 ** rng.uniform(-4, 4, size=(len(gamma), c, 1))
    signed = gamma * rng.choice([-1.0, 1.0], size=(len(gamma), c, 1))
    expected = project_all(xdot, gamma)
    for same in (mixed, scaled, signed, gamma[:, ::-1]):
        np.testing.assert_allclose(project_all(xdot, same), expected, atol=1e-11)


def test_rows_that_repeat_or_vanish_drop_out():
    xdot, gamma = problems(5, 2, seed=10)
    zero = np.zeros_like(gamma[:, :1])
    combined = gamma[:, :1] - 3 * gamma[:, 1:]
    expected = project_all(xdot, gamma)
    for extra in (gamma[:, :1], -7 * gamma[:, 1:], combined, zero):
        further = np.concatenate([gamma, extra], axis=1)
        np.testing.assert_allclose(project_all(xdot, further), expected, atol=1e-11)


def test_a_row_without_direction_says_nothing():
    xdot, gamma = problems(5, 2, seed=11)
    bias_only = np.zeros_like(gamma[:, :1])
    bias_only[..., -1] = 3.0
    with_bias = np.concatenate([gamma, bias_only], axis=1)
    np.testing.assert_allclose(project_all(xdot, with_bias), project_all(xdot, gamma), atol=1e-12)
    np.testing.assert_array_equal(project_all(xdot, bias_only), xdot)
    np.testing.assert_array_equal(project_all(xdot, np.zeros_like(gamma)), xdot)


def test_more_rows_than_states_fix_the_velocity():
    xdot, _ = problems(3, 1, seed=12)
    rng = np.random.default_rng(13)
    answer, G = rng.normal(size=xdot.shape), rng.normal(size=(len(xdot), 5, 3))
    gamma = np.concatenate([G, -(G @ answer[..., None])], axis=2)
    np.testing.assert_allclose(project_all(xdot, gamma), answer, atol=1e-10)


def test_contradictory_rows_hold_in_the_least_squares_sense():
    # x = 1 and x = 3 cannot both hold: the least-squares answer is 2, and y is left alone.
    gamma = np.array([[1.0, 0.0, -1.0], [1.0, 0.0, -3.0]])
    np.testing.assert_allclose(project_one(np.array([5.0, 7.0]), gamma), [2.0, 7.0], atol=1e-12)
    rng = np.random.default_rng(14)
    G, g, x = rng.normal(size=(5, 3)), rng.normal(size=5), rng.normal(size=3)
    G /= np.linalg.norm(G, axis=1, keepdims=True)  # least squares over rows of equal weight
    expected = np.linalg.lstsq(G, -g, rcond=None)[0]
    found = project_one(x, np.column_stack([G, g]))
    np.testing.assert_allclose(found, expected, atol=1e-11)


@pytest.mark.parametrize(("n", "c", "rank"), [(6, 4, 2), (3, 6, 2), (5, 3, 1), (8, 7, 3)])
def test_rows_of_any_rank_agree_with_the_pseudo_inverse(n, c, rank):
    rng = np.random.default_rng(24)
    G = rng.normal(size=(40, c, rank)) @ rng.normal(size=(40, rank, n))
    G /= np.linalg.norm(G, axis=2, keepdims=True)
    xdot, g = rng.normal(size=(40, n)), rng.normal(size=(40, c))  # contradictory beyond the rank
    inverse = np.linalg.pinv(G, rcond=1e-6)
    expected = xdot - (inverse @ (G @ xdot[..., None] + g[..., None]))[..., 0]
    gamma = np.concatenate([G, g[..., None]], axis=2)
    scale = np.linalg.norm(inverse, axis=(1, 2))[:, None] ** 2  # errors grow with the condition
    np.testing.assert_allclose(
        np.asarray(project_all(xdot, gamma) - expected) / scale, 0, atol=1e-12
    )
    np.testing.assert_allclose(
        np.asarray(projector_all(gamma) - (np.eye(n) - inverse @ G)) / scale[..., None],
        0,
        atol=1e-12,
    )


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_tangent_projector_is_the_linear_part(n, c):
    xdot, gamma = problems(n, c, seed=15)
    P = np.asarray(projector_all(gamma))
    np.testing.assert_allclose(P, np.swapaxes(P, 1, 2), atol=1e-12)
    np.testing.assert_allclose(P @ P, P, atol=1e-12)
    np.testing.assert_allclose(P @ np.swapaxes(gamma[..., :-1], 1, 2), 0, atol=1e-12)
    np.testing.assert_allclose(np.trace(P, axis1=1, axis2=2), n - c, atol=1e-12)
    change = project_all(xdot, gamma) - project_all(np.zeros_like(xdot), gamma)
    np.testing.assert_allclose(change, (P @ xdot[..., None])[..., 0], atol=1e-12)


def test_tangent_projector_counts_independent_rows_only():
    _, gamma = problems(5, 2, count=1, seed=16)
    repeated = np.concatenate([gamma, gamma[:, :1], np.zeros((1, 1, 6))], axis=1)
    assert np.trace(projector_all(repeated)[0]) == pytest.approx(3, abs=1e-12)


def orthonormal_rows(n, c):
    _, gamma = problems(n, c, count=1, seed=17)
    gamma[0, :, :-1] = np.linalg.qr(gamma[0, :, :-1].T)[0].T
    return gamma[0]


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize(
    "gamma",
    [
        problems(3, 1, count=1, seed=18)[1][0],
        problems(6, 4, count=1, seed=19)[1][0],
        orthonormal_rows(6, 4),  # G Gᵀ = I: every eigenvalue is repeated
        np.eye(4, 7),
    ],
    ids=["one", "four", "orthonormal", "identity"],
)
def test_gradients_agree_with_finite_differences(gamma, mode):
    xdot = np.random.default_rng(21).normal(size=gamma.shape[1] - 1)
    by_xdot, by_gamma = jacobians[mode](xdot, gamma)
    numeric = differences(lambda v: np.asarray(project_one(v, gamma)), xdot)
    np.testing.assert_allclose(by_xdot, numeric, atol=1e-8)
    numeric = differences(lambda v: np.asarray(project_one(xdot, v)), gamma)
    np.testing.assert_allclose(by_gamma, numeric, atol=1e-7)


def test_gradients_stay_finite_where_rank_is_lost():
    xdot, gamma = problems(5, 2, count=1, seed=22)
    zero = np.zeros((1, 6))
    for degenerate in (zero, np.vstack([gamma[0], zero]), np.vstack([gamma[0], gamma[0, :1]])):
        found = jacobians["reverse"](xdot[0], degenerate)
        assert all(np.all(np.isfinite(jacobian)) for jacobian in found)


@pytest.mark.parametrize(("n", "c", "single"), [(6, 4, project_one), (3, 1, project)])
def test_compiled_and_batched_equal_one_by_one(n, c, single):
    xdot, gamma = problems(n, c, seed=23)
    for k, together in enumerate(project_all(xdot, gamma)[:5]):
        alone = single(jnp.asarray(xdot[k]), jnp.asarray(gamma[k]))
        np.testing.assert_allclose(together, alone, atol=1e-13)


# --- soft projection: the likeliest velocity, given a prediction and a constraint that may be wrong

soft_one = jax.jit(soft_project)


@pytest.mark.parametrize(("n", "c"), SHAPES)
def test_soft_projection_minimises_both_misfits(n, c):
    xdot, gamma = (values[0] for values in problems(n, c, count=1, seed=30))
    rng = np.random.default_rng(31)
    variance, softness = rng.uniform(0.1, 2, n), rng.uniform(0.05, 1, c)
    G = gamma[:, :-1] / np.linalg.norm(gamma[:, :-1], axis=1, keepdims=True)
    g = gamma[:, -1] / np.linalg.norm(gamma[:, :-1], axis=1)
    found, covariance = soft_one(xdot, variance, gamma, softness)
    precision = np.diag(1 / variance) + G.T @ np.diag(softness**-2.0) @ G
    gradient = (found - xdot) / variance + G.T @ ((G @ found + g) / softness**2)
    np.testing.assert_allclose(gradient, 0, atol=1e-7)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), atol=1e-9)


def test_soft_projection_becomes_firm_or_vanishes_in_its_limits():
    xdot, gamma = (values[0] for values in problems(6, 4, count=1, seed=32))
    equal = np.full(6, 0.7)
    firm, _ = soft_one(xdot, equal, gamma, np.zeros(4))
    np.testing.assert_allclose(firm, project_one(xdot, gamma), atol=1e-9)
    free, _ = soft_one(xdot, equal, gamma, np.full(4, 1e9))
    np.testing.assert_allclose(free, xdot, atol=1e-9)
    # A component that is known for sure is left alone.
    known, _ = soft_one(xdot, np.array([1e-14, 1, 1, 1, 1, 1]), gamma, np.zeros(4))
    np.testing.assert_allclose(known[0], xdot[0], atol=1e-6)
    np.testing.assert_allclose(unit_residual(known, jnp.asarray(gamma)), 0, atol=1e-6)


def test_soft_projection_stays_finite_where_rank_is_lost():
    xdot, gamma = (values[0] for values in problems(5, 2, count=1, seed=33))
    repeated = np.vstack([gamma, gamma[:1], np.zeros((1, 6))])
    found, covariance = soft_one(xdot, np.ones(5), repeated, np.zeros(4))
    np.testing.assert_allclose(found, project_one(xdot, gamma), atol=1e-6)
    assert np.all(np.isfinite(covariance))
    still, _ = soft_one(xdot, np.zeros(5), gamma, np.zeros(2))
    np.testing.assert_allclose(still, xdot)

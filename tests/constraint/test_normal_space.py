"""Normal spaces from derivative stacks: subspace angles, how many actions, how many constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import subspace_angles

from offmap.constraint import count_constraints, derivative_stack, normal_space, spread_actions
from offmap.systems import planar_quadrotor, unicycle

SYSTEMS = [(unicycle(), 1), (planar_quadrotor(), 4)]
each_system = pytest.mark.parametrize(("system", "c"), SYSTEMS, ids=["unicycle", "quadrotor"])


def states_and_stack(system, actions, count=40, seed=0):
    """States, their true derivative stacks for K actions, and the spread of the velocities."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (count, system.n))
    pool = np.asarray(system.controls.sample(jax.random.key(seed), 200))
    u = spread_actions(pool, actions)
    stack = np.asarray(derivative_stack(system.f, jnp.asarray(x), jnp.asarray(u)))
    return x, stack, stack[..., :-1].reshape(-1, system.n).std(axis=0)


def largest_angle(basis, gamma):
    return max(subspace_angles(b.T, g.T).max() for b, g in zip(basis, gamma, strict=True))


def true_gamma(system, x):
    return np.asarray(jax.vmap(system.gamma)(jnp.asarray(x)))


def test_stack_holds_one_row_per_action():
    system = planar_quadrotor()
    rng = np.random.default_rng(1)
    x, u = jnp.asarray(rng.normal(size=(37, 6))), jnp.asarray(rng.normal(size=(5, 2)))
    stack = derivative_stack(system.f, x, u)  # 37 states: not a multiple of the block
    assert stack.shape == (37, 5, 7)
    for i, k in [(0, 0), (31, 4), (32, 1), (36, 3)]:
        np.testing.assert_allclose(stack[i, k], [*system.f(x[i], u[k]), 1.0], atol=1e-12)


@each_system
def test_null_space_of_the_true_dynamics_is_the_analytic_constraint(system, c):
    x, stack, scale = states_and_stack(system, 2 * (system.n + 1))
    space = normal_space(x, stack, scale)
    assert space.c == c
    assert largest_angle(space.basis, true_gamma(system, x)) < 1e-7
    residual = np.einsum("kcq,kaq->kca", space.basis, stack)
    assert np.abs(residual).max() < 1e-10
    assert np.all(np.diff(space.singular_values) <= 0)
    assert space.singular_values[-c] < 1e-9 * space.singular_values[0]
    assert space.singular_values[-c - 1] > 1e-3 * space.singular_values[0]


@each_system
def test_the_papers_number_of_actions_is_one_too_few(system, c):
    # docs/deviations.md: the appended 1 raises the rank by one, so K ≥ n − c + 1.
    enough = system.n - c + 1
    x, stack, scale = states_and_stack(system, enough)
    space = normal_space(x, stack, scale)
    assert space.c == c
    assert largest_angle(space.basis, true_gamma(system, x)) < 1e-7
    space = normal_space(x, stack[:, : enough - 1], scale)
    assert space.c == c + 1
    # The true constraint is inside, together with a direction that motion does not avoid.
    inside = [
        subspace_angles(g.T, b.T).max()
        for g, b in zip(true_gamma(system, x), space.basis, strict=True)
    ]
    assert max(inside) < 1e-7
    assert np.abs(np.einsum("kcq,kq->kc", space.basis, stack[:, -1])).max() > 1e-2


@each_system
def test_units_of_a_velocity_change_nothing_but_the_units(system, c):
    x, stack, scale = states_and_stack(system, 2 * (system.n + 1))
    units = np.ones(system.n + 1)
    units[-2] = 1e-6  # the turn rate, in other units
    before, after = (
        normal_space(x, stack, scale),
        normal_space(x, stack * units, scale * units[:-1]),
    )
    np.testing.assert_allclose(after.singular_values, before.singular_values, atol=1e-10)
    assert after.c == before.c == c
    assert largest_angle(after.basis * units, before.basis) < 1e-6


def test_without_scales_the_count_would_depend_on_units():
    x, stack, _ = states_and_stack(unicycle(), 8)
    assert normal_space(x, stack * [1, 1, 1e-6, 1], np.ones(3)).c == 2


@each_system
def test_an_absolute_threshold_counts_other_constraints_in_other_units(system, c):
    # docs/deviations.md: the paper's ε compares raw singular values with a number.
    x, stack, scale = states_and_stack(system, 2 * (system.n + 1))
    literal = normal_space(x, stack, scale, epsilon=1e-6)
    assert literal.c == c
    assert largest_angle(literal.basis, true_gamma(system, x)) < 1e-7
    expected = np.median(np.linalg.svd(stack, compute_uv=False), axis=0)
    np.testing.assert_allclose(literal.singular_values, expected, atol=1e-12)
    slow = np.ones(system.n + 1)
    slow[-2] = 1e-9
    assert normal_space(x, stack * slow, scale * slow[:-1], epsilon=1e-6).c == c + 1
    assert normal_space(x, stack * slow, scale * slow[:-1]).c == c


def test_a_fully_actuated_system_has_no_constraint():
    rng = np.random.default_rng(2)
    velocities = rng.normal(size=(20, 6, 2))
    stack = np.concatenate([velocities, np.ones((20, 6, 1))], axis=2)
    space = normal_space(rng.normal(size=(20, 2)), stack, velocities.std(axis=(0, 1)))
    assert space.c == 0
    assert space.basis.shape == (20, 0, 3)
    assert np.all(space.singular_values > 0.1)


@pytest.mark.parametrize(
    ("spectrum", "c"),
    [
        ([10.9, 4.5, 0.21, 0.0, 0.0, 0.0, 0.0], 4),  # the quadrotor: an absolute ε is fragile here
        ([6.4, 3.8, 1.7, 4e-6], 1),
        ([6.4, 3.8, 1.7, 0.18], 0),
        ([1.0, 0.1, 0.01], 2),  # equal gaps of exactly min_gap: the first one counts
        ([1.0, 0.5, 1e-12, 1e-20], 2),  # below round-off one zero is like another
        ([3.0, 0.1, 0.05, 1e-6], 1),  # the widest gap, not the first
    ],
)
def test_constraints_lie_beyond_the_widest_gap(spectrum, c):
    assert count_constraints(np.array(spectrum), 10.0) == c


def test_the_widest_gap_must_be_wide_enough():
    spectrum = np.array([2.0, 1.0, 0.05])
    assert count_constraints(spectrum, 19.9) == 1
    assert count_constraints(spectrum, 20.1) == 0


@pytest.mark.parametrize("c", [0, 1, 2, 3])
def test_a_given_number_of_constraints_is_respected(c):
    x, stack, scale = states_and_stack(unicycle(), 8)
    space = normal_space(x, stack, scale, c=c)
    assert space.basis.shape == (len(x), c, 4)
    if c:  # the directions that move least come into the basis first
        moved = np.linalg.norm(np.einsum("kcq,kaq->kca", space.basis, stack), axis=2)
        np.testing.assert_allclose(moved[:, -1], 0, atol=1e-10)


@pytest.mark.parametrize("c", [-1, 4])
def test_an_impossible_number_of_constraints_is_refused(c):
    x, stack, scale = states_and_stack(unicycle(), 8)
    with pytest.raises(ValueError, match=rf"lies in 0\.\.3; got c={c}\. Choose"):
        normal_space(x, stack, scale, c=c)


def test_actions_are_observed_distinct_and_far_apart():
    side = np.linspace(0, 1, 9)
    grid = np.stack(np.meshgrid(side, 30 * side), axis=-1).reshape(-1, 2)
    repeated = np.random.default_rng(3).permutation(np.repeat(grid, 3, axis=0))
    chosen = spread_actions(repeated, 12)
    assert {tuple(u) for u in chosen} <= {tuple(u) for u in grid}
    assert len({tuple(u) for u in chosen}) == 12
    corners = {(0.0, 0.0), (0.0, 30.0), (1.0, 0.0), (1.0, 30.0)}
    assert {tuple(u) for u in chosen[:4]} == corners


def test_too_few_different_actions_are_refused():
    controls = np.repeat(np.eye(2), 10, axis=0)
    np.testing.assert_array_equal(np.sort(spread_actions(controls, 2), axis=0), [[0, 0], [1, 1]])
    with pytest.raises(ValueError, match=r"needs 3 different actions; the data hold 2\. Excite"):
        spread_actions(controls, 3)

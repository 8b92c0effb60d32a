"""The tangent frame: orthonormal, tangent, smooth over full turns, and it finds forward speed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.systems import bicycle, planar_quadrotor, rolling_disk, trailer, unicycle
from offmap.tangent import tangent_frame
from offmap.turning import find_turning

SYSTEMS = [unicycle(), planar_quadrotor(), bicycle(), trailer(), rolling_disk()]


def frame_of(system, spread=1.0):
    x = spread * np.random.default_rng(0).normal(size=(200, system.n))
    angles = tuple(system.state_names.index(name) for name in system.angles)
    return tangent_frame(system.gamma, x, angles)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_frame_holds_exactly_the_admissible_velocities(system):
    frame = frame_of(system)
    x = jax.random.uniform(jax.random.key(0), (100, system.n), minval=-3.0, maxval=3.0)
    u = system.controls.sample(jax.random.key(1), 100)
    xdot = jax.vmap(system.f)(x, u)
    basis, drift = jax.vmap(frame)(x)
    identity = np.broadcast_to(np.eye(basis.shape[2]), (100, basis.shape[2], basis.shape[2]))
    np.testing.assert_allclose(jnp.swapaxes(basis, 1, 2) @ basis, identity, atol=1e-12)
    G = jax.vmap(system.gamma)(x)[:, :, :-1]
    np.testing.assert_allclose(G @ basis, 0, atol=1e-12)
    a = jax.vmap(frame.coordinates)(x, xdot)
    rebuilt = drift + jnp.einsum("bnr,br->bn", basis, a)
    np.testing.assert_allclose(rebuilt, xdot, atol=1e-10)


def test_coordinates_of_the_unicycle_are_speed_and_turn_rate_at_every_heading():
    system = unicycle()
    frame = frame_of(system, spread=0.5)
    x = jnp.zeros((200, 3)).at[:, 2].set(jnp.linspace(-9.0, 9.0, 200))
    u = system.controls.sample(jax.random.key(1), 200)
    a = np.asarray(jax.vmap(frame.coordinates)(x, jax.vmap(system.f)(x, u)))
    np.testing.assert_allclose(np.abs(a), np.abs(np.asarray(u[:, ::-1])), atol=1e-12)
    sign = np.sign(a[:, 0] * np.asarray(u[:, 1]))
    assert len(np.unique(sign)) == 1, "the frame must not flip on the way round"


@pytest.mark.parametrize(
    "system",
    [pytest.param(planar_quadrotor(), marks=pytest.mark.slow), trailer()],
    ids=lambda system: system.name,
)
def test_frame_is_differentiable(system):
    frame = frame_of(system)
    gradient = jax.jacobian(lambda x: frame(x)[0])(jnp.full(system.n, 0.7))
    assert bool(jnp.all(jnp.isfinite(gradient)))


def test_the_march_has_steps_for_the_turns_it_meets():
    wild = trailer()
    angles = tuple(wild.state_names.index(name) for name in wild.angles)
    calm = np.random.default_rng(0).normal(size=(50, wild.n)) * 0.05
    assert tangent_frame(wild.gamma, calm, ()).steps < tangent_frame(wild.gamma, calm, angles).steps


@pytest.mark.parametrize(
    "system", [unicycle(), planar_quadrotor(), bicycle(), rolling_disk()], ids=lambda s: s.name
)
def test_a_constraint_in_a_frame_that_turns_needs_no_march(system):
    frame = frame_of(system)
    assert frame.turning is not None
    assert system.state_names[frame.turning.angle] in ("theta", "phi")
    assert frame.steps == 1


def test_coordinates_of_a_point_off_the_axle_are_the_same_at_every_heading():
    # The least turn from heading to heading would mix speed and turn rate by ahead · θ.
    ahead, askew = 0.3, 0.1

    def gamma(x):
        heading = x[2] - askew
        return jnp.stack([jnp.sin(heading), -jnp.cos(heading), ahead, 0.0])[None]

    def f(x, u):
        heading = x[2] - askew
        across = ahead * u[0]
        return jnp.stack(
            [
                u[1] * jnp.cos(heading) - across * jnp.sin(heading),
                u[1] * jnp.sin(heading) + across * jnp.cos(heading),
                u[0],
            ]
        )

    frame = tangent_frame(gamma, np.random.default_rng(0).normal(size=(100, 3)), (2,))
    x = jnp.zeros((50, 3)).at[:, 2].set(jnp.linspace(-6.0, 6.0, 50))
    a = jax.vmap(lambda x: frame.coordinates(x, f(x, jnp.array([0.4, 0.7]))))(x)
    np.testing.assert_allclose(a, jnp.broadcast_to(a[0], a.shape), atol=1e-12)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_closed_form_is_the_march(system):
    x = np.random.default_rng(0).normal(size=(200, system.n))
    angles = tuple(system.state_names.index(name) for name in system.angles)
    mentions = np.any(np.asarray(jax.vmap(system.gamma)(jnp.asarray(x))) != 0, axis=0)[:, :-1]
    frame = tangent_frame(system.gamma, x, angles, mentions)
    assert frame.pattern is not None
    x = jax.random.uniform(jax.random.key(2), (300, system.n), minval=-3.0, maxval=3.0)
    for closed, marched in zip(jax.vmap(frame)(x), jax.vmap(frame.marched)(x), strict=True):
        np.testing.assert_allclose(closed, marched, atol=1e-11)


def test_a_closed_form_is_taken_only_where_it_is_the_march():
    system = unicycle()
    x = np.random.default_rng(0).normal(size=(200, 3))
    wrong = np.array([[True, False, False]])  # the row mentions py as well
    assert tangent_frame(system.gamma, x, (2,), wrong).pattern is None
    two_left = np.array([[True, True, True]])  # one row, two directions: no cross product
    assert tangent_frame(system.gamma, x, (2,), two_left).pattern is None


def test_a_row_that_vanishes_at_a_state_forbids_nothing_there():
    """x₀ (x₀' + x₁') = 0 says nothing at x₀ = 0; it was divided by its length."""

    def gamma(x):
        return jnp.stack([x[0], x[0], 0.0 * x[0], 0.0 * x[0]])[None]

    x = np.array([[0.0, 0.5, 0.1], [1.0, 0.0, 0.2]])
    basis = jnp.array([[0.5**0.5, 0.0], [-(0.5**0.5), 0.0], [0.0, 1.0]])
    assert find_turning(gamma, jnp.asarray(x[1]), basis, x, (2,)) is None

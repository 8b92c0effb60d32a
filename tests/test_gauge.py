"""The gauge of a tangent frame: what it is measured by and from, so that it says what is told."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.calls import at_each
from offmap.constraint import DictionaryConstraint, Library
from offmap.gauge import commanded_gauge
from offmap.systems import (
    bicycle,
    planar_quadrotor,
    quadrotor3d,
    rolling_disk,
    steered_car,
    trailer,
    unicycle,
)
from offmap.tangent import TangentFrame, tangent_frame

TRAILER, PLANAR, SPACE = trailer(), planar_quadrotor(), quadrotor3d()


def motions(system, count=300, noise=0.0):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (count, system.n))
    u = np.array(system.controls.sample(jax.random.key(1), count))
    xdot = np.asarray(jax.vmap(system.f)(x, u))
    return x, u, xdot + noise * xdot.std(axis=0) * rng.normal(size=xdot.shape)


def frames_of(system, noise=0.0):
    x, u, xdot = motions(system, noise=noise)
    angles = tuple(system.state_names.index(name) for name in system.angles)
    frame = tangent_frame(system.gamma, x, angles)
    return frame, commanded_gauge(frame, x, u, xdot)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.1])
def test_a_tractor_is_measured_without_its_trailer(noise):
    _, scaled = frames_of(TRAILER, noise)
    assert "psi" not in [TRAILER.state_names[i] for i in scaled.measured]
    x, u, xdot = motions(TRAILER)
    a = np.asarray(at_each(scaled.coordinates, x, xdot))
    np.testing.assert_allclose(np.abs(a), np.abs(u[:, ::-1]), atol=1e-12)


@pytest.mark.parametrize(
    "system",
    [unicycle(), bicycle(), rolling_disk()],
    ids=lambda system: system.name,
)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_where_all_states_measure_alike_all_of_them_do(system, noise):
    frame, scaled = frames_of(system, noise)
    assert scaled is frame


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_car_is_measured_by_its_speed_though_it_has_none_where_its_wheels_stand_across(noise):
    system = steered_car()
    x, u, _ = motions(system)
    x[:, 3] *= 0.5
    clean = np.asarray(jax.vmap(system.f)(x, u))
    xdot = clean + noise * clean.std(axis=0) * np.random.default_rng(3).normal(size=clean.shape)
    mentions = np.any(np.asarray(jax.vmap(system.gamma)(x))[:, :, :-1] != 0, axis=0)
    frame = tangent_frame(system.gamma, x, (2, 3), mentions)
    scaled = commanded_gauge(frame, x, u, xdot)
    assert scaled.measured == (0, 1, 3)
    a = np.asarray(at_each(scaled.coordinates, x, clean))
    np.testing.assert_allclose(np.abs(a), np.abs(u), atol=1e-12)


def test_coordinates_and_columns_still_make_up_the_motion():
    _, frame = frames_of(TRAILER)
    x, u = jnp.asarray(motions(TRAILER)[0]) * 3, motions(TRAILER)[1]
    xdot = jax.vmap(TRAILER.f)(x, u)
    basis, drift = at_each(frame, x)
    a = at_each(frame.coordinates, x, xdot)
    np.testing.assert_allclose(drift + jnp.einsum("bnr,br->bn", basis, a), xdot, atol=1e-12)
    across = np.asarray(jnp.einsum("bnr,bns->brs", basis, basis))[:, ~np.eye(2, dtype=bool)]
    np.testing.assert_allclose(across, 0, atol=1e-12)


def test_what_lies_outside_the_tangent_space_is_left_out_as_before():
    """Least squares over all rates: what a trailer shows of its tractor's speed is used."""
    frame, scaled = frames_of(TRAILER)
    x, _, xdot = motions(TRAILER, noise=0.1)

    def motion(frame: TangentFrame):
        basis, drift = at_each(frame, x)
        return drift + jnp.einsum("bnr,br->bn", basis, at_each(frame.coordinates, x, xdot))

    np.testing.assert_allclose(motion(scaled), motion(frame), atol=1e-12)


def test_a_tractor_at_constant_speed_is_measured_without_its_trailer_too():
    x, u, _ = motions(TRAILER)
    u[:, 1] = 0.8
    angles = tuple(TRAILER.state_names.index(name) for name in TRAILER.angles)
    frame = tangent_frame(TRAILER.gamma, x, angles)
    scaled = commanded_gauge(frame, x, u, np.asarray(jax.vmap(TRAILER.f)(x, u)))
    assert 3 not in scaled.measured and scaled.measured


def test_a_direction_that_comes_near_vanishing_is_no_guide():
    library = Library(("a", "b"), ())
    weights = np.zeros((1, 3, 3))
    weights[0, 2, 0], weights[0, 1, 1] = 1.0, -1.0  # b a' − a b' = 0: along (a, b)
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    x = np.random.default_rng(0).normal(size=(200, 2))
    u = np.random.default_rng(1).normal(size=(200, 1))
    mentions = np.ones((1, 2), dtype=bool)
    for there, guides in ((np.array([0, 0]), False), (np.array([30, 0]), True)):
        seen = x + there
        frame = tangent_frame(gamma, seen, (), mentions)
        found = commanded_gauge(frame, seen, u, u * seen, mentions)
        assert (found.guide is not None) == guides


def test_a_term_that_the_data_do_not_have_is_no_obstacle():
    library = Library(("a", "b"), ())
    weights = np.zeros((1, 3, 3))
    weights[0, 0, 1], weights[0, 2, 0] = 1.0, -1.0  # b' = b a', and b is 0
    gamma = DictionaryConstraint(library, jnp.asarray(weights))
    x = np.random.default_rng(0).normal(size=(50, 2)) * [1, 0]
    u = np.random.default_rng(1).normal(size=(50, 1))
    mentions = np.ones((1, 2), dtype=bool)
    frame = tangent_frame(gamma, x, (), mentions)
    assert commanded_gauge(frame, x, u, u * [1.0, 0.0], mentions).guide is None


def test_a_state_that_alone_moves_along_a_direction_measures_it():
    """However little the controls explain of it: a column of length 0 has no coordinate."""
    x, u, xdot = motions(TRAILER)
    angles = tuple(TRAILER.state_names.index(name) for name in TRAILER.angles)
    frame = tangent_frame(TRAILER.gamma, x, angles)
    xdot[:, 2] = np.random.default_rng(1).normal(size=len(xdot))
    scaled = commanded_gauge(frame, x, u, xdot)
    assert 2 in (scaled.measured or range(4))
    basis, _ = at_each(scaled, x)
    assert np.all(np.isfinite(np.asarray(basis)))


def hitched(behind):
    """A tractor that pulls a trailer by a hitch behind its axle, in closed form and with noise."""

    def f(x, u):
        _, _, theta, psi = x
        swing = u[1] * jnp.sin(theta - psi) - behind * u[0] * jnp.cos(theta - psi)
        return jnp.stack([u[1] * jnp.cos(theta), u[1] * jnp.sin(theta), u[0], swing / 0.8])

    def gamma(x):
        _, _, theta, psi = x
        along = behind * jnp.cos(theta - psi)
        first = jnp.array([1.0, 0, 0, 0, 0]) * jnp.sin(theta)
        first = first.at[1].set(-jnp.cos(theta))
        second = jnp.stack([jnp.sin(psi), -jnp.cos(psi), along, 0.8 + 0 * psi, 0 * psi])
        return jnp.stack([first, second])

    return f, gamma


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_trailer_follows_its_tractor_where_its_rate_is_of_speed_and_turn_at_once(noise):
    f, gamma = hitched(0.3)
    rng = np.random.default_rng(0)
    x, u = rng.uniform(-1, 1, (300, 4)), rng.uniform([-0.5, 0], [0.5, 1.5], (300, 2))
    clean = np.asarray(jax.vmap(f)(x, u))
    xdot = clean + noise * clean.std(axis=0) * rng.normal(size=clean.shape)
    mentions = np.array([[True, True, False, False], [True, True, True, True]])
    frame = tangent_frame(gamma, x, (2, 3), mentions)
    led = commanded_gauge(frame, x, u, xdot, mentions)
    assert led.pattern.follows == ((1, 3),)
    far = rng.uniform(-9, 9, (300, 4))
    motion = np.asarray(jax.vmap(f)(far, u))
    a = np.asarray(at_each(led.coordinates, far, motion))
    np.testing.assert_allclose(np.abs(a), np.abs(u), atol=1e-12)
    basis, drift = at_each(led, far)
    np.testing.assert_allclose(drift + np.einsum("bnr,br->bn", basis, a), motion, atol=1e-12)
    plain = np.asarray(at_each(frame.coordinates, far, motion))
    straight = u @ np.linalg.lstsq(u, plain, rcond=None)[0]
    assert np.max(np.abs(straight - plain)) > 0.1, "the orthonormal frame already says the commands"


def test_a_row_that_vanishes_is_not_followed():
    """x₀ x₁' = x₂' says no rate of x₁ where x₀ = 0; that of x₂ it says everywhere."""

    def gamma(x):
        return jnp.stack([0 * x[0], x[0], -1 + 0 * x[0], 0 * x[0]])[None]

    rng = np.random.default_rng(0)
    x, u = rng.uniform(-1, 1, (200, 3)), rng.uniform(-1, 1, (200, 2))
    xdot = np.stack([u[:, 0], u[:, 1], x[:, 0] * u[:, 1]], axis=1)
    mentions = np.array([[False, True, True]])
    frame = tangent_frame(gamma, x, (), mentions)
    led = commanded_gauge(frame, x, u, xdot, mentions)
    a = np.asarray(at_each(led.coordinates, x, xdot))
    np.testing.assert_allclose(np.abs(a), np.abs(u), atol=1e-9)
    assert all(state != 1 for _, state in led.pattern.follows)


# --- from where


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_a_quadrotor_is_measured_from_free_fall(noise):
    x, u, xdot = motions(PLANAR, noise=noise)
    mentions = np.any(np.asarray(jax.vmap(PLANAR.gamma)(x))[:, :, :-1] != 0, axis=0)
    frame = tangent_frame(PLANAR.gamma, x, (2,), mentions)
    falling = commanded_gauge(frame, x, u, xdot)
    assert not falling.measured
    np.testing.assert_allclose(falling.pull[3:5], [0, -9.81], atol=1e-9)
    far = np.random.default_rng(2).uniform(-9, 9, x.shape)
    motion = np.asarray(jax.vmap(PLANAR.f)(far, u))
    a = np.asarray(at_each(falling.coordinates, far, motion))
    straight = np.concatenate([u, np.ones((len(u), 1))], axis=1)
    _, left, *_ = np.linalg.lstsq(straight, a, rcond=None)
    np.testing.assert_allclose(left, 0, atol=1e-18)  # of the controls alone, in any attitude
    basis, drift = at_each(falling, far)
    np.testing.assert_allclose(drift + np.einsum("bnr,br->bn", basis, a), motion, atol=1e-9)


# --- which way


def cross_rows():
    """That v' + g is along the body's axis, by two rows that vanish where this is level."""
    library = Library(
        SPACE.state_names, (), (), tuple((i, j) for i in range(4, 8) for j in range(4, 8) if i <= j)
    )
    place = {label: k for k, label in enumerate(library.labels)}
    up = [
        {"qx·qz": 2.0, "qw·qy": 2.0},
        {"qy·qz": 2.0, "qw·qx": -2.0},
        {"qw²": 1.0, "qx²": -1.0, "qy²": -1.0, "qz²": 1.0},
    ]
    weights = np.zeros((9, len(library.labels), 14))
    for k in range(3):  # p' = v
        weights[k, 0, k], weights[k, place[SPACE.state_names[7 + k]], 13] = 1.0, -1.0
    for k in range(4):  # stand-ins, as this is about the last two rows
        weights[3 + k, 0, 3 + k] = 1.0
    for row, side in ((7, 0), (8, 1)):
        for label, weight in up[2].items():
            weights[row, place[label], 7 + side] += weight
        for label, weight in up[side].items():
            weights[row, place[label], 9] -= weight
            weights[row, place[label], 13] -= 9.81 * weight
    return DictionaryConstraint(library, jnp.asarray(weights))


def test_thrust_keeps_its_sense_where_equations_vanish():
    gamma = cross_rows()
    rng = np.random.default_rng(0)
    x = 0.3 * rng.normal(size=(300, 13))
    x[:, 3:7] = [1, 0, 0, 0] + 0.1 * rng.normal(size=(300, 4))  # upright, more or less
    u = np.asarray(SPACE.controls.sample(jax.random.key(0), 300))
    xdot = np.array(jax.vmap(SPACE.f)(x, u))
    xdot[:, 3:7] = 0
    mentions = np.any(np.asarray(gamma.weights)[:, :, :-1] != 0, axis=1)
    plain = tangent_frame(gamma, x, (), mentions)
    frame = commanded_gauge(plain, x, u, xdot, mentions)
    assert frame.guide is not None
    over = x.copy()
    over[:, 3:7] = rng.normal(size=(300, 4))  # any attitude, and any length of q
    motion = np.array(jax.vmap(SPACE.f)(over, u))
    motion[:, 3:7] = 0
    column = frame.guide.column
    a = np.asarray(at_each(frame.coordinates, over, motion))[:, column]
    np.testing.assert_allclose(a / u[:, 0], np.full(300, a[0] / u[0, 0]), rtol=1e-6)
    assert a[0] / u[0, 0] > 0
    side = np.array(x[0])
    side[3:7] = [np.sqrt(0.5), np.sqrt(0.5), 0, 0]  # where both rows vanish
    assert np.all(np.isfinite(np.asarray(frame(jnp.asarray(side))[0])))
    unguided = replace(frame, guide=None)
    turned = np.asarray(at_each(unguided.coordinates, over, motion))[:, column]
    assert np.any(turned < 0), "without a guide, thrust turns about where the rows vanish"

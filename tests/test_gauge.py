"""Which states a tangent frame is measured by: those whose rates are commanded."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.calls import at_each
from offmap.gauge import commanded_gauge
from offmap.systems import bicycle, planar_quadrotor, rolling_disk, trailer, unicycle
from offmap.tangent import TangentFrame, tangent_frame

TRAILER = trailer()


def motions(system, count=300, noise=0.0):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, (count, system.n))
    u = np.asarray(system.controls.sample(jax.random.key(1), count))
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
    [unicycle(), planar_quadrotor(), bicycle(), rolling_disk()],
    ids=lambda system: system.name,
)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_where_all_states_measure_alike_all_of_them_do(system, noise):
    frame, scaled = frames_of(system, noise)
    assert scaled is frame


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


def test_a_state_that_alone_moves_along_a_direction_measures_it():
    """However little the controls explain of it: a column of length 0 has no coordinate."""
    x, u, xdot = motions(TRAILER)
    angles = tuple(TRAILER.state_names.index(name) for name in TRAILER.angles)
    frame = tangent_frame(TRAILER.gamma, x, angles)
    xdot[:, 2] = np.random.default_rng(1).normal(size=len(xdot))
    scaled = commanded_gauge(frame, x, u, xdot)
    assert 2 in (scaled.measured or range(4))
    basis, _ = at_each(replace(scaled), x)
    assert np.all(np.isfinite(np.asarray(basis)))

"""A constraint is doubted where what it leaves of motions is no noise."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint.doubt import misfit
from offmap.data import Samples
from offmap.systems import planar_quadrotor, slipping_unicycle, unicycle
from offmap.systems.wheeled import no_side_slip

NOISE = 0.004


def motions(system, seed, count=500):
    """Noisy samples of a system."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, system.n))
    u = np.asarray(system.controls.sample(jax.random.key(seed), count))
    xdot = np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))
    noisy = xdot + NOISE * rng.normal(size=xdot.shape)
    return Samples(x, u, noisy, np.zeros(count, int), np.zeros(count, int))


@pytest.mark.parametrize("system", [unicycle(), planar_quadrotor()], ids=lambda s: s.name)
def test_noise_is_no_misfit(system):
    for seed in range(3):
        np.testing.assert_array_equal(misfit(system.gamma, motions(system, seed)), 0)


def test_a_wheel_that_slips_is_seen_by_as_much_as_it_slips():
    samples = motions(slipping_unicycle(), 0)
    slip = np.sqrt(np.mean((0.3 * samples.u[:, 0] * samples.u[:, 1]) ** 2))
    assert misfit(no_side_slip, samples)[0] == pytest.approx(slip, rel=0.1)


def test_round_off_is_no_misfit():
    exact = motions(unicycle(), 0)
    xdot = np.asarray(jax.vmap(unicycle().f)(jnp.asarray(exact.x), jnp.asarray(exact.u)))
    assert misfit(unicycle().gamma, replace(exact, xdot=xdot))[0] == 0

"""A constraint is doubted where what it leaves of motions is no noise."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint import DictionaryConstraint, Library
from offmap.constraint.doubt import misfit, weight_doubt
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


def test_weights_of_equal_size_are_doubted_together_and_the_largest_not_at_all():
    system = planar_quadrotor()
    samples = motions(system, 0)
    library = Library(system.state_names, (2,), (2,))
    labels, names = list(library.labels), list(system.state_names)
    one, phi = labels.index(""), labels.index("sin(phi)")
    row = np.zeros((2, len(labels), system.n + 1))
    row[0, one, names.index("px")], row[0, labels.index("vx"), -1] = 1.0, -1.0  # px' − vx
    row[1, phi, -1] = 1.0
    row[1, phi, names.index("vz")] = row[1, labels.index("cos(phi)"), names.index("vx")] = 1 / 9.81
    gamma = DictionaryConstraint(library, jnp.asarray(row))
    (direction,) = weight_doubt(gamma, samples.x, samples.xdot)
    assert np.all(direction[0] == 0) and direction[1, phi, -1] == 0
    moved = direction[1][row[1] == 1 / 9.81]
    assert moved[0] == moved[1] != 0
    # Its size is the standard error of least squares on the pair together.
    pair = np.sin(samples.x[:, 2]) * samples.xdot[:, names.index("vz")]
    pair = pair + np.cos(samples.x[:, 2]) * samples.xdot[:, names.index("vx")]
    residual = np.sin(samples.x[:, 2]) + pair / 9.81
    expected = np.sqrt(np.sum(pair**2 * residual**2)) / np.sum(pair**2)
    assert abs(moved[0]) == pytest.approx(expected, rel=1e-9)

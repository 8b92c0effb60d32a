"""Learned dynamics: fitting and then folding in equals fitting on everything."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.data import Samples
from offmap.dynamics import fit_dynamics, update_dynamics
from offmap.gp import GPConfig
from offmap.pseudometric import Reduction
from offmap.systems import unicycle

OFFLINE, ONLINE = 60, 20
CONFIG = GPConfig()
SYSTEM = unicycle()
NAMES = SYSTEM.state_names + SYSTEM.control_names
RETAINED = Reduction(jnp.eye(5)[2:], NAMES[2:])


def draw(seed, count, source, noise=0.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform([-10, -10, -1], [10, 10, 1], (count, 3))
    u = rng.uniform([-0.2, 0.0], [0.2, 1.5], (count, 2))
    xdot = np.asarray(jax.vmap(SYSTEM.f)(jnp.asarray(x), jnp.asarray(u)))
    return Samples(
        x,
        u,
        xdot + noise * rng.normal(size=xdot.shape),
        source=np.full(count, source),
        trajectory=np.zeros(count, dtype=int),
    )


def joined(*parts):
    return Samples(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("x", "u", "xdot", "source", "trajectory")
        )
    )


offline = draw(0, OFFLINE, 0, 0.02)
online, later = draw(1, ONLINE, 1, 0.3), draw(2, ONLINE, 2, 0.05)
everything = joined(online, offline, later)


def fit(samples, config=CONFIG, reduction=RETAINED):
    return fit_dynamics(samples, reduction, key=jax.random.key(0), config=config)


def update(dynamics, samples, config=CONFIG):
    return update_dynamics(dynamics, samples, 0, config=config)


@eqx.filter_jit
def mean_and_variance(dynamics, x, u):
    return jax.vmap(dynamics)(x, u), jax.vmap(dynamics.variance)(x, u)


def predict(dynamics):
    test = draw(9, 10, 0)
    return mean_and_variance(dynamics, jnp.asarray(test.x), jnp.asarray(test.u))


def assert_equal_posteriors(first, second):
    for ours, theirs in zip(predict(first), predict(second), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.fixture(scope="module")
def from_offline():
    return fit(offline)


@pytest.fixture(scope="module")
def from_everything():
    return fit(everything)


def test_dynamics_are_learned_on_retained_inputs(from_offline):
    test = draw(9, 10, 0)
    mean, variance = predict(from_offline)
    np.testing.assert_allclose(mean, test.xdot, atol=0.05)
    assert (np.abs(mean - test.xdot) < 5 * np.sqrt(variance) + 1e-3).all()
    # Position was dropped, so moving the robot changes nothing.
    x, u = jnp.asarray(test.x[0]), jnp.asarray(test.u[0])
    np.testing.assert_array_equal(
        from_offline(x + jnp.array([1e3, -1e3, 0.0]), u), from_offline(x, u)
    )


def test_fit_then_update_equals_fit_on_everything(from_offline, from_everything):
    updated = update(from_offline, everything)
    jax.tree.map(
        np.testing.assert_array_equal, updated.regressor.kernel, from_everything.regressor.kernel
    )
    np.testing.assert_allclose(
        updated.regressor.alpha, from_everything.regressor.alpha, rtol=1e-10, atol=1e-10
    )
    assert_equal_posteriors(updated, from_everything)
    before, after = predict(from_offline)[1], predict(updated)[1]
    assert (after < before).all()


def test_updating_step_by_step_equals_updating_at_once(from_offline, from_everything):
    first = update(from_offline, joined(offline, online))
    assert_equal_posteriors(update(first, everything), from_everything)


def test_update_learns_the_noise_of_each_further_source(from_everything):
    gps = from_everything.regressor
    levels = np.sqrt(gps.noise) * np.asarray(gps.scaling.y_scale)[:, None]
    np.testing.assert_allclose(levels[:, OFFLINE], 0.3, rtol=0.5)
    np.testing.assert_allclose(levels[:, OFFLINE + ONLINE], 0.05, rtol=0.5)


def test_update_leaves_the_factor_of_the_primary_source_alone(from_offline):
    updated = update(from_offline, everything)
    jax.tree.map(np.testing.assert_array_equal, updated.regressor.base, from_offline.regressor.base)


def test_update_with_shared_noise_counts_no_sample_twice():
    shared = replace(CONFIG, noise="shared")
    known = joined(draw(0, OFFLINE - ONLINE, 0), online)
    updated = update(fit(known, shared), joined(known, later), shared)
    assert updated.regressor.x.shape[0] == len(known) + len(later)


def test_update_takes_further_samples_of_the_primary_source(from_offline):
    more = joined(offline, draw(3, ONLINE, 0))
    updated = update(from_offline, more)
    assert updated.regressor.x.shape[0] == len(more)

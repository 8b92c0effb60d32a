"""Angles as (sin, cos): periodic, named, and owned by their input."""

import jax.numpy as jnp
import numpy as np

from offmap.features import Features
from offmap.pseudometric import Pseudometric, Reduction, retained_inputs

FEATURES = Features(("px", "theta", "v"), (1,))


def test_a_full_turn_changes_nothing():
    z = jnp.array([1.0, 0.3, 2.0])
    np.testing.assert_allclose(FEATURES(z), FEATURES(z.at[1].add(2 * jnp.pi)), atol=1e-15)
    np.testing.assert_allclose(FEATURES(z), [1.0, np.sin(0.3), np.cos(0.3), 2.0])


def test_names_and_owners():
    assert FEATURES.names == ("px", "sin(theta)", "cos(theta)", "v")
    assert FEATURES.owner == (0, 1, 1, 2)


def test_an_angle_is_kept_whole_if_one_of_its_features_matters():
    weights = jnp.diag(jnp.array([0.0, 0.01, 0.9, 1.0]))
    metric = Pseudometric(weights, jnp.ones(4), jnp.zeros(1), True, FEATURES.names)
    reduction = retained_inputs(metric, 0.05, FEATURES)
    assert reduction.names == ("theta", "v")
    np.testing.assert_allclose(
        reduction(jnp.array([7.0, 0.3, 2.0])), [np.sin(0.3), np.cos(0.3), 2.0]
    )
    assert metric.input_weights == {"px": 0.0, "theta": 0.9, "v": 1.0}
    assert reduction.rows_of(range(2, 3)) == (2,)


def test_everything_keeps_all_features():
    reduction = Reduction.everything(FEATURES.raw_names, FEATURES)
    assert reduction.names == FEATURES.raw_names
    assert reduction(jnp.zeros(3)).shape == (4,)

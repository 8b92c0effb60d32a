"""The search for equations with many states, and with velocities that are mostly noise."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint import dictionary, search
from offmap.constraint.dictionary import discover, equation_of
from offmap.constraint.library import Library
from offmap.constraint.steerable import Standard, _explained

JOINTS = 4


def arm(noise, seed=0, samples=400):
    """Joints q with velocities w: q' = w up to noise; w' is torque and far more noise."""
    rng = np.random.default_rng(seed)
    q, w = rng.uniform(-1, 1, (2, samples, JOINTS))
    tau = rng.normal(size=(samples, JOINTS))
    xdot = np.c_[w + noise * rng.normal(size=w.shape), 0.3 * tau + rng.normal(size=w.shape)]
    names = tuple(f"{letter}{i}" for letter in "qw" for i in range(JOINTS))
    library = Library(names, tuple(range(JOINTS)), tuple(range(JOINTS)))
    features = np.asarray(jax.vmap(library)(jnp.asarray(np.c_[q, w])))
    return library, features, xdot, tau, np.array([noise] * JOINTS + [1.0] * JOINTS)


def test_what_columns_explain_is_the_projection_onto_their_span():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(80, 6)) @ rng.normal(size=(6, 12)) * np.logspace(-6, 6, 12)
    columns[:, 3] = 0.0
    residual = rng.normal(size=80)
    basis = np.linalg.svd(columns / np.linalg.norm(columns, axis=0).clip(1e-300))[0][:, :6]
    explained, rank = _explained(columns, residual)
    assert rank == 6
    np.testing.assert_allclose(explained, np.sum((basis.T @ residual) ** 2), rtol=1e-9)


def test_what_is_kept_does_not_depend_on_how_many_are_examined_at_once(monkeypatch):
    library, *data = arm(0.05)
    rows = discover(library, *data).rows
    monkeypatch.setattr(dictionary, "_BATCH", 3)
    again = discover(library, *data).rows
    np.testing.assert_array_equal([row.weights for row in rows], [row.weights for row in again])


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_joint_velocities_are_found_and_noise_is_no_constraint(noise):
    library, *data = arm(noise)
    rows = discover(library, *data).rows
    number = r"([\d.]+(\(±[\d.]+\))?·)?"
    for i in range(JOINTS):
        shape = re.compile(rf"{number}q{i}' − {number}w{i} = 0")
        assert sum(bool(shape.fullmatch(equation_of(row, library).text)) for row in rows) == 1
    assert len(rows) == JOINTS


@pytest.mark.parametrize("seed", range(3))
def test_a_law_is_not_rejected_for_a_better_one_that_follows_from_it(seed):
    # The velocity is logged too large, by a factor of its own in each flight but the same for both
    # axes: the direction of travel, vx py' = vy px', is obeyed far better than p' = v is.
    rng = np.random.default_rng(seed)
    flights = np.repeat(np.arange(12), 40)
    p, v, u = rng.uniform(-1, 1, (3, len(flights), 2))
    factor = 1.1 + 0.1 * rng.normal(size=12)[flights, None]
    xdot = np.c_[v / factor, 5 * u] + 0.005 * rng.normal(size=(len(flights), 4))
    library = Library(("px", "py", "vx", "vy"), (0, 1, 2, 3))
    features = np.asarray(jax.vmap(library)(jnp.asarray(np.c_[p, v])))
    noise = np.array([0.05, 0.05, 0.05, 0.05])
    standard = Standard(effect=0.5, matters=0.1)
    rows = discover(library, features, xdot, u, noise, groups=flights, standard=standard).rows
    number = r"([\d.]+(\(±[\d.]+\))?·)?"
    for axis in "xy":
        shape = re.compile(rf"{number}p{axis}' − {number}v{axis} = 0")
        assert sum(bool(shape.fullmatch(equation_of(row, library).text)) for row in rows) == 1
    assert len(rows) == 2


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_supports_are_tried_or_the_best_smaller_ones_extended(monkeypatch, size):
    active = np.array([0, 2, 3, 5, 8, 9])
    smaller = np.array([[0, 2], [5, 9]])[:, : size - 1]
    everything = {tuple(support) for support in search._supports(active, size, smaller).tolist()}
    assert len(everything) == [6, 15, 20][size - 1]
    monkeypatch.setattr(search, "_MOST", 5)
    some = {tuple(support) for support in search._supports(active, size, smaller).tolist()}
    assert some == {
        support for support in everything if any(set(s) <= set(support) for s in smaller.tolist())
    }

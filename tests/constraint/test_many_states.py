"""The search for equations with many states, and with velocities that are mostly noise."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint import dictionary
from offmap.constraint.dictionary import Library, discover, equation_of

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


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_joint_velocities_are_found_and_noise_is_no_constraint(noise):
    library, *data = arm(noise)
    rows = discover(library, *data)
    number = r"([\d.]+(\(±[\d.]+\))?·)?"
    for i in range(JOINTS):
        shape = re.compile(rf"{number}q{i}' − {number}w{i} = 0")
        assert sum(bool(shape.fullmatch(equation_of(row, library).text)) for row in rows) == 1
    assert len(rows) == JOINTS


def search_of(noise):
    _, features, xdot, _, level = arm(noise, samples=100)
    return dictionary._search(features, xdot, level)


def test_no_support_within_tolerance_is_screened_out():
    search = search_of(0.05)
    triples = np.random.default_rng(1).integers(0, len(search.gram), (20_000, 3))
    triples = np.sort(triples, axis=1)
    triples = triples[np.all(np.diff(triples, axis=1) > 0, axis=1)].astype(np.int32)
    # Half of them with a pair that is obeyed, so that there is something to lose.
    for i in range(JOINTS):
        pair = np.flatnonzero((search.column == i) & (search.function == 0))[0]
        triples[i::8, 0] = pair
        triples[i::8, 1] = np.flatnonzero(
            (search.column == 2 * JOINTS) & (search.function == 1 + i)
        )[0]
    kept = dictionary._may_be_obeyed(search, triples, 3.0)
    ratio, _ = dictionary._least_ratio(search, triples)
    assert np.sum(ratio <= 3.0) > 100
    assert np.all(kept[ratio <= 3.0])
    assert np.mean(kept[ratio > 6.0]) < 0.1  # and it is worth its while


@pytest.mark.parametrize("size", [1, 2, 3])
def test_supports_come_in_blocks_and_all_of_them(monkeypatch, size):
    monkeypatch.setattr(dictionary, "_BLOCK", 7)
    active = np.array([0, 2, 3, 5, 8, 9])
    blocks = [*dictionary._supports(active, size)]
    assert max(map(len, blocks)) <= 7
    together = {tuple(support) for block in blocks for support in block.tolist()}
    assert len(together) == sum(map(len, blocks)) == [6, 15, 20][size - 1]

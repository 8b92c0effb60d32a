"""Laws with products of two states: quaternions, axes of a body, nothing where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint import DictionaryConstraint
from offmap.constraint.angle import largest_angle
from offmap.constraint.dictionary import ShortLaws, equation_of, inputs_of
from offmap.constraint.library import Library
from offmap.constraint.regression import search_problem
from offmap.constraint.second_order import discover_products
from offmap.constraint.ties import one_size
from offmap.constraint.weights import DictionaryRow
from offmap.systems import quadrotor3d, slipping_unicycle

NOTHING = ShortLaws([], np.zeros(3, dtype=bool))


def states_of(system, count, rng, scale=1.0):
    x = rng.uniform(-scale, scale, (count, system.n))
    if system.name == "quadrotor3d":
        x[:, 3:7] = np.c_[np.ones(count), 0.5 * x[:, 4:7]]
    return np.array(jax.vmap(system.normalise)(jnp.asarray(x)))


def measured(system, count=700, noise=0.0, seed=0):
    """Samples of a system with noise on states and velocities alike, and its library."""
    rng = np.random.default_rng(seed)
    x = states_of(system, count, rng)
    u = np.asarray(system.controls.sample(jax.random.key(seed), count))
    xdot = np.array(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))
    spread = xdot.std(axis=0)
    x = x + noise * x.std(axis=0) * rng.normal(size=x.shape)
    xdot = xdot + noise * spread * rng.normal(size=xdot.shape)
    angles = tuple(system.state_names.index(name) for name in system.angles)
    return x, u, xdot, 1.4 * max(noise, 1e-5) * spread, Library(system.state_names, angles, angles)


def values_of(library, x):
    return np.asarray(jax.vmap(library)(jnp.asarray(x)))


def gamma_of(library, rows):
    return DictionaryConstraint(library, jnp.asarray(np.stack([row.weights for row in rows])))


def slopes_of(system, x, u):
    """Which states each velocity depends on, from the true f."""
    slopes = np.asarray(jax.vmap(jax.jacfwd(system.f))(jnp.asarray(x), jnp.asarray(u)))
    return np.mean(slopes**2, axis=0) > 1e-9


@pytest.mark.parametrize(
    ("noise", "most", "dropped"),
    [
        pytest.param(0.0, 1e-10, None, marks=pytest.mark.slow),
        (0.01, 1e-3, None),
        (0.01, 1e-3, "qw"),
    ],
)
def test_all_nine_laws_of_a_quadrotor_in_space_are_found(noise, most, dropped):
    """Also where it was not seen that anything depends on a part of the quaternion."""
    system = quadrotor3d()
    x, u, xdot, level, library = measured(system, noise=noise)
    known = []
    for j in range(3):  # px' = vx: found without products
        weights = np.zeros((len(library.labels), system.n + 1))
        weights[0, j], weights[1 + 7 + j, -1] = 1.0, -1.0
        known.append(DictionaryRow(weights, np.zeros_like(weights), 1.0))
    depends = slopes_of(system, x, u)
    depends[:, [name == dropped for name in system.state_names]] = False
    short = ShortLaws(known, np.arange(system.n) < 3)
    found, rows = discover_products(library, values_of(library, x), xdot, u, level, short, depends)
    elsewhere = states_of(system, 200, np.random.default_rng(9))
    true = np.asarray(jax.vmap(system.gamma)(jnp.asarray(elsewhere)))
    mine = np.asarray(jax.vmap(gamma_of(found, rows))(jnp.asarray(elsewhere)))
    assert mine.shape == true.shape
    assert largest_angle(mine, true) < most
    texts = [equation_of(row, found).text for row in rows]
    assert "qw' + 0.5·qx·wx + 0.5·qy·wy + 0.5·qz·wz = 0" in texts
    assert inputs_of(rows[3], found) == ("qx", "qy", "qz", "wx", "wy", "wz")


def hovercraft(count, noise, seed=0):
    """Surge p, sway s and turn rate r of a body with one thrust and one moment: s' = −p r − ½ s."""
    rng = np.random.default_rng(seed)
    x, u = rng.uniform(-1, 1, (count, 3)), rng.uniform(-1, 1, (count, 2))
    p, s, r = x.T
    xdot = np.stack([u[:, 0] + s * r, -p * r - 0.53 * s, u[:, 1]], axis=1)
    return x, u, xdot + noise * rng.normal(size=xdot.shape)


@pytest.mark.parametrize("noise", [1e-6, 0.02])
def test_a_body_that_nothing_pushes_sideways(noise):
    x, u, xdot = hovercraft(500, noise)
    library = Library(("p", "s", "r"), (0, 1, 2))
    found, rows = discover_products(
        library,
        values_of(library, x),
        xdot,
        u,
        np.full(3, noise),
        NOTHING,
        np.ones((3, 3), dtype=bool),
    )
    assert len(rows) == 1
    assert found.pairs == ((1, 3),)
    entries = {(found.labels[k], j): rows[0].weights[k, j] for k, j in np.argwhere(rows[0].weights)}
    assert entries["", 1] == entries["p·r", 3] == 1.0
    assert entries["s", 3] == pytest.approx(0.53, abs=max(4 * rows[0].standard_errors.max(), 1e-6))


def test_what_a_control_moves_and_what_slips_has_no_law():
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(400, 3)), rng.normal(size=(400, 2))
    xdot = np.stack([u[:, 0], u[:, 1], u[:, 0] * u[:, 1]], axis=1)
    library = Library(("a", "b", "c"), ())
    found, rows = discover_products(
        library,
        values_of(library, x),
        xdot,
        u,
        np.full(3, 1e-3),
        NOTHING,
        np.ones((3, 3), dtype=bool),
    )
    assert rows == []
    assert found == library
    noise = rng.normal(size=(400, 3))  # of noise alone, a sum near 0 is no law
    found, rows = discover_products(
        library, values_of(library, x), noise, u, np.ones(3), NOTHING, np.ones((3, 3), dtype=bool)
    )
    assert rows == []
    system = slipping_unicycle()
    x, u, xdot, level, library = measured(system, noise=0.01)
    values, everything = values_of(library, x), np.ones((3, 3), dtype=bool)
    assert discover_products(library, values, xdot, u, level, NOTHING, everything)[1] == []


def test_known_laws_stay_and_their_multiples_are_none():
    """sin θ ṗx = cos θ ṗy is known: nor is it another law times p, nor one of the turned frame."""
    rng = np.random.default_rng(0)
    x, u = rng.uniform(-1, 1, (500, 4)), rng.uniform(-1, 1, (500, 1))
    theta, v = x[:, 2], u[:, 0]
    free = rng.normal(size=500)
    xdot = np.stack([v * np.cos(theta), v * np.sin(theta), free, rng.normal(size=500)], axis=1)
    library = Library(("px", "py", "theta", "z"), (2,), (2,))
    weights = np.zeros((len(library.labels), 5))
    weights[library.labels.index("sin(theta)"), 0] = 1.0
    weights[library.labels.index("cos(theta)"), 1] = -1.0
    known = [DictionaryRow(weights, np.zeros_like(weights), 0.5)]
    found, rows = discover_products(
        library,
        values_of(library, x),
        xdot,
        u,
        np.full(4, 1e-5),
        ShortLaws(known, np.zeros(4, dtype=bool)),
        np.ones((4, 4), dtype=bool),
    )
    assert len(rows) == 1
    assert found == library
    np.testing.assert_array_equal(rows[0].weights, weights)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_weights_of_one_size_become_one_term(noise):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(600, 5))
    y = -(values @ np.array([1.0, -1.0, 0.5, 0.37, -0.74]))
    xdot = (y + noise * rng.normal(size=600))[:, None]
    features = np.c_[np.ones(600), values]
    terms = np.zeros((6, 6, 2))
    terms[0, 0, 0] = 1.0
    terms[np.arange(1, 6), np.arange(1, 6), 1] = 1.0
    level = np.array([max(noise, 1e-6)])
    search = search_problem(terms, features, xdot, level, np.zeros((0, 600), dtype=bool))
    law = one_size(search, np.arange(6), np.arange(600))
    patterns = sorted((np.abs(part).sum(axis=1) / np.abs(part).max()).tolist() for part in law)
    assert patterns == [[0, 0, 0, 0, 0.5, 1], [1, 1, 1, 0.5, 0, 0]]


def test_labels_and_states_of_products():
    library = Library(("x", "theta"), (1,), (1,), ((1, 1), (1, 2), (2, 3)))
    assert library.labels[4:] == ("x²", "x·sin(theta)", "sin(theta)·cos(theta)")
    assert [set(states) for states in library.states[4:]] == [{0}, {0, 1}, {1}]
    assert [set(states) for states in library.straight[4:]] == [{0}, {0}, set()]
    x, theta = 0.7, 0.3
    s, c = np.sin(theta), np.cos(theta)
    np.testing.assert_allclose(
        library(jnp.array([x, theta])), [1, x, s, c, x * x, x * s, s * c], rtol=1e-15
    )

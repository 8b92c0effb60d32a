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
    given = library, values, xdot, u, level, NOTHING, everything
    assert discover_products(*given)[1] == []
    assert discover_products(*given, order=3)[1] == []


def slides_on_a_beam(rng, count, noise):
    """A ball at r on a beam that turns by θ at the rate w: v' = r w² − g sin θ."""
    x, u = rng.uniform(-1, 1, (count, 4)), rng.uniform(-1, 1, (count, 1))
    r, v, theta, w = x.T
    xdot = np.stack([v, r * w**2 - 9.81 * np.sin(theta), w, u[:, 0]], axis=1)
    return x, u, xdot + noise * xdot.std(axis=0) * rng.normal(size=xdot.shape)


def arm_without_a_shoulder(rng, count, noise):
    """Two links, of which the second joint alone has a motor."""
    x, u = rng.uniform(-1, 1, (count, 4)) * [1, 1, 3, 3], rng.uniform(-1, 1, (count, 1))
    q1, q2, w1, w2 = x.T
    mass = np.empty((count, 2, 2))
    mass[:, 0, 0], mass[:, 1, 1] = 0.5 + 0.2 * np.cos(q2), 0.12
    mass[:, 0, 1] = mass[:, 1, 0] = 0.12 + 0.1 * np.cos(q2)
    flung = 0.1 * np.sin(q2) * np.stack([-(2 * w1 * w2 + w2**2), w1**2])
    weight = np.stack([2 * np.sin(q1) + 0.8 * np.sin(q1 + q2), 0.8 * np.sin(q1 + q2)])
    force = np.stack([0 * u[:, 0], u[:, 0]]) - flung - weight
    turn = np.linalg.solve(mass, force.T[:, :, None])[:, :, 0]
    xdot = np.concatenate([x[:, 2:], turn], axis=1)
    return x, u, xdot + noise * xdot.std(axis=0) * rng.normal(size=xdot.shape)


def told(library, rates):
    """Rows that say rates by states: of what was found without products."""
    rows = []
    for state, by in rates:
        weights = np.zeros((len(library.labels), len(library.names) + 1))
        weights[0, state], weights[library.labels.index(by), -1] = 1.0, -1.0
        rows.append(DictionaryRow(weights, np.zeros_like(weights), 1.0))
    return ShortLaws(rows, np.isin(np.arange(len(library.names)), [state for state, _ in rates]))


def entries_of(found, row):
    """Weights by function and entry, of what is not 0."""
    own = {(found.labels[k], int(j)): row.weights[k, j] for k, j in np.argwhere(row.weights)}
    largest = max(own.values(), key=abs)
    return {key: weight / largest for key, weight in own.items()}


@pytest.mark.parametrize("noise", [1e-6, 0.01])
def test_a_ball_is_flung_outwards_by_the_square_of_the_turn_rate(noise):
    x, u, xdot = slides_on_a_beam(np.random.default_rng(0), 600, noise)
    library = Library(("r", "v", "theta", "w"), (2,), (2,))
    short = told(library, [(0, "v"), (2, "w")])
    level = max(noise, 1e-6) * xdot.std(axis=0)
    given = library, values_of(library, x), xdot, u, level, short, np.ones((4, 4), dtype=bool)
    assert len(discover_products(*given)[1]) == 2, "two functions are not enough"
    found, rows = discover_products(*given, order=3)
    assert len(rows) == 3
    assert found.pairs == ((1, 3, 3),) and found.labels[-1] == "r·w²"
    own = entries_of(found, rows[-1])
    assert own.keys() == {("", 1), ("sin(theta)", 4), ("r·w²", 4)}
    assert own["", 1] / own["sin(theta)", 4] == pytest.approx(1 / 9.81, rel=0.02)


@pytest.mark.parametrize("noise", [1e-6, 0.01])
def test_what_no_motor_pushes_of_an_arm_obeys_lagranges_equation(noise):
    x, u, xdot = arm_without_a_shoulder(np.random.default_rng(0), 1000, noise)
    library = Library(("q1", "q2", "w1", "w2"), (0, 1), (0, 1)).with_sums()
    short = told(library, [(0, "w1"), (1, "w2")])
    level = max(noise, 1e-6) * xdot.std(axis=0)
    given = library, values_of(library, x), xdot, u, level, short, np.ones((4, 4), dtype=bool)
    found, rows = discover_products(*given, order=3)
    assert len(rows) == 3
    own = entries_of(found, rows[-1])  # in units of the weight of the first link
    true = {
        ("", 2): 0.5 / 2,
        ("cos(q2)", 2): 0.2 / 2,
        ("", 3): 0.12 / 2,
        ("cos(q2)", 3): 0.1 / 2,
        ("sin(q1)", 4): 1.0,
        ("sin(q1 + q2)", 4): 0.8 / 2,
        ("w1·w2·sin(q2)", 4): -0.2 / 2,
        ("w2²·sin(q2)", 4): -0.1 / 2,
    }
    assert own.keys() == true.keys()
    np.testing.assert_allclose([own[key] for key in true], list(true.values()), rtol=10 * noise)


def test_a_velocity_may_be_told_times_a_function():
    """cos θ ψ' = q sin φ + r cos φ: the yaw of a body that pitches."""
    rng = np.random.default_rng(0)
    x, u = rng.uniform(-0.8, 0.8, (600, 5)), rng.uniform(-1, 1, (600, 4))
    phi, theta, _, q, r = x.T
    yaw = (q * np.sin(phi) + r * np.cos(phi)) / np.cos(theta)
    xdot = np.stack([u[:, 0], u[:, 1], yaw, u[:, 2], u[:, 3]], axis=1)
    xdot += 0.01 * xdot.std(axis=0) * rng.normal(size=xdot.shape)
    library = Library(("phi", "theta", "psi", "q", "r"), (0, 1, 2), (0, 1, 2))
    nothing = ShortLaws([], np.zeros(5, dtype=bool))
    depends = np.zeros((5, 5), dtype=bool)
    depends[2, [0, 1, 3, 4]] = True
    level = 0.01 * xdot.std(axis=0)
    found, rows = discover_products(
        library, values_of(library, x), xdot, u, level, nothing, depends
    )
    (row,) = rows
    own = entries_of(found, row)
    assert own.keys() == {("cos(theta)", 2), ("q·sin(phi)", 5), ("r·cos(phi)", 5)}
    np.testing.assert_allclose(np.abs(list(own.values())), 1, atol=1e-12)  # tied


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
    pairs = ((1, 1), (1, 2), (2, 3), (1, 1, 2), (3, 3, 3))
    library = Library(("x", "theta"), (1,), (1,), pairs)
    names = ("x²", "x·sin(theta)", "sin(theta)·cos(theta)", "x²·sin(theta)", "cos(theta)³")
    assert library.labels[4:] == names
    assert [set(states) for states in library.states[4:]] == [{0}, {0, 1}, {1}, {0, 1}, {1}]
    assert [set(states) for states in library.straight[4:]] == [{0}, {0}, set(), {0}, set()]
    x, theta = 0.7, 0.3
    s, c = np.sin(theta), np.cos(theta)
    values = [1, x, s, c, x * x, x * s, s * c, x * x * s, c**3]
    np.testing.assert_allclose(library(jnp.array([x, theta])), values, rtol=1e-15)

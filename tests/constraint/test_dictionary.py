"""Best-subset search: right equations, honest standard errors, nothing where there is nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.constraint.dictionary import discover, equation_of, held_out, inputs_of
from offmap.constraint.library import Library
from offmap.constraint.regression import Candidate, least_ratio, search_problem
from offmap.constraint.steerable import Standard
from offmap.constraint.weights import polished, tied
from offmap.systems import (
    bicycle,
    glider,
    planar_quadrotor,
    rolling_disk,
    slipping_unicycle,
    steered_car,
    trailer,
    two_trailers,
    unicycle,
)


def data(system, count=400, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, size=(count, system.n))
    u = np.asarray(system.controls.sample(jax.random.key(seed), count))
    xdot = np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))
    spread = xdot.std(axis=0)
    measured = xdot + noise * spread * rng.normal(size=xdot.shape)
    return x, u, measured, np.maximum(noise, 1e-5) * spread


def found(system, declared=True, sums=False, **kwargs):
    x, u, xdot, noise = data(system, **kwargs)
    angles = tuple(system.state_names.index(name) for name in system.angles)
    everything = tuple(range(system.n))
    library = Library(system.state_names, angles if declared else everything, angles * declared)
    library = library.with_sums() if sums else library
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    return discover(library, features, xdot, u, noise).rows, library


def largest_angle(rows, library, system):
    x = jax.random.uniform(jax.random.key(5), (100, system.n), minval=-2.0, maxval=2.0)
    W = jnp.asarray(np.stack([row.weights for row in rows]))
    gamma = np.asarray(jax.vmap(lambda x: jnp.einsum("ckj,k->cj", W, library(x)))(x))
    true = np.asarray(jax.vmap(system.gamma)(x))
    q1 = np.linalg.qr(np.swapaxes(gamma, 1, 2))[0]
    q2 = np.linalg.qr(np.swapaxes(true, 1, 2))[0]
    cosines = np.linalg.svd(np.swapaxes(q1, 1, 2) @ q2, compute_uv=False)
    return float(np.arccos(np.clip(cosines, -1, 1)).max())


@pytest.mark.parametrize(
    "system",
    [unicycle(), planar_quadrotor(), bicycle(), trailer(), rolling_disk()],
    ids=lambda system: system.name,
)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_right_number_of_rows_and_right_rows(system, noise):
    rows, library = found(system, noise=noise)
    true_c = system.gamma(jnp.zeros(system.n)).shape[0]
    assert len(rows) == true_c
    assert largest_angle(rows, library, system) < (1e-6 if noise == 0 else 2e-3)


@pytest.mark.parametrize(
    "system", [steered_car(), glider(), two_trailers()], ids=lambda system: system.name
)
@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_laws_of_wheels_that_point_along_a_sum_of_angles(system, noise):
    rows, library = found(system, sums=True, noise=noise)
    assert len(rows) == system.gamma(jnp.zeros(system.n)).shape[0]
    assert largest_angle(rows, library, system) < (1e-6 if noise == 0 else 2e-3)
    fewer, _ = found(system, noise=noise)
    assert len(fewer) < len(rows), "they are no short sums of sines of single angles"


@pytest.mark.parametrize("seed", [0, 4])
def test_a_cosine_that_stays_near_one_is_told_from_one_by_the_edge_of_the_data(seed):
    # L cos δ θ' against L θ': δ is at most .4, with 1 % of noise in states and velocities. Over all
    # samples the two laws are as well obeyed as one another.
    system, rng = steered_car(), np.random.default_rng(seed)
    x, u, _, _ = data(system, count=500, seed=seed)
    x[:, 3] *= 0.4
    clean = np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))
    noise = 0.01 * clean.std(axis=0)
    xdot = clean + noise * rng.normal(size=clean.shape)
    seen = x + 0.01 * x.std(axis=0) * rng.normal(size=x.shape)
    library = Library(system.state_names, (2, 3), (2, 3)).with_sums()
    features = np.asarray(jax.vmap(library)(jnp.asarray(seen)))
    rows = discover(library, features, xdot, u, noise).rows
    assert largest_angle(rows, library, system) < 3e-3


def test_functions_of_sums_of_angles():
    library = Library(("x", "a", "b"), (1, 2), (1, 2), ((1, 6),)).with_sums()
    assert library.sums == ((1, 2, 1), (1, 2, -1))
    assert library.labels[6:] == (
        "sin(a + b)",
        "sin(a − b)",
        "cos(a + b)",
        "cos(a − b)",
        "x·sin(a + b)",
    )
    assert [set(states) for states in library.states[6:]] == [{1, 2}] * 4 + [{0, 1, 2}]
    assert [set(states) for states in library.straight[6:]] == [set()] * 4 + [{0}]
    x, a, b = 0.7, 0.3, -1.1
    expected = [np.sin(a + b), np.sin(a - b), np.cos(a + b), np.cos(a - b), x * np.sin(a + b)]
    np.testing.assert_allclose(library(jnp.array([x, a, b]))[6:], expected, rtol=1e-15)


def test_nobody_needs_to_name_the_angle():
    rows, library = found(unicycle(), declared=False)
    assert [str(equation_of(row, library).text) for row in rows] == [
        "sin(theta)·px' − cos(theta)·py' = 0"
    ]
    assert inputs_of(rows[0], library) == ("theta",)


def test_a_robot_that_slips_has_no_such_constraint():
    rows, _ = found(slipping_unicycle())
    assert rows == []


def test_what_a_control_can_change_is_no_constraint():
    # ȧ = b + u with noise above u's effect: at the noise level, yet a function of the control.
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(800, 2)), rng.normal(size=(800, 1))
    pushed = x[:, 1] + 0.2 * (0.3 * u[:, 0] + rng.normal(size=800))
    xdot = np.stack([pushed, rng.normal(size=800)], axis=1)
    library = Library(("a", "b"), ())
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))

    def says_something_of_a(significance):
        noise = np.array([0.2, 0.01])
        rows = discover(
            library, features, xdot, u, noise, standard=Standard(significance=significance)
        ).rows
        return any(row.weights[:, 0].any() for row in rows)

    assert says_something_of_a(0.0), "without the test of the control it would be accepted"
    assert not says_something_of_a(1e-6)


def test_standard_errors_cover_the_truth():
    # ṗx = 0.7 vx with known noise: the error of the weight, over its standard error, is about 1.
    library = Library(("p", "v"), ())
    scores = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        x, u = rng.normal(size=(300, 2)), rng.normal(size=(300, 1))
        xdot = np.stack([0.7 * x[:, 1] + 0.01 * rng.normal(size=300), u[:, 0]], axis=1)
        features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
        row = discover(library, features, xdot, u, np.array([0.01, 0.01])).rows[0]
        slope, error = row.weights[2, 2] / row.weights[0, 0], row.standard_errors[2, 2]
        scores.append((slope + 0.7) / error)
    assert 0.75 < np.std(scores) < 1.3
    assert abs(np.mean(scores)) < 0.5


def test_what_a_robot_cannot_do_in_its_own_frame_has_no_weight_to_get_wrong():
    rows, library = found(unicycle(), noise=0.05)
    assert [equation_of(row, library).text for row in rows] == [
        "sin(theta)·px' − cos(theta)·py' = 0"
    ]


def off_axle(count, noise, seed):
    """A unicycle seen by a marker ahead of its axle, with a heading that is read a little askew."""
    ahead, askew = 0.1, 0.05
    rng = np.random.default_rng(seed)
    theta, (omega, v) = rng.uniform(-3, 3, count), rng.uniform(-1, 1, (2, count))
    heading = theta - askew
    px = v * np.cos(heading) - ahead * omega * np.sin(heading)
    py = v * np.sin(heading) + ahead * omega * np.cos(heading)
    xdot = np.stack([px, py, omega], axis=1) + noise * rng.normal(size=(count, 3))
    library = Library(("px", "py", "theta"), (2,), (2,))
    x = np.stack([rng.normal(size=count), rng.normal(size=count), theta], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    return library, features, xdot, np.stack([omega, v], axis=1)


def test_an_equation_grows_by_what_the_textbook_leaves_out():
    library, features, xdot, u = off_axle(800, 0.02, 0)
    (row,) = discover(library, features, xdot, u, np.full(3, 0.05)).rows
    sine, cosine = library.labels.index("sin(theta)"), library.labels.index("cos(theta)")
    assert np.count_nonzero(row.weights) == 5  # three terms, of which two are pairs
    scale = row.weights[sine, 0]
    for entry, truth in (((0, 2), 0.1 / np.cos(0.05)), ((cosine, 0), -np.tan(0.05))):
        error = 4 * row.standard_errors[entry] / abs(scale)
        assert row.weights[entry] / scale == pytest.approx(truth, abs=error)
        assert error < 0.02


def test_standard_errors_know_of_errors_that_a_drive_has_in_common():
    # ṗ = 0.7 v, v nearly constant in each of 30 drives of 10 samples, and ṗ off by a constant.
    library, groups = Library(("p", "v"), ()), np.repeat(np.arange(30), 10)
    scores = {"drives": [], "samples": []}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        v = rng.normal(size=30)[groups] + 0.1 * rng.normal(size=300)
        off = 0.01 * rng.normal(size=30)[groups] + 0.001 * rng.normal(size=300)
        u = rng.normal(size=(300, 1))
        xdot = np.stack([0.7 * v + off, u[:, 0]], axis=1)
        x = np.stack([rng.normal(size=300), v], axis=1)
        features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
        for name, known in (("drives", groups), ("samples", None)):
            row = discover(
                library,
                features,
                xdot,
                u,
                np.full(2, 0.01),
                groups=known,
                standard=Standard(effect=0.5),
            ).rows[0]
            slope, error = row.weights[2, 2] / row.weights[0, 0], row.standard_errors[2, 2]
            scores[name].append((slope + 0.7) / error)
    assert 0.75 < np.std(scores["drives"]) < 1.4
    assert np.std(scores["samples"]) > 2


def test_a_constraint_with_something_small_added_is_not_a_second_one():
    # A robot that hardly moves: 0.05 ṗx is far below the noise, as an addition to a true row.
    rng = np.random.default_rng(0)
    theta, v = rng.uniform(-0.3, 0.3, 400), 0.1 + 0.05 * rng.uniform(-1, 1, 400)
    x = np.stack([rng.uniform(-3, 3, 400), rng.uniform(-3, 3, 400), theta], axis=1)
    u = np.stack([rng.uniform(-1, 1, 400), v], axis=1)
    xdot = np.stack([v * np.cos(theta), v * np.sin(theta), u[:, 0]], axis=1)
    noise = np.array([0.01, 0.01, 0.01])
    xdot = xdot + noise * rng.normal(size=xdot.shape)
    library = Library(("px", "py", "theta"), (2,), (2,))
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    rows = discover(library, features, xdot, u, noise).rows
    assert [equation_of(row, library).text for row in rows] == [
        "sin(theta)·px' − cos(theta)·py' = 0"
    ]


@pytest.mark.parametrize("drives", [1, 2])
def test_too_few_drives_to_tell_chance_leave_equations_as_they_are(drives):
    library, features, xdot, u = off_axle(200, 0.02, 0)
    groups = np.arange(200) % drives
    (row,) = discover(library, features, xdot, u, np.full(3, 0.05), groups=groups).rows
    assert np.all(np.isfinite(row.weights)) and np.all(np.isfinite(row.standard_errors))


def test_a_law_that_a_control_bends_a_little_is_one_where_asked():
    # Sideways speed is a twentieth of ω v: far above the noise, far below the motion.
    rng = np.random.default_rng(0)
    theta, (omega, v) = rng.uniform(-3, 3, 500), rng.uniform(-1, 1, (2, 500))
    side = 0.05 * omega * v
    xdot = np.stack(
        [v * np.cos(theta) - side * np.sin(theta), v * np.sin(theta) + side * np.cos(theta), omega],
        axis=1,
    )
    library = Library(("px", "py", "theta"), (2,), (2,))
    x = np.stack([rng.normal(size=500), rng.normal(size=500), theta], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    u = np.stack([omega, v], axis=1)
    noise = np.full(3, 0.01)
    assert discover(library, features, xdot, u, noise).rows == []
    (row,) = discover(library, features, xdot, u, noise, standard=Standard(matters=0.1)).rows
    assert equation_of(row, library).text == "sin(theta)·px' − cos(theta)·py' = 0"


def test_a_rate_has_no_weight_to_get_wrong_and_one_that_is_off_keeps_it():
    rng = np.random.default_rng(0)
    v, a = rng.uniform(-1, 1, (2, 400))
    library = Library(("p", "v"), (), ())
    x = np.stack([rng.uniform(-1, 1, 400), v], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))

    def law(weight):
        xdot = np.stack([weight * v, a], axis=1) + 0.01 * rng.normal(size=(400, 2))
        (row,) = discover(library, features, xdot, a[:, None], np.full(2, 0.01)).rows
        return equation_of(row, library).text

    assert law(1.0) == "p' − v = 0"
    assert law(0.99).startswith("p' − 0.9")


def law_of(states, velocities, noise, names):
    """The one equation of some columns and the rates of all of them."""
    library = Library(names, (), ())
    features = np.asarray(jax.vmap(library)(jnp.asarray(np.stack(states, axis=1))))
    u = np.random.default_rng(9).normal(size=(len(states[0]), 1))
    (row,) = discover(library, features, np.stack(velocities, axis=1), u, np.asarray(noise)).rows
    return row, equation_of(row, library).text


def test_weights_that_are_sure_together_are_not_tied_one_by_one():
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, 1500)
    b = a + 0.005 * rng.normal(size=1500)
    rate = 0.985 * a + 0.985 * b + 0.002 * rng.normal(size=1500)
    p, *others = rng.normal(size=(3, 1500))
    row, _ = law_of([p, a, b], [rate, *others], [0.002, 1e-3, 1e-3], ("p", "a", "b"))
    assert row.residual < 1.2


def tied_share(weight: float) -> float:
    """How often p' − weight·v = 0 becomes p' − v = 0, by twenty drives of ten noisy samples."""
    library = Library(("p", "v"), (), ())
    terms = library.terms()
    support = np.array([[np.flatnonzero(terms[:, 0, 0])[0], np.flatnonzero(terms[:, 2, -1])[0]]])
    ties = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        v = rng.uniform(-1, 1, 200)
        xdot = np.stack([weight * v + 0.1 * rng.normal(size=200), rng.normal(size=200)], axis=1)
        features = np.asarray(jax.vmap(library)(jnp.asarray(np.stack([0 * v, v], axis=1))))
        held, groups = held_out(features, np.arange(200) // 10)
        search = search_problem(terms, features, xdot, np.array([0.1, 1e-3]), held)
        ratio, found = least_ratio(search.gram, search.noise, support)
        candidate = Candidate(support[0], found[0], float(ratio[0]), 9.0)
        ties.append(len(tied(search, candidate, groups).tied) == 1)
    return float(np.mean(ties))


def test_a_rate_in_the_unit_of_its_state_has_no_weight_and_others_keep_theirs():
    assert tied_share(1.0) > 0.95  # .91 within √log N standard errors
    assert tied_share(0.9) < 0.1


@pytest.mark.parametrize("unit", [1.0, 1e-4])
def test_a_tied_equation_has_its_residual_in_any_unit(unit):
    rng = np.random.default_rng(0)
    p, v, a = unit * rng.uniform(-1, 1, (3, 400))
    noise = 1e-5 * unit
    rate = v + noise * rng.normal(size=400)
    row, text = law_of([p, v], [rate, a], [noise, noise], ("p", "v"))
    assert text == "p' − v = 0"
    assert row.residual == pytest.approx(1.0, rel=0.15)


def test_what_an_equation_grew_from_does_not_speak_against_it():
    rng = np.random.default_rng(0)
    theta, omega, v = rng.uniform(-3, 3, 1200), rng.uniform(-1, 1, 1200), rng.uniform(0, 1, 1200)
    px = v * np.cos(theta) - 0.1 * omega * np.sin(theta)
    py = v * np.sin(theta) + 0.1 * omega * np.cos(theta)
    noise = 0.14 * np.array([1.0, 1.0, 0.1])
    xdot = np.stack([px, py, omega], axis=1) + noise * rng.normal(size=(1200, 3))
    library = Library(("px", "py", "theta"), (2,), (2,))
    x = np.stack([*rng.normal(size=(2, 1200)), theta], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    rows = discover(
        library,
        features,
        xdot,
        np.stack([omega, v], axis=1),
        noise,
        groups=np.arange(1200) // 40,
        standard=Standard(effect=0.5, matters=0.1),
    ).rows
    assert len(rows) == 1


@pytest.mark.slow
def test_side_slip_is_seen_in_much_noise():
    rows, _ = found(slipping_unicycle(), noise=0.05, count=500)
    assert rows == []


def driven(play):
    """A unicycle at a speed that has so much play, and turned by command."""
    rng = np.random.default_rng(0)
    theta, turn = rng.uniform(-1, 1, 500), rng.uniform(-1, 1, 500)
    speed = 0.06 * (1 + rng.uniform(-play, play, 500))
    xdot = np.stack([speed * np.cos(theta), speed * np.sin(theta), turn], axis=1)
    noise = 0.01 * xdot.std(axis=0)
    xdot = xdot + noise * rng.normal(size=xdot.shape)
    library = Library(("px", "py", "theta"), (2,), (2,))
    x = np.stack([*rng.uniform(-1, 1, (2, 500)), theta], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    u = np.stack([turn, speed], axis=1)
    return [
        equation_of(row, library).text for row in discover(library, features, xdot, u, noise).rows
    ]


@pytest.mark.parametrize("play", [0.001, 1.0])
def test_a_speed_that_was_always_commanded_is_no_law(play):
    assert driven(play) == ["sin(theta)·px' − cos(theta)·py' = 0"]


def test_a_law_beyond_those_that_controls_leave_room_for_is_believed_if_they_were_moved():
    """The speed is .06 whatever is commanded: one of two controls does nothing."""
    rng = np.random.default_rng(0)
    theta, turn, idle = rng.uniform(-1, 1, (3, 500))
    xdot = np.stack([0.06 * np.cos(theta), 0.06 * np.sin(theta), turn], axis=1)
    noise = 0.01 * xdot.std(axis=0)
    xdot = xdot + noise * rng.normal(size=xdot.shape)
    library = Library(("px", "py", "theta"), (2,), (2,))
    x = np.stack([*rng.uniform(-1, 1, (2, 500)), theta], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    u = np.stack([turn, 1 + 0.5 * idle], axis=1)
    rows = discover(library, features, xdot, u, noise).rows
    assert len(rows) == 2


def test_past_commands_leave_as_much_room_as_none():
    """p' = v is believed though thrust hardly varies, with past commands among the controls too."""
    rng = np.random.default_rng(0)
    v, past = rng.uniform(-2, 2, 500), rng.uniform(-1, 1, 500)
    thrust = 10 + 0.01 * rng.uniform(-1, 1, 500)
    xdot = np.stack([v, 50 * (thrust - 10)], axis=1)
    noise = 0.01 * xdot.std(axis=0)
    xdot = xdot + noise * rng.normal(size=xdot.shape)
    library = Library(("p", "v"), (), ())
    features = np.asarray(jax.vmap(library)(jnp.asarray(np.stack([past, v], axis=1))))
    u = np.stack([thrust, past], axis=1)

    def found(acting):
        rows = discover(library, features, xdot, u, noise, standard=Standard(acting=acting)).rows
        return [equation_of(row, library).text for row in rows]

    assert found(1) == ["p' − v = 0"]
    assert found(None) == []


def near_hover(play):
    """Planar flight with 5 % noise, tilted a little, at a thrust that has so much play."""
    rng = np.random.default_rng(0)
    phi = rng.uniform(-0.3, 0.3, 1500)
    thrust, torque = 9.81 + rng.uniform(-play, play, 1500), rng.uniform(-1, 1, 1500)
    vx, vz, omega = rng.uniform(-2, 2, (3, 1500))
    rest = [omega, -thrust * np.sin(phi), thrust * np.cos(phi) - 9.81, torque]
    xdot = np.stack([vx, vz, *rest], axis=1)
    noise = 0.05 * xdot.std(axis=0)
    xdot = xdot + noise * rng.normal(size=xdot.shape)
    names = ("px", "pz", "phi", "vx", "vz", "omega")
    library = Library(names, (2,), (2,))
    x = np.stack([*rng.uniform(-5, 5, (2, 1500)), phi, vx, vz, omega], axis=1)
    features = np.asarray(jax.vmap(library)(jnp.asarray(x)))
    u = np.stack([thrust, torque], axis=1)
    return {
        equation_of(row, library).text for row in discover(library, features, xdot, u, noise).rows
    }


def test_of_two_laws_that_data_cannot_tell_apart_none_is_believed():
    rates = {"px' − vx = 0", "pz' − vz = 0", "phi' − omega = 0"}
    assert near_hover(0.05) == rates
    (law,) = near_hover(0.2) - rates  # enough to see that vx' + g sin(phi) depends on it
    assert "sin(phi)·vz'" in law and "cos(phi)·vx'" in law


@pytest.mark.parametrize("seed", range(3))
def test_weights_of_exact_data_are_exact_to_round_off(seed):
    """Gravity in the quadrotor's fourth row: products of terms alone would give twelve digits."""
    rows, _ = found(planar_quadrotor(), count=1000, seed=seed)
    weights = [row.weights[row.weights != 0] for row in rows]
    (with_gravity,) = [np.abs(w) for w in weights if len(w) == 3]
    assert np.max(np.abs(np.sort(with_gravity)[:2] * 9.81 - 1)) < 5e-15


def test_weights_that_are_tied_stay_equal_when_the_rest_are_fitted_again():
    """Of random laws of four terms near 1 some have a free weight that outgrows the tied ones."""
    library = Library(("a", "b", "c", "e"), (), ())
    support = np.array([np.flatnonzero(library.terms()[:, 0, j])[0] for j in range(4)])
    ties = 0
    for seed in range(4000, 4400):
        rng = np.random.default_rng(seed)
        groups = np.arange(60) * 20 // 60
        weights = 1 + 0.08 * rng.normal(size=4)
        xdot = rng.normal(size=(60, 1)) + rng.uniform(0.1, 1) * rng.normal(size=(60, 4))
        xdot[:, 3] = -(xdot[:, :3] @ weights[:3]) / weights[3]
        xdot = xdot + 0.1 * rng.normal(size=(60, 4)) + 0.05 * rng.normal(size=(20, 4))[groups]
        features = np.concatenate([np.ones((60, 1)), rng.normal(size=(60, 4))], axis=1)
        held, groups = held_out(features, groups)
        search = search_problem(library.terms(), features, xdot, np.full(4, 0.1), held)
        ratio, found = least_ratio(search.gram, search.noise, support[None])
        before = tied(search, Candidate(support, found[0], float(ratio[0]), 9.0), groups)
        after = np.abs(polished(search, before).weights / search.size[support])
        ties += len(before.tied)
        np.testing.assert_allclose(after[list(before.tied)], after.max(), rtol=1e-9)
    assert ties > 50

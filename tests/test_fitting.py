"""The default preset: every choice is made by held-out extrapolation, and structure never harms."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import offmap
from offmap import discovery, sparsity, structure
from offmap.calls import at_each
from offmap.config import Config
from offmap.constraint import Equation
from offmap.features import Features
from offmap.heldout import _folds, edge_errors, rollout_errors
from offmap.mlp import MLPConfig, MLPEnsemble
from offmap.predictor import Predictor
from offmap.pseudometric import PseudometricConfig, Reduction
from offmap.rollout import rollout
from offmap.sparsity import find_sparsity
from offmap.stages import fit_stage
from offmap.structure import constrain, constrain_by, most_structure
from offmap.systems import Box, slipping_unicycle, unicycle
from offmap.tangent import tangent_frame


def drives(system, count=10, steps=25, seed=0, angles=()):
    start, control = jax.random.split(jax.random.key(seed))
    reach = (10.0, 10.0) + (1.0,) * (system.n - 2)
    x0 = Box(tuple(-r for r in reach), reach).sample(start, count)
    u = system.controls.sample(control, count, steps)
    x = jax.vmap(lambda x, u: rollout(system.f, x, u, system.dt))(x0, u)
    logs = [offmap.Trajectory(x[i], u[i], dt=system.dt) for i in range(count)]
    return offmap.Dataset(logs, system.state_names, system.control_names, angles)


@pytest.fixture(scope="module")
def model():
    return offmap.fit(drives(unicycle(), angles=("theta",)))


def test_heading_drops_out_in_the_tangent_frame(model):
    assert model.retained.dynamics == ("theta", "omega", "v")
    assert model.retained.tangent == ("omega", "v")
    assert model.choices.used == "tangent"


def test_predictions_hold_at_places_and_headings_without_data(model):
    system = unicycle()
    rng = np.random.default_rng(0)
    x = rng.uniform([-500, -500, -9], [500, 500, 9], size=(200, 3))
    u = np.asarray(system.controls.sample(jax.random.key(2), 200))
    true = jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(model.predict(x, u), true, atol=1e-7)


def car(x, u):
    """A car that is told its steering and its speed: it turns by their product."""
    steering, speed = u
    return speed * jnp.array([jnp.cos(x[2]), jnp.sin(x[2]), steering])


@pytest.mark.slow
def test_a_car_is_followed_to_steering_and_speed_that_no_drive_had():
    rng = np.random.default_rng(0)
    system = replace(unicycle(), f=car, control_names=("steering", "speed"))
    system = replace(system, controls=Box((-0.5, 0.5), (0.5, 1.5)))
    model = offmap.fit(drives(system, angles=("theta",)))
    assert model.retained.tangent == ("steering", "speed")
    assert model.choices.tangent_kernel == "bilinear"
    x = rng.uniform([-500, -500, -9], [500, 500, 9], size=(100, 3))
    u = rng.uniform([-1.5, 0.0], [1.5, 4.0], size=(100, 2))
    true = jax.vmap(car)(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(model.predict(x, u), true, atol=1e-5)


@pytest.mark.slow
def test_controls_stand_alone_in_a_frame_where_they_predict_as_well():
    rng = np.random.default_rng(1)
    system = replace(unicycle(), f=car, control_names=("steering", "speed"))
    system = replace(system, controls=Box((-0.5, 0.5), (0.5, 1.5)))
    data = drives(system, angles=("theta",))
    samples = data.samples()
    xdot = samples.xdot + 0.02 * rng.normal(size=samples.xdot.shape)
    each = [samples.trajectory == i for i in range(len(data))]
    logs = [
        offmap.Trajectory(samples.x[own], samples.u[own], dt=data.dt, xdot=xdot[own])
        for own in each
    ]
    data = replace(data, trajectories=tuple(logs))
    frame = tangent_frame(unicycle().gamma, data.samples().x, (2,), None)
    features = Features(data.input_names, data.angle_indices)
    everything = Reduction.everything(data.input_names, features)
    key, config = jax.random.key(0), Config.preset("default")
    dynamics, *_ = fit_stage(data, everything, frame, 0, key, config)
    assert dynamics.reduction.names == ("steering", "speed")
    every = replace(config, sparsify=False)
    dynamics, *_ = fit_stage(data, everything, frame, 0, key, every)
    assert dynamics.reduction.names == data.input_names


def test_an_angle_that_nobody_declared_is_found():
    system = unicycle()
    found = offmap.fit(drives(system), project="none")
    assert found.choices.angles == found.dataset.angles == ("theta",)
    assert found.choices.kernel == "bilinear"
    assert "angles      theta (found" in found.summary()
    x, u = np.array([30.0, 20.0, 3.0]), np.array([0.1, 1.0])
    true = system.f(jnp.asarray(x), jnp.asarray(u))
    np.testing.assert_allclose(found.predict(x, u), true, atol=1e-6)


def test_motions_in_the_tangent_frame_obey_the_constraint(model):
    x, u = np.array([3.0, -7.0, 2.5]), np.array([0.1, 0.7])
    violation = model.constraints.gamma(x) @ np.append(model.predict(x, u), 1.0)
    np.testing.assert_allclose(violation, 0, atol=1e-12)


def test_standard_deviation_is_that_of_the_tangent_coordinates(model):
    x, u = np.array([3.0, -7.0, 2.5]), np.array([0.1, 0.7])
    _, std = model.predict(x, u, return_std=True)
    # Forward speed and turn rate are uncertain; the sideways speed is not.
    assert std[0] / std[1] == pytest.approx(abs(np.cos(2.5) / np.sin(2.5)), rel=1e-6)


def test_update_keeps_both_dynamics(model):
    (more,) = drives(unicycle(), count=1, seed=5)
    noisy = offmap.Trajectory(
        more.x + 0.05 * np.random.default_rng(0).normal(size=more.x.shape),
        more.u,
        dt=more.dt,
        source="online",
    )
    updated = model.update(noisy)
    assert updated.predictor.dynamics.regressor.points() == len(updated.dataset.samples())
    free = updated.with_constraint(None)
    assert free.world.regressor.points() == len(updated.dataset.samples())
    assert free.world.regressor.base is model.world.regressor.base  # folded in, not factored anew
    x, u = np.array([3.0, -7.0, 2.5]), np.array([0.1, 0.7])
    np.testing.assert_allclose(updated.predict(x, u), model.predict(x, u), atol=1e-6)


@pytest.mark.slow
def test_structure_found_on_a_subset_is_conditioned_on_everything(model):
    config = replace(Config.preset("default"), discovery_points=150, kernels=("affine",))
    thin = offmap.fit(model.dataset, config=config)
    count = len(model.dataset.samples())
    assert thin.predictor.dynamics.regressor.points() == count
    if thin.predictor.dynamics.frame is not None:
        assert thin.world.regressor.points() == 150
    assert thin.with_constraint(None).predictor.dynamics.regressor.points() == count
    assert thin.constraints.c == 1
    x, u = np.array([3.0, -7.0, 2.5]), np.array([0.1, 0.7])
    np.testing.assert_allclose(thin.predict(x, u), model.predict(x, u), atol=1e-5)


def test_a_neural_ensemble_goes_through_the_same_stages(model):
    config = replace(
        Config.preset("default"), dynamics=MLPConfig(members=2, width=16, steps=300), tangent=False
    )
    network = offmap.fit(model.dataset, config=config)
    assert isinstance(network.predictor.dynamics.regressor, MLPEnsemble)
    assert network.retained.dynamics == model.retained.dynamics
    assert network.constraints.c == 1
    x, u = np.array([3.0, -7.0, 2.5]), np.array([0.1, 0.7])
    (px, py, _), std = network.predict(x, u, return_std=True)
    assert abs(np.sin(2.5) * px - np.cos(2.5) * py) < 1e-6
    assert np.all(std > 0)


def test_rollouts_along_held_out_trajectories_expose_a_wrong_constraint(model):
    def tilted(x):  # the heading misread by 0.1 rad
        return jnp.stack([jnp.sin(x[2] + 0.1), -jnp.cos(x[2] + 0.1), 0.0 * x[0], 0.0 * x[0]])[None]

    candidates = {
        "right": Predictor(model.world, model.predictor.gamma),
        "wrong": Predictor(model.world, tilted),
    }
    errors = rollout_errors(candidates, model.dataset, 0, "euler")
    assert errors["right"].max() < 1e-8
    assert errors["wrong"].min() > 1e-4
    short = drives(unicycle(), count=6, steps=3, angles=("theta",))
    assert rollout_errors(candidates, short, 0, "euler") == {}


def even(**errors: float) -> dict[str, np.ndarray]:
    """Held-out errors that are the same on all of ten trajectories."""
    return {name: np.full(10, error**2) for name, error in errors.items()}


def test_the_judge_that_likes_a_structure_least_decides():
    edge = even(none=0.36, projected=0.36, tangent=0.36)
    rolled = even(none=0.10, projected=0.10, tangent=0.12)
    assert most_structure(edge, rolled) == "projected"
    assert most_structure(edge, even(none=0.1, projected=0.1, tangent=0.05)) == "tangent"
    torn = even(none=0.36, projected=0.36, tangent=0.5)
    assert most_structure(torn, even(none=0.1, projected=0.1, tangent=0.09)) != "tangent"


def test_a_robot_that_slips_is_not_projected():
    slipping = offmap.fit(drives(slipping_unicycle(), angles=("theta",)))
    assert slipping.constraints.c == 0
    assert "predictions are not projected" in slipping.summary()


def test_more_structure_wins_only_where_it_is_no_worse():
    assert most_structure(even(none=0.1, projected=0.1, tangent=0.1)) == "tangent"
    assert most_structure(even(none=0.1, projected=0.09, tangent=0.2)) == "projected"
    assert most_structure(even(none=0.1, projected=0.11, tangent=0.2)) == "none"
    assert most_structure(even(none=1e-12, projected=1e-9, tangent=1e-5)) == "tangent"


def test_a_constraint_without_an_equation_must_prove_of_use():
    level = even(none=0.1, projected=0.1, tangent=0.1)
    assert most_structure(level, none_first=True) == "none"
    better = even(none=0.2, projected=0.1, tangent=0.1)
    assert most_structure(better, none_first=True) == "tangent"


def test_edge_error_sees_a_false_constraint(model):
    samples = model.dataset.samples()
    false = model.with_constraint(lambda x: jnp.array([[1.0, 0.0, 0.0, 0.0]]))
    honest = model.with_constraint(None)
    candidates = {"false": false.predictor, "honest": honest.predictor}
    errors = edge_errors(candidates, samples, 0)
    assert errors["false"].mean() > 1e4 * errors["honest"].mean()


def test_drives_are_split_at_the_middle_of_each_state_asked_for(model):
    samples, own = model.dataset.samples(), np.arange(len(model.dataset.samples()))
    folds = _folds(samples, own, (2, 0))
    assert len(folds) == 4
    for state, (low, high) in zip((2, 0), (folds[:2], folds[2:]), strict=True):
        assert sorted([*low, *high]) == list(range(10))
        means = [samples.x[samples.trajectory == i, state].mean() for i in range(10)]
        assert max(means[i] for i in low) <= min(means[i] for i in high)
    free = {"free": model.with_constraint(None).predictor}
    splits = ((2, 0), (2,), (0,))
    both, theta, px = (edge_errors(free, samples, 0, True, along)["free"] for along in splits)
    assert theta.shape == (10,)
    np.testing.assert_allclose(both, (theta + px) / 2)


def test_where_drives_are_held_out_they_judge_from_the_other_side_of_what_a_frame_drops(model):
    drives = replace(model, config=replace(model.config, hold_out="trajectories"))
    found = constrain(drives, model.predictor.gamma)
    assert found.choices.across == ("theta",)
    assert found.choices.used == "tangent"
    assert "(drives on either side in theta, from the others)" in found.summary()
    assert model.choices.across == ()


def test_few_drives_leave_more_to_chance():
    once = {"none": np.ones(6), "tangent": 1 + 5.0 * (np.arange(6) == 0)}
    assert most_structure(once) == "none"
    assert most_structure(once, unsure=2.0) == "tangent"
    each = {"none": np.ones(6), "tangent": np.full(6, 1.8)}
    assert most_structure(each, unsure=2.0) == "none"


@pytest.mark.parametrize(
    ("hold_out", "tried"), [("trajectories", [True, False]), ("samples", [True])]
)
def test_of_drives_a_frame_of_a_simple_kernel_is_tried_with_the_best(
    model, monkeypatch, hold_out, tried
):
    few = model.dataset.samples().take(np.arange(0, 250, 50))
    bad = model.predictor.conditioned_on(replace(few, xdot=few.xdot + 100.0)).dynamics
    asked = []

    def fit_tangent(_, gamma, simplest=True):
        asked.append(simplest)
        return (bad, "simple") if simplest else (model.predictor.dynamics, "best")

    monkeypatch.setattr("offmap.structure._fit_tangent", fit_tangent)
    monkeypatch.setattr("offmap.structure.edge_errors", _misses)
    monkeypatch.setattr("offmap.structure.rollout_errors", _misses)
    drives = replace(model, config=replace(model.config, hold_out=hold_out))
    found = constrain(drives, model.predictor.gamma)
    assert asked == tried
    assert (found.choices.used == "tangent") == (len(tried) == 2)


def _misses(candidates, data, primary, *_, **__):
    """Squared errors of predictors as they are, on each of the samples."""
    samples = data if hasattr(data, "xdot") else data.samples()
    found = {n: np.asarray(at_each(p, samples.x, samples.u)) for n, p in candidates.items()}
    return {name: np.mean((xdot - samples.xdot) ** 2, axis=1) for name, xdot in found.items()}


def test_an_input_that_enters_evenly_is_kept_by_its_slope():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 3))
    outputs = np.stack([z[:, 0] ** 2, z[:, 1]], axis=1)

    def kept(check):
        return find_sparsity(
            z,
            outputs,
            ("a", "b", "c"),
            None,
            states=2,
            key=jax.random.key(0),
            config=PseudometricConfig(),
            check=check,
        )

    assert "a" not in kept(None).reduction.names
    checked = kept(1e-3)
    assert checked.reduction.names == ("a", "b")
    assert "slopes keep a, b" in checked.disagreement


def test_slopes_far_above_flat_ones_count_however_small():
    slopes = {"a": 1.0, "b": 6e-4, "c": 4e-6, "d": 1e-6}
    assert sparsity._with_slope(slopes, 1e-3) == {"a", "b"}
    assert sparsity._with_slope(slopes | {"c": 2e-4}, 1e-3) == {"a", "b", "c"}
    assert sparsity._with_slope(slopes | {"c": 3e-4, "d": 2e-4}, 1e-3) == {"a"}


def test_a_state_along_which_dynamics_are_flat_is_dropped(monkeypatch):
    """Whatever the pseudometric keeps, and whoever is luckier at the held-out edge."""
    z = np.random.default_rng(0).normal(size=(300, 3))
    monkeypatch.setattr(sparsity, "_squared_slopes", lambda *_: np.array([1.0, 1e-6, 1e-6]))
    monkeypatch.setattr(sparsity, "edge_errors", lambda *_, **__: pytest.fail("no need to ask"))
    everything = Reduction.everything(("a", "b", "u"))
    monkeypatch.setattr(sparsity, "retained_inputs", lambda *_: everything)
    found = find_sparsity(
        z,
        z,
        ("a", "b", "u"),
        None,
        states=3,
        key=jax.random.key(0),
        config=PseudometricConfig(),
        check=1e-3,
    )
    assert found.reduction.names == ("a",)
    assert "none along the others" in found.disagreement


@pytest.mark.parametrize("equations_help", [True, False])
@pytest.mark.parametrize("learned_helps", [True, False])
def test_equations_for_a_part_come_before_a_learned_constraint_for_all(
    model, monkeypatch, equations_help, learned_helps
):
    own = model.constraint_fit.normal_space
    space = replace(own, basis=np.repeat(own.basis, 2, axis=1))  # of more than there are equations
    equations = replace(model.constraint_fit, normal_space=space)
    learned = replace(equations, gamma=unicycle().gamma)
    monkeypatch.setattr(discovery, "find_equations", lambda _: equations)
    monkeypatch.setattr(discovery, "choose_representation", lambda *_: (learned, "projector", {}))

    def by_equations(model, found):
        gamma = found.gamma if equations_help else None
        return replace(model, predictor=Predictor(model.world, gamma), constraint_fit=found)

    def by_learned(model, gamma):
        return replace(model, predictor=Predictor(model.world, gamma if learned_helps else None))

    monkeypatch.setattr(discovery, "constrain_by", by_equations)
    monkeypatch.setattr(discovery, "constrain", by_learned)
    found = discovery.discover(model)
    wanted = learned if learned_helps and not equations_help else equations
    helped = equations_help or learned_helps
    assert found.constraint_fit is wanted
    assert found.predictor.gamma is (wanted.gamma if helped else None)


def with_another_law(model, weights):
    """What the model found, and a law without functions of the state: weights · (x', 1) = 0."""
    found = model.constraint_fit
    more = np.zeros((1, *found.gamma.weights.shape[1:]))
    more[0, 0] = weights
    both = jnp.concatenate([jnp.asarray(more), found.gamma.weights])
    return replace(
        found,
        gamma=replace(found.gamma, weights=both),
        retained=((), *found.retained),
        equations=(Equation("false", 0.0), *found.equations),
    )


def test_a_false_law_does_not_cost_the_true_ones(model):
    both = with_another_law(model, [0, 0, 1, -0.5])  # it turns at the same rate all the time
    constrained = constrain_by(model, both)
    assert constrained.constraints.c == 1
    np.testing.assert_array_equal(
        constrained.predictor.gamma.weights, model.constraint_fit.gamma.weights
    )
    assert constrained.choices.used == "tangent"
    (left_out,) = constrained.choices.left_out
    assert left_out.startswith("false")
    assert f"left out, of no help held out: {left_out}" in constrained.summary()


@pytest.mark.parametrize("better", [True, False])
def test_being_drawn_to_all_laws_stays_where_obeying_some_is_clearly_worse(
    model, monkeypatch, better
):
    both = with_another_law(model, [0, 0, 1, -0.5])
    true = model.constraint_fit.gamma

    def constrain(candidate, gamma):
        used = "soft" if gamma.weights.shape[0] == 2 else "tangent"
        choices = replace(candidate.choices, used=used)
        return replace(candidate, predictor=Predictor(model.world, gamma), choices=choices)

    def judged(predictor, *_):  # none 1, the first law alone 4, the second alone 1, both as asked
        rows = () if predictor.gamma is None else predictor.gamma.weights
        first = len(rows) == 1 and not np.array_equal(rows, true.weights)
        both_of_them = 0.5 if better else 1.0
        return [np.full(8, both_of_them if len(rows) == 2 else 4.0 if first else 1.0)]

    monkeypatch.setattr(structure, "constrain", constrain)
    monkeypatch.setattr(structure, "_judged", judged)
    found = constrain_by(model, both)
    assert found.choices.used == ("soft" if better else "tangent")
    assert found.constraint_fit.c == (2 if better else 1)


@pytest.mark.slow
def test_past_commands_are_found_to_matter_where_motors_lag():
    system, rng = unicycle(), np.random.default_rng(0)
    logs = []
    for _ in range(6):
        u = np.repeat(rng.uniform([-1.0, 0.0], [1.0, 1.5], (12, 2)), 5, axis=0)
        late = np.concatenate([u[:1], u[:1], u[:-2]])  # what the robot does: two steps behind
        x = rollout(system.f, jnp.asarray(rng.uniform(-1, 1, 3)), jnp.asarray(late), system.dt)
        logs.append(offmap.Trajectory(np.asarray(x), u, dt=system.dt))
    data = offmap.Dataset(logs, system.state_names, system.control_names, ("theta",))
    model = offmap.fit(data, history=2)
    assert set(model.retained.dynamics) == {"theta", "omega[-2]", "v[-2]"}
    assert set(model.retained.tangent) == {"omega[-2]", "v[-2]"}
    samples = model.dataset.samples()
    assert np.abs(np.asarray(model.predict(samples.x, samples.u)) - samples.xdot).max() < 1e-6

"""The whole pipeline on the unicycle: what a fit finds, and what its model promises."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import config as jaxtyping_config

import offmap
from offmap.config import Config
from offmap.constraint import ConstraintConfig, fit_constraint
from offmap.gp import GPConfig
from offmap.rollout import cumulative_error, rollout
from offmap.systems import Box, unicycle

SYSTEM = unicycle()
OFFLINE = Box((-10.0, -10.0, -np.pi / 3), (10.0, 10.0, np.pi / 3))
ONLINE = Box((15.0, 15.0, np.pi / 3), (20.0, 20.0, np.pi / 2))


@jax.jit
def simulate(starts, controls):
    return jax.vmap(lambda x, u: rollout(SYSTEM.f, x, u, SYSTEM.dt))(starts, controls)


def drive(box, count, actions, hold, seed, source="offline", noise=0.0):
    """Euler trajectories under random controls, each held for some steps, as in the paper."""
    keys = jax.random.split(jax.random.key(seed), 3)
    controls = jnp.repeat(SYSTEM.controls.sample(keys[1], count, actions), hold, axis=1)
    states = np.asarray(simulate(box.sample(keys[0], count), controls))
    states = states + noise * np.asarray(jax.random.normal(keys[2], states.shape))
    return [
        offmap.Trajectory(x, u, dt=SYSTEM.dt, source=source)
        for x, u in zip(states, controls, strict=True)
    ]


def dataset(logs):
    return offmap.Dataset(logs, SYSTEM.state_names, SYSTEM.control_names, SYSTEM.angles)


def points(count=12, seed=0, reach=1.0):
    """States and controls, at `reach` = 1 inside the offline data."""
    rng = np.random.default_rng(seed)
    x = reach * rng.uniform(OFFLINE.low, OFFLINE.high, (count, 3))
    return x, rng.uniform(SYSTEM.controls.low, SYSTEM.controls.high, (count, 2))


def points_gap(first, second, count=12):
    """Largest difference between the predictions of two models, inside and outside the data."""
    pairs = [points(count), points(count, seed=1, reach=1.6)]
    return max(np.abs(first.predict(*pair) - second.predict(*pair)).max() for pair in pairs)


def angle_to_truth(gamma):
    """Largest angle between the learned and the true row over headings in and near the data."""
    theta = np.linspace(-1.5, 1.5, 50)
    learned = gamma(np.column_stack([0 * theta, 0 * theta, theta]))[:, 0]
    true = np.stack([-np.sin(theta), np.cos(theta), 0 * theta, 0 * theta], axis=1)
    learned = learned / np.linalg.norm(learned, axis=1, keepdims=True)
    along = np.sum(learned * true, axis=1, keepdims=True)
    return np.arcsin(np.linalg.norm(learned - along * true, axis=1).clip(max=1)).max()


def rollout_error(model, logs):
    """Mean cumulative error over test drives (eq. loss)."""
    x, u = (np.stack([getattr(log, name) for log in logs]) for name in ("x", "u"))
    predicted = model.rollout(x[:, 0], u)
    return float(jnp.mean(cumulative_error(jnp.asarray(x), jnp.asarray(predicted))))


@pytest.fixture
def as_a_user():
    """No shape checker: what a user passes reaches our own checks."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def offline():
    return drive(OFFLINE, 10, 25, 1, seed=0)


@pytest.fixture(scope="module")
def online():
    (log,) = drive(ONLINE, 1, 5, 5, seed=1, source="online")
    return log


@pytest.fixture(scope="module")
def noisy():
    (log,) = drive(ONLINE, 1, 5, 5, seed=1, source="online", noise=0.05)
    return log


@pytest.fixture(scope="module")
def model(offline):
    return offmap.fit(dataset(offline), preset="paper")


@pytest.fixture(scope="module")
def plain(offline):
    """The paper's DGP + none."""
    return offmap.fit(dataset(offline), preset="paper", project="none")


# --- what a fit finds


def test_irrelevant_inputs_are_dropped(model):
    assert model.retained.dynamics == ("theta", "omega", "v")
    assert model.retained.constraint == (("theta",),)


def test_the_constraint_is_found(model):
    found = model.constraints
    assert found.c == 1
    assert found.singular_values.shape == (4,)
    assert found.singular_values[2] > 1e3 * found.singular_values[3]
    assert found.gamma(np.zeros(3)).shape == (1, 4)
    assert found.gamma(np.zeros((2, 5, 3))).shape == (2, 5, 1, 4)
    assert angle_to_truth(found.gamma) < 1e-3


def test_the_equation_is_the_papers(model):
    (equation,) = model.constraints.equations
    assert equation.text in (
        "−sin(theta)·px' + cos(theta)·py' = 0",
        "sin(theta)·px' − cos(theta)·py' = 0",
    )
    assert equation.residual < 1e-3


def test_the_summary_tells_what_was_found(model):
    text = model.summary()
    kept, dropped = (
        next(line for line in text.splitlines() if word in line) for word in ("kept", "dropped")
    )
    assert all(name in kept for name in ("theta", "omega", "v "))
    assert "px" in dropped
    assert "py" in dropped
    assert "theta" not in dropped
    assert "c = 1" in text
    assert model.constraints.equations[0].text in text
    assert "250 samples (250 offline)" in text


def test_predictions_are_close_to_the_true_dynamics(model):
    x, u = points()
    np.testing.assert_allclose(
        model.predict(x, u), jax.vmap(SYSTEM.f)(jnp.asarray(x), jnp.asarray(u)), atol=1e-3
    )


def test_the_same_seed_gives_identical_predictions(model, offline):
    again = offmap.fit(dataset(offline), preset="paper", seed=0)
    assert points_gap(model, again) == 0.0


# --- prediction


def test_predictions_satisfy_the_learned_constraint_everywhere(model):
    for reach in (1.0, 4.0):
        x, u = points(reach=reach)
        augmented = np.column_stack([model.predict(x, u), np.ones(len(x))])
        violation = np.einsum("kcq,kq->kc", model.constraints.gamma(x), augmented)
        assert np.abs(violation).max() < 1e-12


def test_leading_dimensions_broadcast(model):
    x, u = points()
    single = model.predict(x[0], u[0])
    assert isinstance(single, np.ndarray)
    assert single.shape == (3,)
    table = model.predict(x[:4, None], u[None, :3])
    assert table.shape == (4, 3, 3)
    for i, j in np.ndindex(4, 3):
        np.testing.assert_allclose(table[i, j], model.predict(x[i], u[j]), atol=1e-12)
    mean, std = model.predict(x[:4, None], u[None, :3], return_std=True)
    np.testing.assert_allclose(mean, table, atol=1e-12)
    assert isinstance(std, np.ndarray)
    assert std.shape == (4, 3, 3)


def test_a_model_is_a_jax_function(model):
    x, u = points(count=3)
    expected = model.predict(x, u)
    np.testing.assert_allclose(jax.jit(model)(x[0], u[0]), expected[0], atol=1e-12)
    batched = jax.jit(jax.vmap(model))
    np.testing.assert_allclose(batched(x, u), expected, atol=1e-12)
    by_x, by_u = jax.jit(jax.jacobian(model, argnums=(0, 1)))(x[0], u[0])
    np.testing.assert_array_equal(by_x[:, :2], np.zeros((3, 2)))  # positions were dropped
    step = 1e-4
    for k in range(3):
        nudge = step * np.eye(3)[k]
        ends = batched(np.stack([x[0] - nudge, x[0] + nudge, x[0]]), np.tile(u[0], (3, 1)))
        np.testing.assert_allclose(by_x[:, k], (ends[1] - ends[0]) / (2 * step), atol=1e-4)
    for k in range(2):
        nudge = step * np.eye(2)[k]
        ends = batched(np.tile(x[0], (3, 1)), np.stack([u[0] - nudge, u[0] + nudge, u[0]]))
        np.testing.assert_allclose(by_u[:, k], (ends[1] - ends[0]) / (2 * step), atol=1e-4)


def test_no_uncertainty_remains_across_the_manifold(model):
    # What is left lies along (cos θ, sin θ): the two standard deviations stand in that ratio.
    known = model.with_constraint(SYSTEM.gamma)
    x, u = points(reach=1.4)
    _, std = known.predict(x, u, return_std=True)
    assert np.all(std >= 0)
    np.testing.assert_allclose(
        std[:, 0] * np.abs(np.sin(x[:, 2])), std[:, 1] * np.abs(np.cos(x[:, 2])), atol=1e-12
    )
    x[:, 2] = 0.0
    _, std = model.predict(x, u, return_std=True)
    _, before = model.with_constraint(None).predict(x, u, return_std=True)
    assert np.all(std[:, 1] < 0.1 * before[:, 1])  # what is left is doubt of the learned rows
    np.testing.assert_allclose(std[:, [0, 2]], before[:, [0, 2]], rtol=1e-3)


def test_uncertainty_grows_away_from_the_data(model):
    x, u = points()
    far = x + np.array([0.0, 0.0, 6.0])
    _, near_std = model.predict(x, u, return_std=True)
    _, far_std = model.predict(far, u, return_std=True)
    assert np.median(far_std[:, 0]) > 10 * np.median(near_std[:, 0])


# --- rollouts


def test_rollout_equals_a_loop_of_predictions(model):
    x, u = points()
    starts, controls = x[:2], u.reshape(2, 6, 2)
    states = model.rollout(starts, controls)
    assert isinstance(states, np.ndarray)
    assert states.shape == (2, 7, 3)
    x = starts
    for t in range(6):
        np.testing.assert_allclose(states[:, t], x, atol=1e-12)
        x = x + SYSTEM.dt * model.predict(x, controls[:, t])
    np.testing.assert_allclose(states[:, 6], x, atol=1e-12)


def test_rollouts_broadcast_and_take_another_step(model):
    x, u = points()
    start, controls = x[0], u.reshape(2, 6, 2)
    fan = model.rollout(start, controls)
    np.testing.assert_array_equal(fan, model.rollout(np.stack([start, start]), controls))
    alone = model.rollout(start, controls[0], dt=0.05)
    assert alone.shape == (7, 3)
    np.testing.assert_allclose(alone[1] - start, (fan[0, 1] - start) / 2, atol=1e-12)


def test_rollouts_can_use_runge_kutta(model):
    better = replace(model, config=replace(model.config, integrator="rk4"))
    start, control, steps = np.array([0.0, 0.0, -0.5]), np.array([0.2, 1.5]), 40
    heading = start[2] + control[0] * SYSTEM.dt * steps
    radius = control[1] / control[0]
    turn = [np.sin(heading) - np.sin(start[2]), np.cos(start[2]) - np.cos(heading)]
    controls = np.tile(control, (steps, 1))
    arc_end = radius * np.array(turn)
    euler, rk4 = (
        np.linalg.norm(each.rollout(start, controls)[-1, :2] - arc_end) for each in (model, better)
    )
    assert euler > 0.02  # what Euler makes of an arc, whatever the model
    assert rk4 < 1e-3


# --- variants


def test_without_projection_predictions_are_the_gps(model, plain):
    assert plain.constraints.c == 0
    assert plain.constraints.gamma(np.zeros((5, 3))).shape == (5, 0, 4)
    assert plain.constraints.equations == ()
    assert points_gap(plain, model.with_constraint(None)) == 0.0
    assert points_gap(plain, model) > 1e-8


def test_a_known_constraint_is_enforced_exactly(offline, plain):
    known = offmap.fit(dataset(offline), preset="paper", project=SYSTEM.gamma)
    x, u = points(reach=1.6)
    xdot = known.predict(x, u)
    sideways = -np.sin(x[:, 2]) * xdot[:, 0] + np.cos(x[:, 2]) * xdot[:, 1]
    assert np.abs(sideways).max() < 1e-14
    normal = np.stack([-np.sin(x[:, 2]), np.cos(x[:, 2]), 0 * x[:, 2]], axis=1)
    free = plain.predict(x, u)
    expected = free - np.sum(normal * free, axis=1, keepdims=True) * normal
    np.testing.assert_allclose(xdot, expected, atol=1e-13)
    assert known.constraints.c == 1
    assert known.constraints.equations[0].residual < 1e-12
    assert known.constraints.singular_values.size == 0


def test_without_sparsification_every_input_is_kept(offline):
    full = offmap.fit(dataset(offline), preset="paper", sparsify=False, project="none")
    assert full.retained.dynamics == ("px", "py", "theta", "omega", "v")
    x, u = points()
    np.testing.assert_allclose(
        full.predict(x, u), jax.vmap(SYSTEM.f)(jnp.asarray(x), jnp.asarray(u)), atol=1e-2
    )
    assert "no sparsification" in full.summary()


def test_where_no_constraint_is_found_the_model_says_so(offline, plain):
    config = replace(Config.preset("paper"), constraint=ConstraintConfig(min_gap=1e12))
    free = offmap.fit(dataset(offline), config=config)
    assert free.constraints.c == 0
    assert free.constraints.singular_values.shape == (4,)
    assert "no gap in the spectrum: predictions are not projected" in free.summary()
    assert points_gap(free, plain) == 0.0


def test_a_model_reduced_to_its_mean_predicts_the_same_and_refuses_the_rest(model, online):
    light = model.mean_only()
    assert points_gap(light, model) == 0.0
    for needs_factor in (
        lambda: light.predict(*points(), return_std=True),
        lambda: light.update(online),
    ):
        with pytest.raises(ValueError, match=r"need the factorised covariance; .*before"):
            needs_factor()


# --- online data


def test_update_equals_a_fit_to_all_data(plain, offline, online):
    together = offmap.fit(dataset([*offline, online]), preset="paper", project="none")
    updated = plain.update(online)
    assert points_gap(plain, updated) > 1e-8  # the online data say something
    assert points_gap(together, updated) < 1e-10
    assert len(updated.dataset) == 11


def test_two_updates_from_two_sources_equal_one_fit(plain, offline, online):
    (second,) = drive(ONLINE, 1, 5, 5, seed=2, source="second")
    step_by_step = plain.update(online).update(second)
    together = offmap.fit(dataset([*offline, online, second]), preset="paper", project="none")
    assert points_gap(together, step_by_step) < 1e-10


def test_a_learned_constraint_survives_an_update(model, online):
    updated = model.update(online)
    x, _ = points()
    np.testing.assert_array_equal(updated.constraints.gamma(x), model.constraints.gamma(x))


def test_update_uses_data_of_the_primary_source(plain):
    (more,) = drive(ONLINE, 1, 5, 5, seed=1)
    x, u = more.x[:-1], more.u
    truth = np.diff(more.x, axis=0) / SYSTEM.dt
    before, after = (np.abs(m.predict(x, u) - truth).max() for m in (plain, plain.update(more)))
    assert after < 0.5 * before


@pytest.fixture(scope="module")
def shared(offline, noisy):
    """One noise level for clean and noisy data, as the paper's text has it."""
    config = replace(Config.preset("paper"), project="none", dynamics=GPConfig(noise="shared"))
    return offmap.fit(dataset([*offline, noisy]), config=config)


def test_update_with_shared_noise_counts_every_sample_once(shared):
    (more,) = drive(ONLINE, 1, 5, 5, seed=3, source="online")
    updated = shared.update(more)
    assert updated.predictor.dynamics.regressor.x.shape[0] == len(updated.dataset.samples())


def test_one_noise_level_per_source_beats_a_shared_one(plain, shared, noisy):
    # docs/deviations.md: noisy online data must not blur the clean offline data.
    tests = drive(ONLINE, 3, 10, 5, seed=7)
    per_source = plain.update(noisy)
    assert rollout_error(shared, tests) > 20 * rollout_error(per_source, tests)
    assert rollout_error(per_source, tests) < 1.05 * rollout_error(plain, tests)
    noise = np.asarray(per_source.predictor.dynamics.regressor.noise)
    assert np.all(noise[:, 250:] > 100 * noise[:, :250].max())


def test_sampling_at_noisy_states_drags_the_constraint(plain, noisy):
    # docs/deviations.md: the normal space is computed at states of the primary source.
    updated = plain.update(noisy)
    angles = {}
    for where in ("primary", "all"):
        fit = fit_constraint(
            updated.predictor.dynamics,
            updated.dataset.samples(),
            0,
            SYSTEM.state_names,
            key=jax.random.key(0),
            config=ConstraintConfig(sample_at=where, samples=250, kernels=("cosine",)),
        )
        angles[where] = angle_to_truth(plain.with_constraint(fit.gamma, fit).constraints.gamma)
    assert angles["primary"] < 1e-4
    assert angles["all"] > 10 * angles["primary"]


# --- refusals: the rule, what was received, what to do


@pytest.mark.parametrize(
    ("x", "u", "message"),
    [
        (np.zeros(4), np.zeros(2), r"`x` needs 3 numbers.*got shape \(4,\)\. Check"),
        (np.zeros((5, 3)), np.zeros((5, 1)), r"`u` needs 2 numbers.*got shape \(5, 1\)\. Check"),
        (np.zeros((2, 3)), np.zeros((3, 2)), r"broadcast; got \(2,\) and \(3,\)\. Give"),
        (np.array([0, np.nan, np.nan]), np.zeros(2), r"`x` must be finite; 2 of.*Remove"),
        (np.zeros(3), np.array([np.inf, 0]), r"`u` must be finite; 1 of.*Remove"),
        (0.0, np.zeros(2), r"`x` needs 3 numbers.*got shape \(\)\. Check"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(model, x, u, message):
    with pytest.raises(ValueError, match=message):
        model.predict(x, u)


def test_rollout_inputs_that_do_not_fit_are_refused(model):
    with pytest.raises(ValueError, match=r"`controls` needs at least 2 dimensions.*got shape \(2,"):
        model.rollout(np.zeros(3), np.zeros(2))
    with pytest.raises(ValueError, match=r"`x0` must be finite"):
        model.rollout(np.full(3, np.nan), np.zeros((4, 2)))
    with pytest.raises(ValueError, match=r"got \(2,\) and \(3,\)\. Give"):
        model.rollout(np.zeros((2, 3)), np.zeros((3, 4, 2)))


def test_a_known_constraint_of_the_wrong_shape_is_refused(offline, as_a_user):
    for gamma in (lambda x: jnp.zeros((1, 3)), lambda x: jnp.zeros(4)):
        with pytest.raises(ValueError, match=r"\(c, 4\) matrix.*got shape .*Append the column g"):
            offmap.fit(dataset(offline), project=gamma)


def test_unknown_choices_are_refused(offline, as_a_user):
    with pytest.raises(ValueError, match=r'"default" or "paper"; got \'best\'\. Choose'):
        offmap.fit(dataset(offline), preset="best")
    with pytest.raises(
        ValueError, match=r"\"none\", \"learned\" or a function.*got 'soft'\. Choose"
    ):
        offmap.fit(dataset(offline), project="soft")


@pytest.mark.parametrize("dt", [0.0, -0.1])
def test_a_step_that_is_not_positive_is_refused(model, dt):
    with pytest.raises(ValueError, match="dt"):
        model.rollout(np.zeros(3), np.zeros((6, 2)), dt=dt)


def test_an_empty_batch_gives_an_empty_answer(model):
    assert model.predict(np.zeros((0, 3)), np.zeros((0, 2))).shape == (0, 3)

"""Sampled rollouts spread as `predict` says, and keep to one function and to the constraint."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_models import dictionary_of, gps_on, logs, predictor_of

from offmap.calls import at_each
from offmap.constraint import DictionaryConstraint
from offmap.constraint.doubt import weight_doubt
from offmap.constraint.library import Library
from offmap.data import Dataset
from offmap.dynamics import Dynamics, reduced_inputs, targets
from offmap.features import Features
from offmap.mlp import MLPConfig, fit_mlp
from offmap.predictor import Predictor
from offmap.pseudometric import Reduction
from offmap.systems import rolling_disk, unicycle
from offmap.tangent import tangent_frame


def with_predictor(model, predictor):
    return replace(model, predictor=predictor, world=predictor.dynamics)


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(f, marks=pytest.mark.slow) for f in ("projected", "soft")), "tangent"],
)
def constrained(request, model):
    form, reduction = request.param, model.predictor.dynamics.reduction
    kernel = "rbf" if form == "soft" else "bilinear"
    found = predictor_of(
        unicycle(), model.dataset, kernel, "dictionary", form == "tangent", reduction, noise=0.1
    )
    if form == "soft":
        found = Predictor(found.dynamics, found.gamma, jnp.full(1, 0.05))
    return with_predictor(model, found)


def test_one_step_spreads_as_the_standard_deviation(constrained):
    """Twice as far along with twice the step, and the same draws for the same seed."""
    x, u = np.array([[4.0, 3.0, 0.3], [9.0, 0.0, 1.6]]), np.array([[[0.1, 1.0]], [[-0.1, 1.4]]])
    mean, std = constrained.predict(x, u[:, 0], return_std=True)
    states = constrained.rollout(x, u, samples=600)
    assert states.shape == (600, 2, 2, 3)
    rate = (states[:, :, 1] - x) / constrained.dataset.dt
    widest = std.max()
    assert np.max(np.abs(rate.mean(axis=0) - mean)) < 4.5 * widest / np.sqrt(600)
    np.testing.assert_allclose(rate.std(axis=0), std, rtol=0.15, atol=1e-3 * widest)
    few = [constrained.rollout(x, u, samples=3, seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(few[0], few[1])
    assert not np.allclose(few[0], few[2], rtol=1e-9)


def test_spread_grows_with_the_steps_and_not_with_their_root(model):
    """Standing still on average, the same error at every step carries a draw away in proportion."""
    free = predictor_of(
        unicycle(), model.dataset, "linear", None, False, model.predictor.dynamics.reduction, 0.3
    )
    states = with_predictor(model, free).rollout(np.zeros(3), np.zeros((40, 2)), samples=300)
    spread = states[:, :, 2].std(axis=0)  # θ' depends on θ hardly at all
    assert spread[40] / spread[10] == pytest.approx(4.0, rel=0.25)


def test_what_straight_functions_miss_is_in_draws_and_deviations(model):
    """Lines cannot turn with the heading, and miss more beyond the data."""
    reduction = model.predictor.dynamics.reduction
    lines = predictor_of(unicycle(), model.dataset, "linear", None, False, reduction)
    straight = with_predictor(model, lines)
    missed = np.any(np.asarray(straight.doubt.strayed.deviation) > 0, axis=1)
    np.testing.assert_array_equal(missed[:2], True)
    x, u = np.array([[4.0, 3.0, 0.3], [4.0, 3.0, 1.5]]), np.array([[[0.1, 1.0]]] * 2)
    _, std = straight.predict(x, u[:, 0], return_std=True)
    rate = (straight.rollout(x, u, samples=1000)[:, :, 1] - x) / straight.dataset.dt
    np.testing.assert_allclose(rate.std(axis=0), std, rtol=0.1)
    assert np.all(std[1, :2] > 1.2 * std[0, :2])


@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_draws_obey_a_firm_constraint_each_its_own(model, apart):
    """Of two weights, if one is not just the other; if it is, there is none to get wrong."""
    gamma = model.predictor.gamma
    weights = np.asarray(gamma.weights) * (1 - apart * (np.asarray(gamma.weights) < 0))
    gamma = DictionaryConstraint(gamma.library, jnp.asarray(weights))
    doubtful = with_predictor(model, Predictor(model.predictor.dynamics, gamma))
    states = doubtful.rollout(np.array([0.0, 0.0, 0.4]), np.full((5, 2), 0.3), samples=4)
    velocity = np.diff(states, axis=1) / model.dataset.dt
    drawn = doubtful.draw(4).weights
    assert (drawn is None) == (apart == 0)
    for i, weights in enumerate([gamma.weights] * 4 if drawn is None else drawn):
        rows = jax.vmap(DictionaryConstraint(gamma.library, weights))(states[i, :-1])
        left = np.einsum("tcn,tn->tc", rows[..., :-1], velocity[i]) + rows[..., -1]
        np.testing.assert_allclose(left, 0.0, atol=1e-9)


def test_weights_are_as_far_off_as_refits_to_other_noise(model):
    """Standard errors against the spread of least squares over many noisy copies of the data."""
    gamma, samples = model.predictor.gamma, model.dataset.samples()
    rng, sizes, refits = np.random.default_rng(0), [], []
    sine, cosine = np.sin(samples.x[:, 2]), np.cos(samples.x[:, 2])
    for _ in range(300):
        xdot = samples.xdot + 0.05 * rng.normal(size=samples.xdot.shape)
        # cos(theta) py' = w sin(theta) px', the larger weight being fixed
        term = sine * xdot[:, 0]
        w = float(term @ (cosine * xdot[:, 1]) / (term @ term))
        refits.append(w)
        library = gamma.library
        weights = np.zeros(gamma.weights.shape)
        weights[0, library.labels.index("sin(theta)"), 0] = w
        weights[0, library.labels.index("cos(theta)"), 1] = -1.001
        doubted = DictionaryConstraint(library, jnp.asarray(weights))
        found, _ = weight_doubt(doubted, samples.x, xdot)
        sizes.append(np.sqrt(np.sum(found**2)))
    assert np.median(sizes) == pytest.approx(np.std(refits), rel=0.2)


def test_weights_are_doubted_by_however_few_samples():
    library = Library(("a", "b", "c"), (), ())
    weights = np.zeros((1, len(library.labels), 4))
    weights[0, 0] = 1.0, 0.5, 0.25, 0.125
    rng = np.random.default_rng(0)
    for count in (1, 2, 30):
        x, xdot = rng.normal(size=(2, count, 3))
        found, shares = weight_doubt(DictionaryConstraint(library, jnp.asarray(weights)), x, xdot)
        assert found.shape == (min(count, 3), *weights.shape)
        np.testing.assert_allclose(shares @ shares.T, np.eye(len(found)), atol=1e-9)


@pytest.fixture(scope="module")
def rolling():
    """A disk whose radius and dynamics are learned from one set of noisy samples."""
    system = rolling_disk()
    exact = logs(system, (3.0, 3.0, 1.0, 1.0), 6, 20)
    features = Features(exact.input_names, exact.angle_indices)
    rows = jnp.eye(len(features.names))[-system.m :]
    reduction = Reduction(rows, system.control_names, features)
    truth = dictionary_of(system, exact.angle_indices)

    def learned(seed, model):
        rng, samples = np.random.default_rng(seed), exact.samples()
        size = 0.02 * samples.xdot.std(axis=0)
        drives = [
            replace(t, xdot=t.samples()[2] + size * rng.normal(size=t.samples()[2].shape))
            for t in exact.trajectories
        ]
        dataset = Dataset(drives, system.state_names, system.control_names, system.angles)
        x, xdot = dataset.samples().x, dataset.samples().xdot
        weights = np.asarray(truth.weights).copy()
        for row, turn in enumerate((np.cos(x[:, 2]), np.sin(x[:, 2]))):
            term, free = turn * xdot[:, 3], (weights[row] != 0) & (np.abs(weights[row]) < 0.9)
            weights[row][free] = -(term @ xdot[:, row]) / (term @ term)
        gamma = DictionaryConstraint(truth.library, jnp.asarray(weights))
        frame = tangent_frame(gamma, x, exact.angle_indices)
        y = targets(dataset.samples(), frame)
        gps = gps_on(reduced_inputs(dataset.samples(), reduction), y, "linear", (), 4e-4)
        predictor = Predictor(Dynamics(reduction, gps, frame), gamma)
        return replace(with_predictor(model, predictor), dataset=dataset)

    return system, learned


@pytest.mark.slow
def test_noise_that_moves_the_weights_moves_the_function_too(rolling, model):
    """Errors over many noisy copies of the data are as large as the standard deviation says."""
    system, learned = rolling
    x = np.array([[0.0, 0.0, 0.5, 0.0], [9.0, 0.0, 0.9, 1.0]])
    u = np.array([[0.1, 2.5], [-0.3, 2.9]])
    truth = np.asarray(jax.vmap(system.f)(jnp.asarray(x), jnp.asarray(u)))
    squares, apart = [], []
    for seed in range(30):
        found = learned(seed, model)
        mean, std = found.predict(x, u, return_std=True)
        squares.append(((mean - truth) / std)[:, :2] ** 2)
        alone = at_each(replace(found.doubt, along=()).std, x, u)
        apart.append(((mean - truth) / np.asarray(alone))[:, :2] ** 2)
    assert 0.7 < np.mean(squares) < 1.3 and np.mean(apart) < 0.6


@pytest.mark.slow
def test_draws_share_noise_as_the_standard_deviation_has_it(rolling, model):
    _, learned = rolling
    found = learned(0, model)
    x, u = np.array([0.0, 0.0, 0.5, 0.0]), np.array([[0.1, 2.5]])
    _, std = found.predict(x, u[0], return_std=True)
    rate = (found.rollout(x, u, samples=2000)[:, 1] - x) / found.dataset.dt
    np.testing.assert_allclose(rate.std(axis=0), std, rtol=0.06)
    apart = np.asarray(replace(found.doubt, along=()).std(jnp.asarray(x), jnp.asarray(u[0])))
    assert apart[0] > 1.2 * std[0]


def test_members_of_an_ensemble_are_its_draws(model):
    own, samples = model.predictor.dynamics, model.dataset.samples()
    config = MLPConfig(members=3, width=8, steps=30)
    networks = fit_mlp(
        reduced_inputs(samples, own.reduction),
        samples.xdot,
        samples.source,
        key=jax.random.key(0),
        config=config,
    )
    ensemble = with_predictor(model, Predictor(Dynamics(own.reduction, networks), None))
    x, u = samples.x[0], samples.u[:1]
    states = ensemble.rollout(x, u, samples=4)
    rate = (states[:, 1] - x) / model.dataset.dt
    z = own.reduction(jnp.concatenate([samples.x[0], samples.u[0]]))
    members = np.asarray(networks.members(z))
    np.testing.assert_allclose(rate, members[[0, 1, 2, 0]], atol=1e-9)


def test_draws_ask_for_what_they_need(model):
    x, u = np.zeros(3), np.zeros((2, 2))
    with pytest.raises(ValueError, match="At least one sample has to be drawn; got 0"):
        model.rollout(x, u, samples=0)
    with pytest.raises(ValueError, match="reduced to its mean"):
        model.mean_only().rollout(x, u, samples=2)
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(model.draw(2).functions.alpha))

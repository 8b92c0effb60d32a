"""Trust falls with the distance that matters, and ranks the errors of predictions."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from control_models import predictor_of
from scipy.stats import spearmanr

from offmap.predictor import Predictor
from offmap.pseudometric import Pseudometric, retained_inputs
from offmap.systems import unicycle
from offmap.trust import doubling_distance, fit_trust


def test_trust_is_one_on_the_data_and_falls_away_from_it(model):
    samples = model.dataset.samples()
    np.testing.assert_allclose(model.trust(samples.x, samples.u), 1.0, atol=1e-9)
    faster = [model.trust(samples.x, samples.u + np.array([0.0, v])) for v in (2.0, 4.0)]
    assert np.all(faster[0] < 1)
    assert np.all(faster[1] < faster[0])
    assert np.all(faster[1] >= 0)
    assert np.isnan(
        model.trust(np.full(3, np.nan), samples.u[0])
    )  # nothing is said, least of all 1


def test_trust_halves_over_the_doubling_distance(model):
    score = model.trust_score
    x, u = jnp.zeros(3), jnp.array([0.1, 3.0])
    beyond = float(score.distance(x, u) - score.usual)
    assert beyond > 0
    assert float(score(x, u)) == pytest.approx(0.5 ** (beyond / float(score.doubling)))


def test_fresh_queries_among_the_data_are_trusted_more_than_those_beyond(model):
    rng = np.random.default_rng(1)
    u = rng.uniform([-0.2, 0.0], [0.2, 1.5], (300, 2))
    among = rng.uniform([-3, -3, -1], [3, 3, 1], (300, 3))
    beyond = among * np.array([1, 1, 0]) + np.array([0, 0, 2.5])
    assert np.median(model.trust(among, u)) > 0.5
    assert np.max(model.trust(beyond, u)) < 0.1


def test_inputs_the_dynamics_ignore_cost_no_trust(model):
    assert "px" not in model.retained.dynamics
    x, u = np.array([3.0, 1.0, 2.2]), np.array([0.1, 0.7])
    moved = x + np.array([500.0, -900.0, 2 * np.pi])  # a full turn is no motion either
    assert 0 < float(model.trust(x, u)) < 1
    assert float(model.trust(moved, u)) == pytest.approx(float(model.trust(x, u)), rel=1e-9)


def test_distance_is_that_of_the_pseudometric(model):
    """Diagonal with unequal scales, and full: as `Pseudometric.distance` on the kept directions."""
    samples, names = model.dataset.samples(), model.dataset.input_names
    z = np.concatenate([samples.x, samples.u], axis=1)
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    full = rotation @ np.diag([1.0, 0.5, 0.3, 0.0, 0.0]) @ rotation.T
    scale = jnp.asarray(z.std(axis=0))
    for P, diagonal in ((np.diag([0.0, 0.0, 0.5, 0.7, 1.0]), True), (full, False)):
        metric = Pseudometric(jnp.asarray(P), scale, jnp.zeros(1), diagonal, names)
        reduction = retained_inputs(metric, 0.01)
        own = predictor_of(unicycle(), model.dataset, "rbf", None, False, reduction).dynamics
        score = fit_trust(Predictor(own, None), metric, samples, 0)
        x, u = jnp.array([4.0, 1.0, 2.2]), jnp.array([0.5, 2.0])
        query = jnp.concatenate([x, u])
        nearest = min(float(metric.distance(query, jnp.asarray(row))) for row in z)
        assert float(score.distance(x, u)) == pytest.approx(nearest, rel=1e-6)


def test_trust_works_while_a_cost_is_compiled_and_differentiated(model):
    fresh = replace(model)  # has not calibrated its trust yet
    x, u = jnp.array([0.0, 0.0, 2.0]), jnp.array([0.1, 3.0])
    value, (by_x, by_u) = jax.jit(jax.value_and_grad(fresh.trust, argnums=(0, 1)))(x, u)
    assert float(value) == pytest.approx(float(model.trust(x, u)))
    assert by_u[1] < 0
    assert by_x[0] == 0


def test_trust_broadcasts_and_checks_shapes(model):
    assert model.trust(jnp.zeros((4, 1, 3)), jnp.full((5, 2), 0.1)).shape == (4, 5)
    with pytest.raises(ValueError, match="`u` needs 2 numbers"):
        model.trust(jnp.zeros(3), jnp.zeros(3))


def test_trust_ranks_errors_better_than_distance_in_raw_inputs(model):
    """Far from the data in what does not matter, nearer or farther in what does."""
    rng, samples = np.random.default_rng(0), model.dataset.samples()
    x = rng.uniform([-50, -50, -3], [50, 50, 3], (300, 3))
    u = rng.uniform([-0.2, 0.0], [0.2, 1.5], (300, 2))
    true = jax.vmap(unicycle().f)(jnp.asarray(x), jnp.asarray(u))
    free = predictor_of(
        unicycle(), model.dataset, "rbf", None, False, model.predictor.dynamics.reduction
    )
    plain = replace(model, predictor=free, world=free.dynamics)
    errors = np.linalg.norm(plain.predict(x, u) - true, axis=1)
    z, seen = (np.concatenate(pair, axis=1) for pair in ((x, u), (samples.x, samples.u)))
    raw = np.linalg.norm((z[:, None] - seen[None]) / seen.std(axis=0), axis=2).min(axis=1)
    ranked = spearmanr(1 - plain.trust(x, u), errors).statistic
    assert ranked > 0.6
    assert ranked > spearmanr(raw, errors).statistic + 0.2


@pytest.fixture(scope="module")
def straight(model):
    """The same robot in its tangent frame, where functions are straight."""
    own = predictor_of(unicycle(), model.dataset, "linear", "dictionary", True, noise=1e-2)
    return replace(model, predictor=own, world=own.dynamics)


def test_straight_functions_are_trusted_by_their_own_doubt(straight):
    """Twice as unsure as nine in ten samples are, half the trust; near to 1 among the data."""
    score, samples = straight.trust_score, straight.dataset.samples()
    unit = samples.xdot.std(axis=0)
    _, std = straight.predict(samples.x, samples.u, return_std=True)
    usual = np.quantile(np.mean((std / unit) ** 2, axis=1), 0.9)
    assert np.min(straight.trust(samples.x, samples.u)) > 0.6
    x, u = samples.x[:5], samples.u[:5] + np.array([0.3, 2.0])
    _, std = straight.predict(x, u, return_std=True)
    ratio = np.mean((std / unit) ** 2, axis=1) / usual
    assert np.min(ratio) > 2
    np.testing.assert_allclose(jax.vmap(score.leverage)(x, u), ratio, rtol=1e-6)
    near = replace(score, leverage=None)
    expected = np.asarray(jax.vmap(near)(x, u)) * (1 + ratio**2) ** -0.25
    np.testing.assert_allclose(straight.trust(x, u), expected, rtol=1e-6)
    at = (1 + 4.0**2) ** -0.25  # (s/s₀)² where s is twice s₀
    assert at == pytest.approx(0.5, abs=0.01)


def test_trust_in_straight_functions_ranks_where_no_sample_is_near_or_far(straight):
    """Among the data distance tells nothing; how far a function leans on its weights does."""
    samples = straight.dataset.samples()
    trust = straight.trust(samples.x, samples.u)
    _, std = straight.predict(samples.x, samples.u, return_std=True)
    unit = samples.xdot.std(axis=0)
    assert spearmanr(-trust, np.mean((std / unit) ** 2, axis=1)).statistic > 0.999


def test_trust_in_straight_functions_has_a_derivative_where_nothing_is_in_doubt(model):
    """Without a command nothing moves, and nothing is unsure."""
    own = predictor_of(unicycle(), model.dataset, "proportional", "dictionary", True)
    proportional = replace(model, predictor=own, world=own.dynamics)
    slopes = jax.grad(proportional.trust, argnums=(0, 1))(jnp.zeros(3), jnp.zeros(2))
    assert all(np.all(np.isfinite(slope)) for slope in slopes)


def test_doubling_distance_is_recovered():
    distance = np.linspace(0, 2, 200)
    errors = 1e-2 * 2 ** (distance / 0.5) * np.exp(np.random.default_rng(0).normal(size=200))
    assert doubling_distance(distance, errors) == pytest.approx(0.5, rel=0.25)
    # Errors that do not grow are no licence to go further than was tried.
    assert doubling_distance(distance, np.ones(200)) == 2.0
    assert doubling_distance(distance, 1 / errors) == 2.0

"""The contrastive loss against the paper's sum written out, and its gradient."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from offmap.pseudometric import info_nce

B, d = 7, 3
FORMS = pytest.mark.parametrize("standard", [False, True], ids=["printed", "standard"])
TEMPERATURES = pytest.mark.parametrize("temperature", [1.0, 0.1])


def problem(seed):
    """A batch far from the origin, where the guard of the norm is below round-off."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(d, d))
    anchors, positives = rng.uniform(2.0, 9.0, (2, B, d)) * rng.choice([-1.0, 1.0], (2, B, d))
    negative = rng.random((B, B)) < 0.6
    np.fill_diagonal(negative, False)
    negative[:, 0] |= ~negative.any(axis=1)
    return factor, anchors, positives, negative


def written_out(factor, anchors, positives, negative, temperature, standard):
    """Paper eq. contrastive, as two loops over the batch."""
    P = factor.T @ factor

    def sim(z, other):
        return (z @ P @ other) / (math.sqrt(z @ P @ z) * math.sqrt(other @ P @ other))

    total = 0.0
    for i in range(len(anchors)):
        numerator = math.exp(sim(anchors[i], positives[i]) / temperature)
        denominator = numerator if standard else 0.0
        for k in range(len(anchors)):
            if negative[i, k]:
                denominator += math.exp(sim(anchors[i], anchors[k]) / temperature)
        total -= math.log(numerator / denominator)
    return total / len(anchors)


def loss_of(arguments, temperature, standard):
    return info_nce(
        *map(jnp.asarray, arguments), temperature=temperature, positive_in_denominator=standard
    )


@FORMS
@TEMPERATURES
@pytest.mark.parametrize("seed", [0, 1])
def test_loss_is_the_papers_sum(seed, temperature, standard):
    arguments = problem(seed)
    expected = written_out(*arguments, temperature, standard)
    np.testing.assert_allclose(
        loss_of(arguments, temperature, standard), expected, rtol=1e-12, atol=1e-12
    )


def test_forms_differ_by_the_positive_in_the_denominator():
    # Only the standard form is bounded below by 0: its fraction is a probability.
    factor, anchors, _, negative = problem(2)
    arguments = factor, anchors, anchors, negative
    assert loss_of(arguments, 0.1, True) > 0
    assert loss_of(arguments, 0.1, False) < 0


@FORMS
def test_gradient_matches_finite_differences(standard):
    factor, anchors, positives, negative = problem(3)

    @jax.jit
    def loss(factor):
        return loss_of((factor, anchors, positives, negative), 0.3, standard)

    gradient = np.asarray(jax.grad(loss)(jnp.asarray(factor)))
    h = 1e-6
    numeric = np.zeros_like(factor)
    for index in np.ndindex(factor.shape):
        bump = np.zeros_like(factor)
        bump[index] = h
        numeric[index] = (loss(factor + bump) - loss(factor - bump)) / (2 * h)
    assert np.abs(numeric).max() > 1e-2
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)


def test_loss_does_not_change_with_the_scale_of_P():
    factor, *rest = problem(4)
    np.testing.assert_allclose(
        loss_of((factor, *rest), 0.1, False), loss_of((37 * factor, *rest), 0.1, False), rtol=1e-12
    )


def test_gradient_is_finite_for_a_point_at_the_origin():
    factor, anchors, positives, negative = problem(5)
    anchors[0] = 0.0

    @jax.jit
    def loss(factor):
        return loss_of((factor, anchors, positives, negative), 0.1, False)

    gradient = jax.grad(loss)(jnp.asarray(factor))
    assert np.isfinite(gradient).all()

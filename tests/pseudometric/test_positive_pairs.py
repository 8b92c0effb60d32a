"""Positive pairs against the paper's argmin, one point at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offmap.pseudometric import pairs, positive_pairs


def brute_force(inputs, outputs, epsilon):
    partner = []
    for i in range(len(inputs)):
        best, nearest = None, np.inf
        for j in range(len(inputs)):
            apart = np.linalg.norm(inputs[i] - inputs[j])
            if j == i or apart < epsilon:
                continue
            distance = np.linalg.norm(outputs[i] - outputs[j])
            if distance < nearest:
                best, nearest = j, distance
        partner.append(best)
    return np.array(partner)


def points(seed, count, d=3, p=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, d)), rng.normal(size=(count, p))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_partner_is_the_papers_argmin(epsilon):
    inputs, outputs = points(0, 40)
    partner = positive_pairs(inputs, outputs, epsilon)
    np.testing.assert_array_equal(partner, brute_force(inputs, outputs, epsilon))
    if epsilon:
        # The bound changes the answer, so this test can tell that it is applied.
        assert (partner != positive_pairs(inputs, outputs, 0.0)).any()


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(2, 12), repeat=st.booleans())
def test_nobody_is_their_own_partner_without_a_bound(seed, count, repeat):
    inputs, outputs = points(seed, count)
    if repeat:
        inputs[:], outputs[:] = inputs[0], outputs[0]
    partner = positive_pairs(inputs, outputs, 0.0)
    assert (partner != np.arange(count)).all()
    assert ((partner >= 0) & (partner < count)).all()


@given(seed=st.integers(0, 2**32 - 1), epsilon=st.floats(0.01, 1.0))
def test_partners_are_at_least_epsilon_away(seed, epsilon):
    inputs, outputs = points(seed, 60)
    partner = positive_pairs(inputs, outputs, epsilon)
    assert (np.linalg.norm(inputs - inputs[partner], axis=1) >= epsilon).all()


def test_epsilon_itself_is_far_enough():
    inputs = np.array([[0.0], [0.5], [2.0]])
    outputs = np.array([[0.0], [0.1], [5.0]])
    np.testing.assert_array_equal(positive_pairs(inputs, outputs, 0.5), [1, 0, 1])


@pytest.mark.parametrize("block", [1, 7, 13, 25, 26])
def test_blocks_do_not_change_the_partners(block, monkeypatch):
    inputs, outputs = points(1, 26)
    monkeypatch.setattr(pairs, "_BLOCK", block)
    np.testing.assert_array_equal(
        positive_pairs(inputs, outputs, 0.8), brute_force(inputs, outputs, 0.8)
    )


def test_more_points_than_one_block():
    count = pairs._BLOCK + 6
    inputs, outputs = points(2, count)
    partner = positive_pairs(inputs, outputs, 1.0)
    for i in [0, *range(count - 12, count)]:
        allowed = np.linalg.norm(inputs - inputs[i], axis=1) >= 1.0
        allowed[i] = False
        distance = np.where(allowed, np.linalg.norm(outputs - outputs[i], axis=1), np.inf)
        assert partner[i] == distance.argmin()


@pytest.mark.parametrize("block", [3, 1024])
def test_point_without_a_partner_is_named(block, monkeypatch):
    monkeypatch.setattr(pairs, "_BLOCK", block)
    # Point 4 sits in the middle; all others are far from each other but near to it.
    angles = 2 * np.pi * np.arange(7) / 7
    inputs = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    inputs[4] = 0.0
    with pytest.raises(ValueError) as error:
        positive_pairs(inputs, np.arange(7.0)[:, None], 1.2)
    message = str(error.value)
    assert "at least epsilon away" in message
    assert "epsilon=1.2" in message
    assert "point 4 " in message
    assert "among 7" in message
    assert "smaller epsilon or give more data" in message

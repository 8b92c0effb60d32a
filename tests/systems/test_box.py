"""Boxes: uniform samples inside the bounds, the same ones for the same key."""

import jax
import numpy as np
import pytest
from scipy.stats import kstest

from offmap.systems import Box

BOX = Box((-10.0, 2.0, 0.5), (10.0, 2.5, 0.5))


def test_samples_lie_inside_and_fill_the_box_evenly():
    points = np.asarray(BOX.sample(jax.random.key(0), 40, 50))
    assert points.shape == (40, 50, 3)
    assert np.all(points >= BOX.low)
    assert np.all(points <= BOX.high)
    assert np.all(points[..., 2] == 0.5)  # a side of length zero is a fixed coordinate
    for k in (0, 1):
        side = BOX.high[k] - BOX.low[k]
        share = (points[..., k].ravel() - BOX.low[k]) / side
        assert kstest(share, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(points[..., 0].ravel(), points[..., 1].ravel())[0, 1]) < 0.1


def test_a_key_fixes_the_samples():
    again = [np.asarray(BOX.sample(jax.random.key(7), 5)) for _ in range(2)]
    np.testing.assert_array_equal(*again)
    other = np.asarray(BOX.sample(jax.random.key(8), 5))
    assert np.all(again[0][:, :2] != other[:, :2])


def test_without_a_shape_one_point_is_drawn():
    assert BOX.sample(jax.random.key(0)).shape == (3,)


def test_bounds_of_different_number_are_refused():
    with pytest.raises(ValueError, match=r"as many lower as upper bounds; got 2 and 1\. Give"):
        Box((0.0, 0.0), (1.0,))


@pytest.mark.parametrize(
    ("low", "high"), [((0.0, 1.0), (1.0, 0.5)), ((float("nan"),), (1.0,)), ((0.0,), (np.nan,))]
)
def test_bounds_in_the_wrong_order_are_refused(low, high):
    with pytest.raises(ValueError, match=r"low <= high; got low=.*Swap"):
        Box(low, high)

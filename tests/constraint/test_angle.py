"""The angle between two constraints does not care how their rows are written."""

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from offmap.constraint.angle import largest_angle


def test_mixed_and_scaled_rows_are_the_same_constraint():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 3, 7))
    assert largest_angle(rng.normal(size=(20, 3, 3)) @ rows, rows) < 1e-12


def test_against_scipy():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=(2, 10, 2, 6))
    pairs = zip(first, second, strict=True)
    expected = max(subspace_angles(a.T, b.T).max() for a, b in pairs)
    assert largest_angle(first, second) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("angle", [1e-12, 1e-6, 0.3])
def test_small_angles_keep_their_digits(angle):
    rows = np.array([[[1.0, 0.0, 0.0]]])
    turned = np.array([[[np.cos(angle), np.sin(angle), 0.0]]])
    assert largest_angle(turned, rows) == pytest.approx(angle, rel=1e-3)

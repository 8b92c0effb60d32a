"""Differences and the zero-phase low pass, by their mathematics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offmap.data import Trajectory, finite_difference, low_pass, smooth
from offmap.data import derivatives as derivatives_module

DT = 0.01


def sine(hz, seconds=10.0, phase=0.0):
    t = np.arange(0.0, seconds, DT)
    return np.sin(2.0 * np.pi * hz * t + phase)


def gain_and_phase(filtered, hz):
    """Amplitude and phase of a unit sine after filtering, by least squares on the interior."""
    inner = slice(200, -200)
    basis = np.stack([sine(hz), sine(hz, phase=np.pi / 2)], axis=1)[inner]
    (in_phase, quadrature), *_ = np.linalg.lstsq(basis, filtered[inner], rcond=None)
    return np.hypot(in_phase, quadrature), np.arctan2(quadrature, in_phase)


def test_finite_difference_is_exact_on_a_line_and_has_one_row_fewer():
    t = np.arange(7.0) * 0.5
    x = np.stack([3.0 * t - 1.0, -2.0 * t], axis=1)
    np.testing.assert_allclose(finite_difference(x, 0.5), np.tile([3.0, -2.0], (6, 1)), atol=1e-13)
    np.testing.assert_allclose(finite_difference(x[:, 0], 0.5), 3.0, atol=1e-13)
    assert derivatives_module.finite_difference is finite_difference


def test_forward_difference_error_is_first_order():
    def error(dt):
        t = np.arange(0.0, 1.0, dt)
        return np.abs(finite_difference(np.sin(t), dt) - np.cos(t[:-1])).max()

    assert error(0.02) / error(0.01) == pytest.approx(2.0, rel=0.02)


def test_wrapped_and_unwrapped_angles_have_the_same_derivative():
    theta = 8.0 * sine(0.3)[:, None]
    wrapped = np.angle(np.exp(1j * theta))
    assert np.abs(np.diff(wrapped, axis=0)).max() > 6.0
    np.testing.assert_allclose(
        finite_difference(wrapped, DT, angles=[0]), finite_difference(theta, DT), atol=1e-10
    )


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    rows=st.integers(1, 60),
    level=st.floats(-1e3, 1e3),
    cutoff=st.floats(0.5, 49.0),
    order=st.integers(1, 4),
)
def test_a_constant_of_any_length_passes_unchanged(rows, level, cutoff, order):
    x = np.full((rows, 2), level)
    np.testing.assert_allclose(low_pass(x, DT, cutoff, order), x, rtol=1e-6, atol=1e-9)


def test_a_straight_line_passes_unchanged_and_is_continued_at_the_ends():
    line = np.linspace(-3.0, 5.0, 1000)
    error = np.abs(low_pass(line, DT, 5.0) - line)
    assert error[100:-100].max() < 1e-6
    assert error.max() < 0.1 * (line[1] - line[0])


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("hz", [1.0, 5.0, 15.0])
def test_gain_is_the_butterworth_gain_squared_with_zero_phase(order, hz):
    cutoff = 5.0
    gain, phase = gain_and_phase(low_pass(sine(hz), DT, cutoff, order), hz)
    warped = np.tan(np.pi * hz * DT) / np.tan(np.pi * cutoff * DT)  # bilinear transform
    assert gain == pytest.approx(1.0 / (1.0 + warped ** (2 * order)), rel=1e-4, abs=1e-7)
    assert phase == pytest.approx(0.0, abs=1e-4)


def test_a_fast_sine_is_removed_from_a_slow_one():
    slow, fast = sine(0.5), sine(30.0)
    filtered = low_pass(slow + fast, DT, 3.0)
    assert np.abs(filtered - slow)[100:-100].max() < 5e-3


def test_noise_and_above_all_its_differences_lose_variance():
    noise = np.random.default_rng(0).normal(size=(4000, 2))
    filtered = low_pass(noise, DT, 5.0)
    kept = filtered.var(axis=0) / noise.var(axis=0)
    kept_differences = finite_difference(filtered, DT).var(axis=0) / finite_difference(
        noise, DT
    ).var(axis=0)
    assert (kept < 0.12).all()
    assert (kept_differences < 0.01).all()


def test_columns_are_filtered_independently_and_the_input_is_untouched():
    x = np.stack([sine(1.0), sine(20.0)], axis=1)
    before = x.copy()
    filtered = low_pass(x, DT, 4.0)
    np.testing.assert_array_equal(x, before)
    for column in range(2):
        np.testing.assert_allclose(filtered[:, column], low_pass(x[:, column], DT, 4.0), atol=1e-14)


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_short_series_are_filtered_too(rows):
    x = np.random.default_rng(1).normal(size=(rows, 1))
    filtered = low_pass(x, DT, 5.0)
    assert filtered.shape == x.shape
    assert np.isfinite(filtered).all()


def test_smooth_filters_states_and_keeps_the_rest():
    rng = np.random.default_rng(2)
    truth = np.stack([sine(0.5), sine(0.7)], axis=1)
    noisy = truth + 0.05 * rng.normal(size=truth.shape)
    log = Trajectory(noisy, rng.normal(size=(999, 1)), DT, xdot=noisy, source="online")
    result = smooth(log, cutoff_hz=5.0)
    np.testing.assert_array_equal(result.x, low_pass(noisy, DT, 5.0))
    np.testing.assert_array_equal(result.u, log.u)
    assert (result.dt, result.xdot, result.source) == (DT, None, "online")
    true_derivative = finite_difference(truth, DT)
    raw_error = np.std(finite_difference(noisy, DT) - true_derivative)
    assert np.std(result.samples()[2] - true_derivative) < 0.1 * raw_error


def test_smooth_unwraps_declared_angles_first():
    theta = np.linspace(0.0, 20.0, 1000)[:, None]
    log = Trajectory(np.angle(np.exp(1j * theta)), np.zeros((999, 1)), DT)
    straight = smooth(log, 5.0, angles=[0]).samples()[2]
    np.testing.assert_allclose(straight[100:-100], 20.0 / (999 * DT), rtol=1e-6)
    smeared = smooth(log, 5.0).samples()[2]
    assert np.abs(smeared).max() > 10.0 * straight.max()


@pytest.mark.parametrize(
    ("call", "rule", "received", "remedy"),
    [
        (lambda: low_pass(np.zeros(9), 0.1, 5.0), "Nyquist rate 1 / (2 dt) = 5 Hz", "5.0", "lower"),
        (lambda: low_pass(np.zeros(9), 0.1, 0.0), "between 0 and", "received 0.0", "lower"),
        (lambda: low_pass(np.zeros(9), 0.1, np.nan), "between 0 and", "received nan", "lower"),
        (lambda: low_pass(np.zeros(9), 0.1, 1.0, 0), "positive integer", "received 0", "2 suits"),
        (lambda: low_pass(np.zeros(9), -0.1, 1.0), "dt must be a positive", "-0.1", "sampling"),
        (lambda: low_pass(np.zeros((0, 2)), 0.1, 1.0), "at least one row", "(0, 2)", "time series"),
        (
            lambda: low_pass([0.0, np.nan], 0.1, 1.0),
            "finite",
            "column 0: 1 (first at row 1)",
            "cut",
        ),
        (lambda: finite_difference([[1.0]], 0.1), "at least 2 rows", "(1, 1)", "longer"),
        (lambda: finite_difference([[1.0], [2.0]], 0.0), "positive", "received 0.0", "sampling"),
        (lambda: finite_difference(np.eye(2), 0.1, [2]), "from 0 to 1", "[2]", "existing"),
    ],
)
def test_what_is_refused_and_what_is_said(call, rule, received, remedy):
    with pytest.raises(ValueError) as error:
        call()
    before, middle, after = str(error.value).split("; ", 2)
    assert rule in before
    assert middle.startswith("received")
    assert received in middle
    assert remedy in after

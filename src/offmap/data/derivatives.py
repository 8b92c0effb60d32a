"""Derivatives of logged states, and the smoothing that keeps noise out of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import signal

from offmap.data.trajectory import Trajectory, as_dt, as_floats, finite_difference, unwrap

__all__ = ["finite_difference", "low_pass", "smooth"]


def low_pass(x: ArrayLike, dt: float, cutoff_hz: float, order: int = 2) -> Float[np.ndarray, "..."]:
    """Remove what is faster than `cutoff_hz` along the first axis, without delay.

    A Butterworth filter runs forward and then backward (zero phase), so its gain is squared: 1/2
    at the cutoff, falling twice as steeply as one pass of the same order. The ends are extended by
    point reflection, which continues a straight line.

    Args:
        x: Series with time along the first axis, of any length.
        dt: Seconds between rows.
        cutoff_hz: Frequency where half the amplitude is left; below the Nyquist rate 1 / (2 dt).
        order: Order of one pass.
    """
    series = as_floats(x, "x")
    if series.ndim == 0 or series.size == 0:
        raise ValueError(
            f"x must have at least one row; received shape {series.shape}; give a time series"
        )
    rate = 1.0 / as_dt(dt)
    _check_filter(cutoff_hz, rate, order)
    sos = signal.butter(order, cutoff_hz, fs=rate, output="sos")
    # Long enough for the start-up transient to die out before the data, where the data allow.
    settle = max(3 * (2 * len(sos) + 1), int(np.ceil(2.0 * rate / cutoff_hz)))
    padding = min(settle, series.shape[0] - 1)
    return np.asarray(signal.sosfiltfilt(sos, series, axis=0, padtype="odd", padlen=padding))


def smooth(
    trajectory: Trajectory, cutoff_hz: float, *, order: int = 2, angles: Sequence[int] = ()
) -> Trajectory:
    """Return the trajectory with low-passed states, to be differenced afresh.

    Measured derivatives are dropped, since they no longer belong to the filtered states; controls,
    time step and source stay.

    Args:
        trajectory: The log to smooth.
        cutoff_hz: See `low_pass`.
        order: See `low_pass`.
        angles: State columns in radians to unwrap first; they come back unwrapped.
    """
    states = low_pass(unwrap(trajectory.x, angles), trajectory.dt, cutoff_hz, order)
    return replace(trajectory, x=states, xdot=None)


def _check_filter(cutoff_hz: float, rate: float, order: int) -> None:
    nyquist = rate / 2.0
    if not 0.0 < cutoff_hz < nyquist:
        raise ValueError(
            f"cutoff_hz must lie strictly between 0 and the Nyquist rate 1 / (2 dt) = {nyquist:g} "
            f"Hz; received {cutoff_hz!r}; lower the cutoff, or skip the filter to keep everything"
        )
    if order < 1 or order != int(order):
        raise ValueError(f"order must be a positive integer; received {order!r}; 2 suits most logs")

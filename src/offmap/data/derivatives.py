"""Derivatives of logged states, and the smoothing that keeps noise out of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy import signal

from offmap.data.smoother import choose_bandwidth, local_cubic, widest_bandwidth
from offmap.data.trajectory import Trajectory, as_dt, as_floats, finite_difference, unwrap

__all__ = [
    "commands_in_time",
    "finite_difference",
    "half_way",
    "local_slopes",
    "low_pass",
    "slope_bandwidth",
    "smooth",
]

_LEAST_STEPS = 4  # that a smoothed log must keep


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
    return replace(trajectory, x=states, xdot=None, middle=None, seen=None)


def half_way(
    trajectory: Trajectory, angles: Sequence[int] = (), bandwidth: float | None = None
) -> Trajectory:
    """The trajectory with its differences taken for derivatives half-way between two states.

    Of a motion in continuous time they are that but for terms of second order in dt, where
    differences taken for derivatives at the first state are off by a term of first order.

    Args:
        trajectory: The log.
        angles: State columns in radians to unwrap first.
        bandwidth: Half-width of local cubics that smooth the states half-way, where enough is
            known around them.
    """
    x, dt = unwrap(trajectory.x, angles), trajectory.dt
    steps = min(len(x) - 1, trajectory.T)
    middle = (x[:steps] + x[1 : steps + 1]) / 2
    if bandwidth is not None:
        time = dt * np.arange(steps + 1)
        value, _, known = local_cubic(time, x[: steps + 1], time[:-1] + dt / 2, bandwidth)
        middle[known] = value[known]
    return replace(
        trajectory,
        x=trajectory.x[: steps + 1],
        u=trajectory.u[:steps],
        middle=middle,
        xdot=finite_difference(x[: steps + 1], dt),
        seen=None,
    )


def local_slopes(
    trajectory: Trajectory,
    bandwidth: float,
    angles: Sequence[int] = (),
    expected: Float[np.ndarray, "T n"] | None = None,
) -> Trajectory | None:
    """The trajectory with states and derivatives half-way between them from local cubics.

    Controls are averaged with the same weights as velocities are: a derivative that stands for a
    longer time is not due to the control of one step. Where it is known what to expect, only what
    is left of the states is smoothed, and controls stay as they are. The first and last steps,
    around which too little is known, are cut off; None if hardly any are left.

    Args:
        trajectory: The log to smooth.
        bandwidth: Half-width of the cubics' windows in seconds.
        angles: State columns in radians to unwrap first; they come back unwrapped.
        expected: Velocities half-way between states, such as those of a model.
    """
    x, dt, n = unwrap(trajectory.x, angles), trajectory.dt, trajectory.n
    steps = min(len(x) - 1, trajectory.T)
    time = dt * np.arange(steps + 1)
    known_part = np.zeros((steps, n)) if expected is None else expected[:steps]
    path, moved = (
        dt * np.concatenate([np.zeros((1, rate.shape[1])), np.cumsum(rate, axis=0)])
        for rate in (known_part, trajectory.u[:steps])
    )
    columns = np.concatenate([x[: steps + 1] - path, moved], axis=1)
    ends = local_cubic(time, columns, time, bandwidth)
    middle = local_cubic(time, columns, time[:-1] + dt / 2, bandwidth)
    known = np.flatnonzero(middle.known & ends.known[:-1] & ends.known[1:])
    if len(known) < _LEAST_STEPS:
        return None
    first, last = known[0], known[-1] + 1
    return replace(
        trajectory,
        x=(ends.value[:, :n] + path)[first : last + 1],
        u=trajectory.u[first:last],
        middle=(middle.value[:, :n] + (path[:-1] + path[1:]) / 2)[first:last],
        xdot=(middle.slope[:, :n] + known_part)[first:last],
        seen=middle.slope[first:last, n:] if expected is None else None,
    )


def commands_in_time(trajectory: Trajectory, delay: int, width: int) -> Trajectory:
    """The trajectory with its derivatives due to controls of a while ago, and averaged.

    Controls are those of `delay` steps before, averaged over `width` steps to either side with
    tricube weights; at the ends over as many of these as there are.
    """
    if trajectory.xdot is None or delay == width == 0:
        return trajectory
    u = trajectory.u if trajectory.seen is None else trajectory.seen
    away = np.arange(-width, width + 1)
    weights = (1 - (np.abs(away) / (width + 1)) ** 3) ** 3
    rows = np.arange(len(u))[:, None] - delay + away
    inside = np.where((rows >= 0) & (rows < len(u)), weights, 0.0)
    inside[inside.sum(axis=1) == 0, 0] = 1.0  # before the first: that one
    inside = inside / inside.sum(axis=1, keepdims=True)
    seen = np.einsum("tw,twm->tm", inside, u[np.clip(rows, 0, len(u) - 1)])
    return replace(trajectory, seen=seen)


def slope_bandwidth(trajectories: Iterable[Trajectory], angles: Sequence[int] = ()) -> float | None:
    """The half-width for `local_slopes` that best predicts states from others, in seconds.

    None if the trajectories are too short to tell.
    """
    logs = list(trajectories)
    dt, begin = logs[0].dt, 0.0
    times, values = [], []
    for log in logs:
        x = unwrap(log.x, angles)
        times.append(begin + dt * np.arange(len(x)))
        values.append(x - x[0])
        begin = times[-1][-1] + 2 * widest_bandwidth(dt, dt)  # so that no window sees two of them
    try:
        return choose_bandwidth(np.concatenate(times), np.concatenate(values), dt)
    except ValueError:
        return None


def _check_filter(cutoff_hz: float, rate: float, order: int) -> None:
    nyquist = rate / 2.0
    if not 0.0 < cutoff_hz < nyquist:
        raise ValueError(
            f"cutoff_hz must lie strictly between 0 and the Nyquist rate 1 / (2 dt) = {nyquist:g} "
            f"Hz; received {cutoff_hz!r}; lower the cutoff, or skip the filter to keep everything"
        )
    if order < 1 or order != int(order):
        raise ValueError(f"order must be a positive integer; received {order!r}; 2 suits most logs")

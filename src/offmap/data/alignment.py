"""Pose and command streams on one grid: states, derivatives, lagged commands, honest splits."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from offmap.data.history import stack_history
from offmap.data.lag import residual, state_features, unexplained
from offmap.data.smoother import choose_bandwidth, local_cubic
from offmap.data.streams import Fault, Stream
from offmap.data.trajectory import Trajectory, as_dt

__all__ = ["Alignment", "Run", "align"]

_LAG_STEP = 0.01  # seconds
_LAG_GAIN = 0.01  # least share by which the best lag must lower the residual of no lag
_LAG_POINTS = 2000


@dataclass(frozen=True, eq=False)
class Run:
    """A stretch of a recording without breaks, on a regular grid.

    States stand at the ends of each step, for rollouts. `middle` and `xdot` are state and
    derivative in the middle of each step, which is where the mean command of the step belongs:
    fit to these, roll out between those.
    """

    start: float
    """Time of the first state on the recording's clock."""
    dt: float
    x: Float[np.ndarray, "S n"]
    u: Float[np.ndarray, "T m"]
    """Mean lagged command over each step."""
    middle: Float[np.ndarray, "T n"]
    xdot: Float[np.ndarray, "T n"]
    seen: Float[np.ndarray, "T m"]
    """Lagged command averaged over time as the smoother averages velocities to get xdot."""

    @property
    def T(self) -> int:
        """Number of steps."""
        return len(self.u)

    def cut(self, first: int, steps: int) -> "Run":
        """The stretch of `steps` steps that begins with step `first`."""
        if not (first >= 0 and steps >= 1) or first + steps > self.T:
            raise ValueError(
                f"a cut lies within the {self.T} steps of its run; received {steps} steps from "
                f"step {first}; ask for fewer"
            )
        part = slice(first, first + steps)
        return replace(
            self,
            start=self.start + first * self.dt,
            x=self.x[first : first + steps + 1],
            u=self.u[part],
            middle=self.middle[part],
            xdot=self.xdot[part],
            seen=self.seen[part],
        )

    def with_history(self, k: int) -> "Run":
        """The run with k past commands as further columns of u; its first k steps are dropped."""
        if k == 0:
            return self
        u, seen = stack_history(self.u, k), stack_history(self.seen, k)
        return replace(self.cut(k, self.T - k), u=u, seen=seen)

    def near_zero(self, angles: tuple[int, ...]) -> "Run":
        """The same motion with angles shifted by whole turns, to start within ±π."""
        turns = np.zeros(self.x.shape[1])
        turns[list(angles)] = 2 * np.pi * np.round(self.x[0, list(angles)] / (2 * np.pi))
        return replace(self, x=self.x - turns, middle=self.middle - turns)

    def samples(self, source: str = "offline") -> Trajectory:
        """Middle states, commands and derivatives, all equally smooth, to fit to.

        A derivative that was averaged over half a second is not due to the command of one step:
        regressed on that, the gain of every actuator comes out too small.
        """
        return Trajectory(self.middle, self.seen, dt=self.dt, xdot=self.xdot, source=source)

    def trajectory(self, source: str = "offline") -> Trajectory:
        """States at the ends of the steps and commands between them, to compare rollouts with."""
        return Trajectory(self.x, self.u, dt=self.dt, source=source)


@dataclass(frozen=True, eq=False)
class Alignment:
    """Runs on one grid, and how they came about."""

    runs: tuple[Run, ...]
    bandwidth: float
    """Half-width of the local cubics, in seconds."""
    lag: float
    """Seconds by which the motion follows the command."""
    lag_explains: float
    """Share of the motion's variance that the lagged command explains beyond the state alone; NaN
    where the lag was given, or taken as 0 for want of steps."""
    noise: Float[np.ndarray, " n"]
    """Root mean square distance of pose samples from the smoothed path, outliers left out."""
    faults: tuple[Fault, ...]
    """Dropped rows, splits and unused ends, in order of time."""

    def report(self) -> str:
        """A few lines for a log: grid, bandwidth, lag, noise and every fault."""
        steps = [run.T for run in self.runs]
        explained = (
            "given, or too few steps to estimate it"
            if np.isnan(self.lag_explains)
            else f"explains {self.lag_explains:.0%} of the motion's variance"
        )
        lines = [
            f"{len(steps)} runs, {sum(steps)} steps of {self.runs[0].dt:g} s "
            f"(longest {max(steps)})",
            f"bandwidth {self.bandwidth:.3g} s, command lag {self.lag:.2f} s ({explained}), "
            f"noise {_list(self.noise)}",
        ]
        return "\n".join(lines + [str(fault) for fault in self.faults])


def align(
    pose: Stream,
    command: Stream,
    dt: float = 0.1,
    *,
    bandwidth: float | None = None,
    lag: float | None = None,
    longest_lag: float = 0.6,
) -> Alignment:
    """Put poses and commands, each on its own clock, onto one grid of step dt.

    States and derivatives come from one local-cubic smoother. Gaps, jumps and missing stretches
    split the recording; nothing is bridged, and each split is reported in `faults`.

    Args:
        pose: Measured states.
        command: Set points, held until the next one.
        dt: Step of the grid.
        bandwidth: Half-width of the smoother in seconds; None chooses it by cross-validation.
        lag: Seconds by which motion follows the command; None estimates it.
        longest_lag: Largest lag considered.
    """
    dt = as_dt(dt)
    faults = [*pose.faults, *command.faults, *_unused_ends(pose, command, dt)]
    widest = max(pose.segments(), key=lambda rows: rows.stop - rows.start)
    if bandwidth is None:
        bandwidth = choose_bandwidth(pose.time[widest], pose.values[widest], dt)
    first = np.ceil(max(pose.time[0], command.time[0]) / dt) * dt
    ticks = first + dt / 2 * np.arange(2 * int((pose.time[-1] - first) / dt) + 1)
    value, slope = _smooth(pose, pose.values, ticks, bandwidth)
    ends, middle, xdot = value[::2], value[1::2], slope[1::2]
    explains = float("nan")
    if lag is None:
        lag, explains = _estimate_lag(pose, command, ticks[1::2], middle, xdot, dt, longest_lag)
    u = _mean_command(command, ticks[:-1:2] - lag, dt)
    seen = _seen_command(pose, command, ticks[1::2], bandwidth, lag, u)
    usable = np.isfinite(ends[:-1, 0]) & np.isfinite(ends[1:, 0])
    usable &= np.isfinite(middle[:, 0]) & np.isfinite(u[:, 0])
    faults += [*pose.breaks(), *command.breaks()]
    runs = [
        Run(float(ticks[2 * a]), dt, ends[a : b + 1], u[a:b], middle[a:b], xdot[a:b], seen[a:b])
        for a, b in _stretches(usable)
    ]
    if not runs:
        raise ValueError(
            f"no step of {dt:g} s has poses all around it and a command; the streams have "
            f"{len(pose.breaks())} and {len(command.breaks())} breaks; give a longer recording or "
            f"a smaller bandwidth than {bandwidth:.3g} s"
        )
    faults.sort(key=lambda fault: fault.time)
    noise = _noise(pose, bandwidth)
    return Alignment(tuple(runs), bandwidth, lag, explains, noise, tuple(faults))


def _smooth(
    pose: Stream,
    values: Float[np.ndarray, "N k"],
    ticks: Float[np.ndarray, " T"],
    bandwidth: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Value and slope at the ticks of what was sampled with the poses, segment by segment."""
    value = np.full((len(ticks), values.shape[1]), np.nan)
    slope = value.copy()
    for rows in pose.segments():
        time = pose.time[rows]
        within = (ticks >= time[0]) & (ticks <= time[-1])
        if within.any():
            fitted = local_cubic(time, values[rows], ticks[within], bandwidth)
            value[within], slope[within] = fitted.value, fitted.slope
    return value, slope


def _mean_command(
    command: Stream, start: Float[np.ndarray, " T"], dt: float
) -> Float[np.ndarray, "T m"]:
    """Mean of the held command over [start, start + dt]; NaN where a gap or an end is touched."""
    clock, integral = _integral(command)
    area = [
        np.stack([np.interp(at, clock, column) for column in integral.T], axis=1)
        for at in (start, start + dt)
    ]
    mean = (area[1] - area[0]) / dt
    mean[~_known(command, start, start + dt)] = np.nan
    return mean


def _seen_command(
    pose: Stream,
    command: Stream,
    middle: Float[np.ndarray, " T"],
    bandwidth: float,
    lag: float,
    mean: Float[np.ndarray, "T m"],
) -> Float[np.ndarray, "T m"]:
    """The slope that the smoother sees in the integral of the command: a mean of the command.

    The smoother takes velocities from poses, which are integrals of velocity; the same weights on
    integrals of the command average it over the same times. Near a gap of the commands, where the
    integral is not known, the mean over the step stands in.
    """
    clock, integral = _integral(command)
    columns = [np.interp(pose.time - lag, clock, column) for column in integral.T]
    _, slope = _smooth(pose, np.stack(columns, axis=1), middle, bandwidth)
    known = _known(command, middle - lag - bandwidth, middle - lag + bandwidth)
    return np.where((known & np.isfinite(slope[:, 0]))[:, None], slope, mean)


def _integral(command: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Times between which the command is constant, and its integral up to each."""
    steps = np.diff(command.time, append=command.time[-1] + command.interval)
    area = np.cumsum(command.values * steps[:, None], axis=0)
    clock = np.append(command.time, command.time[-1] + command.interval)
    return clock, np.concatenate([np.zeros((1, command.values.shape[1])), area])


def _known(command: Stream, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which intervals touch neither a gap nor an end of the commands."""
    known = (start >= command.time[0]) & (end <= command.time[-1] + command.interval)
    for fault in command.breaks():
        row = int(np.searchsorted(command.time, fault.time))
        known &= (end <= command.time[row - 1]) | (start >= command.time[row])
    return known


def _estimate_lag(
    pose: Stream,
    command: Stream,
    middle_times: np.ndarray,
    middle: np.ndarray,
    xdot: np.ndarray,
    dt: float,
    longest: float,
) -> tuple[float, float]:
    """The lag at which states and command together explain the derivative best.

    ẋ is regressed on {1, x, sin a, cos a} ⊗ {1, u(t − lag)}, equally many terms for every lag. A
    lag that is no better than none by 1 % of the residual is not told from none, and 0 is taken.
    """
    keep = np.flatnonzero(np.isfinite(xdot[:, 0]))
    keep = keep[:: max(1, len(keep) // _LAG_POINTS)]
    lags = np.arange(0.0, longest + _LAG_STEP / 2, _LAG_STEP)
    commands = [_mean_command(command, middle_times[keep] - dt / 2 - lag, dt) for lag in lags]
    known = np.all([np.isfinite(u[:, 0]) for u in commands], axis=0)
    x, targets = middle[keep][known], xdot[keep][known]
    if not len(x):
        return 0.0, float("nan")
    features = state_features(x, pose.angles)
    if len(x) < 4 * features.shape[1] * (1 + command.values.shape[1]):
        return 0.0, float("nan")  # too few steps to tell; the report says so
    alone = residual(features, targets)
    residuals = unexplained(x, pose.angles, [u[known] for u in commands], targets)
    best = int(np.argmin(residuals))
    if residuals[best] > (1 - _LAG_GAIN) * residuals[0]:
        best = 0
    return _vertex(lags, residuals, best), float(max(0.0, alone - residuals[best]))


def _vertex(lags: np.ndarray, residuals: np.ndarray, best: int) -> float:
    """The lag at the bottom of the parabola through the best three."""
    if not 0 < best < len(lags) - 1:
        return float(lags[best])
    left, centre, right = residuals[best - 1 : best + 2]
    bend = left - 2 * centre + right
    return float(lags[best] + (0.5 * _LAG_STEP * (left - right) / bend if bend > 0 else 0.0))


def _noise(pose: Stream, bandwidth: float) -> np.ndarray:
    rows = max(pose.segments(), key=lambda rows: rows.stop - rows.start)
    time, values = pose.time[rows], pose.values[rows]
    some = np.arange(0, len(time), max(1, len(time) // 2000))
    away = values[some] - local_cubic(time, values, time[some], bandwidth).value
    return 1.4826 * np.nanmedian(np.abs(away), axis=0)


def _stretches(usable: np.ndarray) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], usable.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _unused_ends(pose: Stream, command: Stream, dt: float) -> list[Fault]:
    """Report where one stream goes on without the other, and refuse streams that never meet."""
    start, end = max(pose.time[0], command.time[0]), min(pose.time[-1], command.time[-1])
    if end <= start:
        raise ValueError(
            f"poses and commands must overlap in time; received poses from {pose.time[0]:.2f} to "
            f"{pose.time[-1]:.2f} s and commands from {command.time[0]:.2f} to "
            f"{command.time[-1]:.2f} s; put both on one clock"
        )
    faults = []
    for name, stream, other in (("poses", pose, command), ("commands", command, pose)):
        late = other.time[-1] - stream.time[-1]
        if late > max(dt, 10 * stream.interval):
            faults.append(
                Fault(float(stream.time[-1]), f"{name} end {late:.1f} s early; the rest is unused")
            )
    return faults


def _list(values: np.ndarray) -> str:
    return ", ".join(f"{value:.2g}" for value in values)

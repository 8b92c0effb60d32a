"""Streams that tick at their own rates, put onto one grid of time."""

import numpy as np
from jaxtyping import Float

from offmap.data.formats import Topic
from offmap.data.trajectory import Trajectory

_REGULAR = 0.01  # of a step that a row may be off the grid and still count as on it
_MOST_PER_ROW, _MOST_ROWS = 100, 1_000_000  # of a grid; a short plan may be held for long
_GAP = 3.0  # steps without a measurement that end a trajectory


def resample(
    streams: list[Topic],
    state: list[str],
    control: list[str],
    dt: float,
    *,
    angles: tuple[str, ...] = (),
    max_gap: float | None = None,
    source: str = "offline",
) -> list[Trajectory]:
    """States interpolated linearly and controls held, every `dt` seconds between gaps.

    Rows of one table that already keep the step are taken as they are. A trajectory ends where a
    state goes unmeasured for longer than `max_gap` seconds (three steps if None), and lasts from
    the first to the last moment at which all states are known and a control was given.

    Args:
        streams: with their time; together they hold every column.
        state: columns that are states, in order.
        control: columns that are controls, in order.
        dt: seconds between rows of the result.
        angles: states in radians that may jump by 2π.
        max_gap: longest pause between two measurements of a state.
        source: of the trajectories.
    """
    clocks = {name: clock_of(stream) for stream in streams for name in stream.columns}
    values = {name: column for stream in streams for name, column in stream.columns.items()}
    found = []
    for begin, end in _spans(
        [clocks[name] for name in state], [clocks[n] for n in control], dt, max_gap
    ):
        grid = grid_of(begin, end, dt, max(len(clock) for clock in clocks.values()))
        if len(grid) < 2:
            continue
        x = [_interpolated(grid, clocks[name], values[name], name in angles, dt) for name in state]
        u = [held(grid, clocks[name], values[name], dt) for name in control]
        found.append(Trajectory(np.stack(x, 1), np.stack(u, 1), dt=dt, source=source))
    return found


def grid_of(begin: float, end: float, dt: float, rows: int) -> Float[np.ndarray, " T"]:
    """Moments every `dt` seconds; refused where a log of so many rows would become a giant."""
    count = (end - begin) / dt + _REGULAR
    if count > max(_MOST_PER_ROW * rows, _MOST_ROWS):
        raise ValueError(
            f"A log keeps its size, more or less; {rows} rows that last {end - begin:g} s would "
            f"become {count:.3g} with a step of {dt:g} s. Check dt, and the unit of the time "
            f"(time_unit, --time-unit)."
        )
    return begin + dt * np.arange(int(count) + 1)


def clock_of(stream: Topic) -> Float[np.ndarray, " N"]:
    """The time of a stream that has one."""
    assert stream.time is not None
    return stream.time


def usual_step(clock: Float[np.ndarray, " N"]) -> float:
    """Seconds between rows: the mean of all steps near their median.

    Seconds since 1970 have steps that are off by up to 2e-7, which a mean evens out.
    """
    steps = np.diff(clock)
    median = float(np.median(steps)) if len(steps) else 0.0
    near = np.abs(steps - median) <= _REGULAR * median + 2 * np.spacing(np.abs(clock[:1]))
    return float(np.mean(steps[near])) if near.any() else median


def plain_step(step: float, rows: int) -> float:
    """The shortest number that keeps so many rows on the grid."""
    rounded = (float(f"{step:.{digits}g}") for digits in range(3, 13))
    return next((s for s in rounded if abs(s - step) * rows <= 0.1 * _REGULAR * step), step)


def _spans(
    states: list[np.ndarray], controls: list[np.ndarray], dt: float, max_gap: float | None
) -> list[tuple[float, float]]:
    """Stretches of time in which every state is measured and some control is in force."""
    begin = max(clock[0] for clock in states + controls)
    held = [clock[-1] + max(dt, usual_step(clock)) for clock in controls]
    end = min([clock[-1] for clock in states] + held)
    gaps = []
    for clock in states:
        longest = _GAP * max(dt, usual_step(clock)) if max_gap is None else max_gap
        after = np.flatnonzero(np.diff(clock) > longest * (1 + _REGULAR))
        gaps += [(float(clock[i]), float(clock[i + 1])) for i in after]
    spans = []
    for left, right in sorted(gaps):
        if left > begin:
            spans.append((begin, min(left, end)))
        begin = max(begin, right)
    spans.append((begin, end))
    return [(first, last) for first, last in spans if last > first]


def _interpolated(
    grid: np.ndarray, clock: np.ndarray, column: np.ndarray, angle: bool, dt: float
) -> np.ndarray:
    first = int(np.searchsorted(clock, grid[0] - _REGULAR * dt))
    rows = slice(first, first + len(grid))
    if len(clock[rows]) == len(grid) and np.all(np.abs(clock[rows] - grid) <= _REGULAR * dt):
        return column[rows]
    if not angle:
        return np.interp(grid, clock, column)
    smooth = np.interp(grid, clock, np.unwrap(column))
    wrapped = np.max(np.abs(np.diff(column)), initial=0.0) > np.pi
    return np.arctan2(np.sin(smooth), np.cos(smooth)) if wrapped else smooth


def held(grid: np.ndarray, clock: np.ndarray, column: np.ndarray, dt: float) -> np.ndarray:
    """The control given last; one that comes just behind a row of the grid counts for it."""
    return column[np.searchsorted(clock, grid + _REGULAR * dt, side="right") - 1]

"""From log files to a dataset: columns by name, runs, clocks, one rate."""

import glob
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from offmap.data.checks import check_clock, check_numbers
from offmap.data.dataset import Dataset
from offmap.data.formats import SUFFIXES, column_names, is_bag, nearest
from offmap.data.formats.stamps import SECONDS
from offmap.data.resampling import clock_of, grid_of, held, plain_step, resample, usual_step
from offmap.data.runs import LoggedRun, logged_runs
from offmap.data.trajectory import Trajectory, as_dt

Names = Sequence[str] | Mapping[str, str]
Patterns = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_SAME_RATE = 0.05
_PLAN = 20  # rows of controls that someone may have written by hand, in whole seconds


def read(
    patterns: Patterns,
    *,
    state: Names,
    control: Names,
    time: str | None = "t",
    angles: Sequence[str] = (),
    traj: str | None = None,
    source: str = "offline",
    dt: float | None = None,
    time_unit: str | None = None,
    max_gap: float | None = None,
) -> Dataset:
    """Read logs into a dataset: CSV, Parquet, NPZ, HDF5, ROS 1 and 2 bags, MCAP.

    Each file is a trajectory of its own, and so is each group of an HDF5 file in which all names
    are found; pauses split it. Streams with different rates are put
    onto one grid: states interpolated, controls held.

    Args:
        patterns: files, or patterns such as `logs/*.csv`.
        state: columns that are states. A column that should have another name is written
            "px=/odom.pose.pose.position.x", or in a mapping from names to columns.
        control: columns that are controls, likewise.
        time: the column that holds the time. None: rows are `dt` apart. Bags have a clock, which
            "header.stamp" replaces by that of the messages' headers.
        angles: names of the states that are angles in radians.
        traj: a column whose value tells the runs in one file apart.
        source: where the logs come from, such as "offline" or "online".
        dt: seconds between rows of the dataset; None takes the rate of the slowest state.
        time_unit: of the time column: "s", "ms", "us" or "ns". None takes seconds, and refuses
            whole numbers that are unlikely to be seconds. Dates need none.
        max_gap: longest pause in seconds that is interpolated; None takes three steps.
    """
    _check_unit_name(time_unit)
    files = find_files(patterns)
    states, controls = _mapping(state, "state", files[0]), _mapping(control, "control", files[0])
    step = None if dt is None else as_dt(dt)
    columns = [*states.values(), *controls.values()]
    runs = [
        run for path in files for run in logged_runs(path, columns, time, traj, step, time_unit)
    ]
    for run in runs:
        _fill_last(run, [*controls.values()])
        _check(run)
    step = step or _common_step(runs, [*states.values()])
    declared = tuple(states.get(name, name) for name in angles)
    trajectories: list[Trajectory] = []
    left_out = []
    for run in runs:
        found = resample(
            run.streams,
            [*states.values()],
            [*controls.values()],
            step,
            angles=declared,
            max_gap=max_gap,
            source=source,
        )
        trajectories += found
        left_out += [] if found else [_no_overlap(run, step)]
    if not trajectories:
        raise ValueError(f"{left_out[0]}. Check the columns, dt and max_gap.")
    for reason in left_out:
        warnings.warn(f"{reason}: it is left out", UserWarning, stacklevel=2)
    return Dataset(trajectories, [*states], [*controls], angles)


def find_files(patterns: Patterns) -> list[Path]:
    """The files that patterns stand for, each once, sorted within a pattern."""
    given = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
    if not given:
        raise ValueError('Name at least one file or pattern, such as "logs/*.csv"; got none.')
    found: dict[Path, None] = {}
    for pattern in (os.fspath(item) for item in given):
        paths = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern, recursive=True))
        if not paths:
            raise ValueError(f"No file matches {pattern!r}; {_beside(Path(pattern))}")
        found |= dict.fromkeys(map(Path, paths))
    return list(found)


def _beside(pattern: Path) -> str:
    folder = pattern.parent
    if glob.has_magic(str(folder)) or not folder.is_dir():
        return f"there is no folder {str(folder)!r}"
    names = sorted(p.name for p in folder.iterdir() if p.name.endswith(SUFFIXES) or p.is_dir())
    hint = nearest(pattern.name, names) if names else "no log is there"
    return f"in {str(folder)!r}, {hint}"


def _mapping(names: Names, what: str, file: Path) -> dict[str, str]:
    """Name in the dataset to column in the file, whose own names may hold an equals sign."""
    if isinstance(names, Mapping):
        pairs = [(str(name), str(column)) for name, column in names.items()]
    elif isinstance(names, str):
        raise ValueError(f"`{what}` is a list of names; got {names!r}. Write [{names!r}].")
    else:
        whole = _with_equals_sign(file) if any("=" in str(given) for given in names) else ()
        pairs = [
            (name, column) if mark and given not in whole else (given, given)
            for given in map(str, names)
            for name, mark, column in [given.partition("=")]
        ]
    if not pairs:
        raise ValueError(f"`{what}` names at least one column; got none. See `offmap inspect`.")
    repeated = [name for name, _ in pairs if [n for n, _ in pairs].count(name) > 1]
    if repeated:
        raise ValueError(f"`{what}` names each column once; got {repeated[0]!r} twice.")
    return dict(pairs)


def _with_equals_sign(file: Path) -> list[str]:
    return [] if is_bag(file) else [name for name in column_names(file) if "=" in name]


def _fill_last(run: LoggedRun, controls: list[str]) -> None:
    """T controls beside T + 1 states leave the last cell empty; no sample uses what is put in."""
    for stream in run.streams:
        for name in controls:
            column = stream.columns.get(name)
            if column is not None and len(column) > 1 and np.isnan(column[-1]):
                stream.columns[name] = np.append(column[:-1], column[-2])


def _check_unit_name(time_unit: str | None) -> None:
    if time_unit is not None and time_unit not in SECONDS:
        raise ValueError(f"time_unit is one of {[*SECONDS]}; got {time_unit!r}. Choose one.")


def _check(run: LoggedRun) -> None:
    """Refuse columns that are no measurements and clocks that do not run forward."""
    for stream in run.streams:
        where = f"{run.name}{f', {stream.name}' if stream.name else ''}"
        clock = clock_of(stream)
        if len(clock) < 2:
            raise ValueError(
                f"A run needs at least 2 rows; {where} has {len(clock)}. Leave it out or record on."
            )
        check_numbers(where, {"time": clock}, np.inf)
        check_numbers(where, stream.columns)
        check_clock(where, clock)


def _common_step(runs: list[LoggedRun], states: list[str]) -> float:
    """The step of the slowest state, which must be the same in all runs."""
    steps = {
        run.name: max(
            usual_step(clock_of(stream))
            for stream in run.streams
            if any(name in stream.columns for name in states)
        )
        for run in runs
    }
    fast, slow = min(steps, key=lambda n: steps[n]), max(steps, key=lambda n: steps[n])
    if steps[slow] > (1 + _SAME_RATE) * steps[fast]:
        raise ValueError(
            f"Runs have different rates: a step is {steps[fast]:.4g} s in {fast} and "
            f"{steps[slow]:.4g} s in {slow}. Give dt in seconds to put all onto one grid."
        )
    rows = max(len(clock_of(stream)) for run in runs for stream in run.streams)
    return plain_step(float(np.median([*steps.values()])), rows)


def _no_overlap(run: LoggedRun, dt: float) -> str:
    spans = ", ".join(
        f"{stream.name or 'rows'} from {clock_of(stream)[0]:.4g} to {clock_of(stream)[-1]:.4g} s"
        for stream in run.streams
    )
    return f"{run.name} has no two moments {dt:g} s apart at which all columns are known ({spans})"


def read_controls(
    path: str | os.PathLike[str],
    control: Names,
    *,
    dt: float,
    time: str = "t",
    time_unit: str | None = None,
    traj: str | None = None,
) -> Float[np.ndarray, "T m"]:
    """Controls for a rollout: each row a step, or held onto steps of dt where there is a time.

    Args:
        path: one file.
        control: columns, in the order of the model's controls.
        dt: seconds of a step.
        time: the column that holds the time, if there is one.
        time_unit: of that column, as for `read`.
        traj: "run=3" takes the run whose column `run` is 3.
    """
    _check_unit_name(time_unit)
    files = find_files(path)
    if len(files) > 1:
        raise ValueError(
            f"A rollout follows one run; {str(path)!r} matches {len(files)} files. Name one, such "
            f"as {files[0]}."
        )
    columns = _mapping(control, "control", files[0])
    known = () if is_bag(files[0]) else column_names(files[0])
    timed = is_bag(files[0]) or any(name.split("/")[-1] == time for name in known)
    by = traj.rpartition("=")[0] or traj if traj else None
    wanted = [*columns.values()]
    runs = logged_runs(files[0], wanted, time if timed else None, by, as_dt(dt), time_unit, _PLAN)
    run = _one_run(files[0], runs, wanted[0], traj)
    _fill_last(run, wanted)
    for stream in run.streams:
        where = f"{run.name}{f', {stream.name}' if stream.name else ''}"
        if not len(clock_of(stream)):
            raise ValueError(f"A rollout needs at least one control; {where} has none.")
        check_numbers(where, {"time": clock_of(stream)}, np.inf)
        check_numbers(where, stream.columns)
        check_clock(where, clock_of(stream))
    clocks = {name: clock_of(stream) for stream in run.streams for name in stream.columns}
    values = {name: column for stream in run.streams for name, column in stream.columns.items()}
    begin = max(clock[0] for clock in clocks.values())
    end = max(clock[-1] for clock in clocks.values())
    grid = grid_of(begin, end, dt, max(len(clock) for clock in clocks.values()))
    return np.stack([held(grid, clocks[c], values[c], dt) for c in columns.values()], axis=1)


def _one_run(path: Path, runs: list[LoggedRun], column: str, traj: str | None) -> LoggedRun:
    """The only run, or the one that `traj` names."""
    label = traj.rpartition("=")[2] if traj and "=" in traj else None
    named = [run for run in runs if label is None or run.label == label]
    if len(named) == 1:
        return named[0]
    labels = [run.label for run in runs if run.label is not None]
    if labels:
        by = (traj or "").partition("=")[0]
        raise ValueError(
            f"A rollout follows one run; {path} holds {by} = {', '.join(labels[:8])}. Name one of "
            f"them: traj={f'{by}={labels[0]}'!r}."
        )
    raise ValueError(
        f"A rollout follows one run; {path} holds {len(runs)}. Name the columns of one, such "
        f"as {runs[0].name.rpartition(', ')[2]}/{column}."
    )

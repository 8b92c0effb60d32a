"""Real recordings, cut into the roles of the paper's hardware experiment."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from offmap.data import Alignment, Run, Stream, align

STATES = ("px", "py", "theta")
DT = 0.1
STEPS = 40
_CALIBRATION = 0.2  # share of a recording, from its start, that sets bandwidth and lag
_LEAST_OFFLINE = 4
_MOVING = 0.02  # m/s: least commanded speed of a moving robot
_MRCLAM = re.compile(r"(?:.*_)?(Robot\d+)_Groundtruth\.dat(?:\.gz)?$")
_RESAMPLED = re.compile(r"(?:.*_)?(Robot\d+)\.csv(?:\.gz)?$")
_COLUMNS = ("t_s", "px_m", "py_m", "theta_rad_unwrapped", "omega_cmd", "v_cmd", "valid")


@dataclass(frozen=True)
class Recording:
    """One file of a robot on the grid, and until when it was looked at for choices."""

    name: str
    aligned: Alignment
    calibrated_until: float
    """Bandwidth and lag come from before this time; no test window does."""


@dataclass(frozen=True)
class Cut:
    """Windows of 40 steps in the roles of the paper's experiment; no two overlap."""

    offline: list[Run]
    inside: list[Run]
    """ID tests: from the region of the offline data."""
    pairs: list[Run]
    """80 steps each: the first 40 are online data, the last 40 its test."""
    outside: list[Run]
    """OOD tests: other places and other headings."""

    def __str__(self) -> str:
        return (
            f"{len(self.offline)} offline windows, {len(self.inside)} ID tests, {len(self.pairs)} "
            f"online + test pairs, {len(self.outside)} OOD tests, {STEPS} steps of {DT:g} s each"
        )


def align_calibrated(name: str, pose: Stream, command: Stream, dt: float = DT) -> Recording:
    """Align with bandwidth and lag from the first fifth alone, so that tests have no say."""
    start, end = pose.time[0], min(pose.time[-1], command.time[-1])
    until = float(start + _CALIBRATION * (end - start))
    chosen = align(pose.until(until), command.until(until), dt)
    aligned = align(pose, command, dt, bandwidth=chosen.bandwidth, lag=chosen.lag)
    return Recording(name, replace(aligned, lag_explains=chosen.lag_explains), until)


def read_mrclam(directory: Path, robot: str | None = None) -> tuple[str, list[Recording]]:
    """The recordings of one robot: pairs of …RobotN_Groundtruth.dat and …_Odometry.dat files.

    A folder that has none may hold tables …RobotN.csv of the same, resampled onto a grid. Without a
    name, the robot with the most recordings is taken.
    """
    read, found = _read_mrclam_pair, _by_robot(directory, "*Groundtruth.dat*", _MRCLAM)
    if not found:
        read, found = _read_resampled, _by_robot(directory, "*.csv*", _RESAMPLED)
    if not found:
        raise ValueError(
            f"a folder of MRCLAM recordings holds files …RobotN_Groundtruth.dat(.gz) and "
            f"…RobotN_Odometry.dat(.gz), or tables …RobotN.csv; {directory} has none; check the "
            f"folder"
        )
    robot = robot or max(sorted(found), key=lambda name: len(found[name]))
    if robot not in found:
        raise ValueError(
            f"the folder has recordings of {', '.join(sorted(found))}; received {robot!r}; "
            f"choose one of them"
        )
    return robot, [read(path) for path in found[robot]]


def _by_robot(directory: Path, pattern: str, names: re.Pattern[str]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(directory.rglob(pattern)):
        match = names.match(path.name)
        if match:
            found.setdefault(match[1], []).append(path)
    return found


def _read_resampled(path: Path) -> Recording:
    """A table of poses on a grid, with a flag for rows that hold, and the commands of each step."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        header = next((line for line in file if not line.startswith("#")), "")
        names = [name.strip() for name in header.split(",")]
        missing = [name for name in _COLUMNS if name not in names]
        if missing:
            raise ValueError(
                f"a resampled table has columns {', '.join(_COLUMNS)}; {path.name} lacks "
                f"{', '.join(missing)}; check that it is the right file"
            )
        places = [names.index(name) for name in _COLUMNS]
        table = np.genfromtxt(file, delimiter=",", usecols=places, ndmin=2)
    time, pose, command, valid = table[:, 0], table[:, 1:4], table[:, 4:6], table[:, 6] == 1
    return align_calibrated(
        path.name.split(".csv")[0],
        Stream(time[valid], pose[valid], STATES, angles=(2,)),
        Stream(time, command, ("omega", "v"), hold=True),
    )


def _read_mrclam_pair(path: Path) -> Recording:
    other = path.with_name(path.name.replace("Groundtruth", "Odometry"))
    if not other.exists():
        raise ValueError(
            f"every …_Groundtruth.dat has its …_Odometry.dat beside it; {other.name} is missing; "
            f"copy it there"
        )
    truth, odometry = _numbers(path, 4), _numbers(other, 3)
    zero = truth[0, 0]
    return align_calibrated(
        path.name.split("_Groundtruth")[0],
        Stream(truth[:, 0] - zero, truth[:, 1:], STATES, angles=(2,)),
        Stream(odometry[:, 0] - zero, odometry[:, [2, 1]], ("omega", "v"), hold=True),
    )


def _numbers(path: Path, columns: int) -> np.ndarray:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            table = np.loadtxt(file, ndmin=2)
    except (ValueError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path.name} must hold {columns} numbers a line; {error}; check that the file is whole"
        ) from error
    if table.shape[1:] != (columns,) or not len(table):
        raise ValueError(
            f"{path.name} must hold {columns} numbers a line; received a table of shape "
            f"{table.shape}; check that it is the right file"
        )
    return table


def cut_roles(recordings: list[Recording], seed: int, offline: int = 10, history: int = 0) -> Cut:
    """Cut windows as the paper's roles; the seed says which ten of the offline region train.

    A window is 40 steps in a row, of which at least 90 % are driven. Windows never overlap: one
    pass over each recording takes 80-step pairs where it can, else single windows. Tests lie after
    the stretch that set bandwidth and lag.
    """
    region: list[tuple[bool, Run]] = []
    pairs, outside = [], []
    for recording in recordings:
        long = [run for run in recording.aligned.runs if STEPS + history <= run.T]
        for run in long:
            for window in _windows(run.with_history(history)):
                late = window.start >= recording.calibrated_until
                y, theta = window.x[0, 1], window.x[0, 2]
                if window.T > STEPS:
                    pairs += [window] * late
                elif y < 0 and -0.6 <= theta <= 0.8:
                    region.append((late, window))
                elif y >= 0 and not -1.5 <= theta <= 1.7:
                    outside += [window] * late
    order = np.random.default_rng(seed).permutation(len(region))
    offline = min(offline, 2 * len(region) // 3)  # a short recording leaves a third for tests
    train, rest = order[:offline], order[offline:]
    cut = Cut(
        [region[i][1] for i in train], [region[i][1] for i in rest if region[i][0]], pairs, outside
    )
    if offline < _LEAST_OFFLINE or not (cut.inside and cut.pairs and cut.outside):
        raise ValueError(
            f"the experiment needs {_LEAST_OFFLINE} offline windows and at least one of each other "
            f"role; the recordings give {cut}; give longer ones"
        )
    return cut


def _windows(run: Run) -> Iterator[Run]:
    """Pairs and single windows of a run in order of time."""
    first = 0
    while first + STEPS <= run.T:
        taken = None
        for steps in (2 * STEPS, STEPS):
            if first + steps > run.T:
                continue
            window = run.cut(first, steps).near_zero((2,))
            driven = np.mean(window.u[:, 1] > _MOVING) >= 0.9
            online = window.x[0, 1] >= 0 and -1.5 <= window.x[0, 2] <= 1.7
            if driven and (steps == STEPS or online):
                taken = window
                break
        if taken is not None:
            yield taken
        first += taken.T if taken else 1


def describe(robot: str, recordings: list[Recording], cut: Cut | None = None) -> dict[str, Any]:
    """What was read and how it was cut, as lines to print and as numbers to keep."""
    lines = [f"{robot}: {cut}"] if cut else []
    for recording in recordings:
        found = recording.aligned
        summary = found.report().splitlines()[:2]
        lines.append(f"{recording.name}: {', '.join(summary)}; {len(found.faults)} faults")
    return {
        "robot": robot,
        "read": lines,
        "lag": {recording.name: recording.aligned.lag for recording in recordings},
        "bandwidth": {recording.name: recording.aligned.bandwidth for recording in recordings},
        "faults": {
            recording.name: [str(fault) for fault in recording.aligned.faults]
            for recording in recordings
        },
    }

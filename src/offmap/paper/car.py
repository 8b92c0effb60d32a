"""Recordings of a small car: does a learned constraint carry over to another drive?"""

import csv
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np

from offmap.config import Config, Preset
from offmap.data import Run, Stream, align
from offmap.paper.ddr import IDEAL, hardware_config
from offmap.paper.experiment import fit_variants
from offmap.paper.hardware import Scores, dataset, windows_trial
from offmap.paper.recordings import DT, STATES, STEPS, Recording
from offmap.types import Progress, silent

CONTROLS = ("steering", "speed")
"""Steering command, and forward speed by the wheel encoder."""
_COLUMNS = {
    "time": "vicon time",
    "px": "vicon x",
    "py": "vicon y",
    "theta": "vicon yaw",
    "steering": "steering",
    "speed": "vel encoder",
}
_MOVING = 0.1  # m/s
_TRAIN = 8  # windows of each training file


def read_dart(path: Path) -> tuple[Stream, Stream]:
    """Poses and controls of one DART recording; refuses files without the wheel encoder."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        rows = list(csv.reader(file))
    missing = [name for name in _COLUMNS.values() if not rows or name not in rows[0]]
    if missing:
        raise ValueError(
            f"a DART recording has the columns {list(_COLUMNS.values())}; {path.name} lacks "
            f"{missing}; leave this file out"
        )
    table = np.array(rows[1:], dtype=np.float64)
    columns = {key: table[:, rows[0].index(name)] for key, name in _COLUMNS.items()}
    clock = columns["time"] - columns["time"][0]
    pose = Stream(clock, _stack(columns, STATES), STATES, angles=(2,))
    return pose, Stream(clock, _stack(columns, CONTROLS), CONTROLS, hold=True)


def read_drives(train: list[Path], test: Path) -> tuple[list[Recording], Recording]:
    """All files on one grid; the test file with the bandwidth and lag of the training files."""
    fitted = [
        Recording(path.name.split(".csv")[0], align(*read_dart(path), DT), 0.0) for path in train
    ]
    found = align(
        *read_dart(test),
        DT,
        bandwidth=float(np.mean([recording.aligned.bandwidth for recording in fitted])),
        lag=float(np.mean([recording.aligned.lag for recording in fitted])),
    )
    return fitted, Recording(test.name.split(".csv")[0], found, 0.0)


def choose_files(directory: Path, test: str) -> tuple[list[Path], Path]:
    """The file whose name contains `test`, and the two others of its kind nearest in name.

    Files of one kind begin alike; where there are fewer than two more of a kind, others follow in
    order of name. Drifting and slippery recordings are no training data for ordinary driving.
    """
    paths = sorted(
        path
        for path in directory.glob("*.csv*")
        if not path.name.startswith(("drift", "slippery")) or test in path.name
    )
    chosen = [path for path in paths if test in path.name]
    if len(chosen) != 1 or len(paths) < 3:
        raise ValueError(
            f"the car experiment needs one test file and two others; {test!r} is in the names of "
            f"{len(chosen)} of {[path.name for path in paths]}; name one file by part of its name"
        )
    kind = chosen[0].name.split("_2")[0]
    others = [path for path in paths if path != chosen[0]]
    others.sort(key=lambda path: (not path.name.startswith(kind), path.name))
    return others[:2], chosen[0]


def score_car(
    train: list[Recording],
    test: Recording,
    about: dict[str, Any],
    preset: Preset = "default",
    *,
    config: Config | None = None,
    seed: int = 0,
    history: int = 0,
    progress: Progress = silent,
) -> Scores:
    """Fit to windows of the training files, predict every window of the test file."""
    began = time.perf_counter()
    config = config or hardware_config(preset)
    rng = np.random.default_rng(seed)
    offline = [w for recording in train for w in _pick(_driven(recording, history), rng)]
    unseen = _driven(test, history)
    if len(offline) < 4 or not unseen:
        raise ValueError(
            f"the car experiment needs 4 windows to train and one to test; the files give "
            f"{len(offline)} and {len(unseen)} of {STEPS} steps; give longer ones"
        )
    data = dataset(offline, CONTROLS, history)
    tests = windows_trial(data.trajectories[0], unseen)
    errors: dict[str, np.ndarray] = {}
    example: dict[str, np.ndarray] = {}
    for name in ("GP", "DGP"):
        variants = fit_variants(name, data, {"ideal": IDEAL.gamma}, config, seed, progress)
        model = variants["approx"]
        for projection, variant in variants.items():
            states = variant.rollout(tests.test_starts, tests.test_controls)
            errors[f"{name}/{projection}"] = _summed(tests.test_states, states)
            example[f"{name}/{projection}"] = states[:8]
    still = np.repeat(tests.test_starts[:, None], STEPS + 1, axis=1)
    errors["still"] = _summed(tests.test_states, still)
    return Scores(
        f"car-{test.name}",
        preset,
        seed,
        1,
        time.perf_counter() - began,
        about | {"train": len(offline), "test": len(unseen)},
        {"another drive": errors},
        model.mean_only(),
        (tests.test_states[:8], example),
    )


def _summed(true: np.ndarray, states: np.ndarray) -> np.ndarray:
    return np.linalg.norm(true - states, axis=-1).sum(axis=-1)


def _driven(recording: Recording, history: int) -> list[Run]:
    """Windows of 40 steps in a row, at least 90 % of them moving."""
    windows = []
    long = [run for run in recording.aligned.runs if STEPS + history <= run.T]
    for run in (run.with_history(history) for run in long):
        for first in range(0, run.T - STEPS + 1, STEPS):
            window = run.cut(first, STEPS).near_zero((2,))
            if np.mean(np.abs(window.u[:, 1]) > _MOVING) >= 0.9:
                windows.append(window)
    return windows


def _pick(windows: list[Run], rng: np.random.Generator) -> list[Run]:
    return [windows[i] for i in rng.permutation(len(windows))[:_TRAIN]]


def _stack(columns: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
    return np.stack([columns[name] for name in names], axis=1)

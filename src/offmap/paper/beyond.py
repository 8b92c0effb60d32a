"""Beyond the paper: harder systems, noise on all data, and what others would do with them.

The protocol is the paper's OOD row: offline trajectories from an inner box, one online trajectory
outside it, and test rollouts of 100 steps from where that one ends. One cell is one system at one
noise level; see `cases.noise_adder` for what noise means. Cells are independent of each other: they
are the cases of a sweep.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from offmap.config import Config, Preset
from offmap.data import Dataset
from offmap.fitting import fit
from offmap.mlp import MLPConfig
from offmap.model import Model
from offmap.paper.baselines import BASELINES, bounded, roll_out, unavailable
from offmap.paper.cases import CASES, Case, noise_adder
from offmap.paper.experiment import distances, fit_variants, predict_trial, statistics, versions
from offmap.paper.protocol import ROWS, Trial
from offmap.storage import replacing
from offmap.types import Progress, silent

NOISE = (0.0, 0.001, 0.01, 0.05)
"""Levels of the tables, relative to the spread of each measured component."""

COLUMNS = (
    "DGP/approx",
    "DGP/none",
    "DGP/true",
    "DGP/offline",
    "GP/none",
    "MLP/none",
    "MLP/approx",
    *BASELINES,
)
"""Ours: approx obeys the learned constraint in the way held-out data favour, true the analytic one,
offline is approx without the online data. MLP: the neural ensemble through the same stages."""

_RATIOS = (
    *(("DGP/approx", other) for other in ("DGP/true", "DGP/none", "DGP/offline", "GP/none")),
    ("DGP/approx", "least squares"),
    ("MLP/approx", "MLP/none"),
)
_OUTSIDE = ROWS[1]  # out of distribution; this noise is on all data instead
_FIT_STAGES = 10  # data; pseudometric, dynamics and constraint of DGP, GP and MLP


@dataclass(frozen=True)
class Cell:
    """One system at one noise level."""

    system: str
    noise: float
    preset: Preset = "default"
    trials: int = 10
    seed: int = 0
    declare_angles: bool = True
    """Tell our models which states are angles."""

    def __post_init__(self) -> None:
        if self.system not in CASES:
            raise ValueError(
                f"A system beyond the paper is one of {', '.join(CASES)}; got {self.system!r}. "
                f"Choose among them."
            )
        if not 0 <= self.noise < 1:
            raise ValueError(
                f"Noise is a share of the spread, from 0 to below 1; got {self.noise}. Give 0.01 "
                f"for 1 %."
            )
        if self.trials < 1:
            raise ValueError(f"A cell needs at least one trial; got {self.trials}. Ask for 10.")

    @property
    def family(self) -> str:
        """What cells of one table have in common, as the name of their summary."""
        told = "" if self.declare_angles else "-undeclared"
        return f"beyond-{self.preset}{told}-trials{self.trials}-seed{self.seed}"

    @property
    def stem(self) -> str:
        """Name of the cell's file; equal cells, and only they, have equal names."""
        return f"{self.family}-{self.system}-noise{self.noise:g}"


def stage_count(trials: int) -> int:
    """How often `run_cell` reports progress."""
    return _FIT_STAGES + trials * (3 + len(BASELINES) - len(unavailable()))


def run_cell(
    cell: Cell,
    *,
    config: Config | None = None,
    mlp: MLPConfig | None = None,
    case: Case | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """All columns of one cell, as a JSON record with every error.

    Args:
        cell: which one.
        config: settings of our models instead of the cell's preset.
        mlp: settings of the neural ensemble.
        case: the system's protocol, if not that of `CASES`.
        progress: called as each stage begins.
    """
    began = time.perf_counter()
    case = case or CASES[cell.system]
    config = config or Config.preset(cell.preset)
    progress(f"{cell.system} at {cell.noise:.1%} noise: simulating")
    offline, trials = simulate(case, cell)
    runs = _Runs(cell, offline, trials, progress)
    true = case.system.gamma if case.c else None
    dgp = fit_variants("DGP", offline, {"true": true}, config, cell.seed, runs.say)
    runs.score("DGP", dgp)
    free = fit(
        offline,
        config=config,
        sparsify=False,
        project="none",
        seed=cell.seed,
        progress=lambda stage: runs.say(f"offline data, GP: {stage}"),
    )
    runs.score("GP", {"none": free})
    networks = replace(config, dynamics=mlp or MLPConfig())
    ensemble = fit_variants(
        "DGP", offline, {}, networks, cell.seed, lambda stage: runs.say(f"networks, {stage}")
    )
    runs.score("MLP", ensemble)
    for name in BASELINES:
        if name not in unavailable():
            runs.score_baseline(name)
    errors = {column: runs.errors[column] for column in COLUMNS if column in runs.errors}
    return {
        "cell": asdict(cell),
        "versions": versions(),
        "seconds": round(time.perf_counter() - began, 1),
        "samples": len(offline.samples()),
        "columns": {column: statistics(found) for column, found in errors.items()},
        "skipped": unavailable(),
        "ratios": dict(_ratios(errors)),
        "found": case.judge(dgp["approx"]),
        "errors": {column: found.tolist() for column, found in errors.items()},
    }


def simulate(case: Case, cell: Cell) -> tuple[Dataset, list[Trial]]:
    """Offline data and trials of a cell, as measured; tests start at and aim for the truth."""
    experiment = case.experiment
    offline_key, trial_key = jax.random.split(jax.random.key(cell.seed))
    offline = experiment.offline(
        offline_key,
        out_of_distribution=True,
        angles=experiment.system.angles if cell.declare_angles else (),
    )
    measured = noise_adder(offline, cell.noise)
    rng = np.random.default_rng((cell.seed, 0))
    logs = tuple(measured(trajectory, rng) for trajectory in offline)
    trials = []
    for i in range(cell.trials):
        trial = experiment.trial(jax.random.fold_in(trial_key, i), _OUTSIDE)
        online = measured(trial.online, np.random.default_rng((cell.seed, 1, i)))
        trials.append(replace(trial, online=online))
    return replace(offline, trajectories=logs), trials


class _Runs:
    """Collects the errors of every column over the trials of a cell."""

    def __init__(
        self, cell: Cell, offline: Dataset, trials: list[Trial], progress: Progress
    ) -> None:
        self.errors: dict[str, np.ndarray] = {}
        self._where = f"{cell.system} at {cell.noise:.1%} noise"
        self._offline, self._trials, self._progress = offline, trials, progress

    def say(self, stage: str) -> None:
        self._progress(f"{self._where}, {stage}")

    def score(self, name: str, variants: dict[str, Model]) -> None:
        """Errors of the variants of one of our models, as columns NAME/variant."""
        predicted: dict[str, list[np.ndarray]] = {}
        for trial in self._counted(name):
            for variant, states in predict_trial(variants, trial).items():
                predicted.setdefault(f"{name}/{variant}", []).append(bounded(states))
        for column, rollouts in predicted.items():
            self._keep(column, rollouts)

    def score_baseline(self, name: str) -> None:
        """Errors of a baseline, fitted afresh for every trial."""
        predicted = []
        for trial in self._counted(name):
            field = BASELINES[name](self._offline, trial.online)
            predicted.append(
                roll_out(field, trial.test_starts, trial.test_controls, self._offline.dt)
            )
        self._keep(name, predicted)

    def _counted(self, name: str) -> Iterator[Trial]:
        for i, trial in enumerate(self._trials):
            self.say(f"{name}: trial {i + 1} of {len(self._trials)}")
            yield trial

    def _keep(self, column: str, states: list[np.ndarray]) -> None:
        self.errors[column] = distances(self._trials, states).sum(axis=-1)


def _ratios(errors: dict[str, np.ndarray]) -> Iterator[tuple[str, float]]:
    """Of mean errors: below 1 means that the first is better."""
    for first, second in _RATIOS:
        if first in errors and second in errors and errors[second].mean() > 0:
            yield f"{first} / {second}", float(errors[first].mean() / errors[second].mean())


def summarise(family: str, directory: Path) -> Path:
    """Write DIR/FAMILY.json: all finished cells of a family, without the single errors."""
    records = []
    for path in sorted(cells_folder(directory).glob(f"{family}-*.json")):
        record = json.loads(path.read_text("utf-8"))
        del record["errors"]
        records.append(record)
    order = list(CASES)
    records.sort(key=lambda r: (r["cell"]["noise"], order.index(r["cell"]["system"])))
    path = directory / f"{family}.json"
    summary = {"family": family, "cells": records}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def cells_folder(directory: Path) -> Path:
    """Where the records of cells are kept, as STEM.json each."""
    return directory / "cells"

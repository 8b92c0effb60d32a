"""Beyond the paper: harder systems, noise on all data, and what others would do with them.

The protocol is the paper's OOD row: offline trajectories from an inner box, one online trajectory
outside it, and test rollouts of 100 steps from where that one ends. One cell is one system at one
noise level; see `cases.noise_adder` for what noise means. One entry is one model in one cell: these
are independent of each other, and the cases of a sweep.
"""

import json
import time
from collections.abc import Iterable, Iterator
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

MODELS = ("DGP", "GP", "MLP", *BASELINES)
"""Who predicts: ours with retained inputs and with all, the neural ensemble, and others."""

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
_FIT_STAGES = 3  # pseudometric, dynamics and constraint


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
        """What the names of its files begin with; equal cells, and only they, have equal names."""
        return f"{self.family}-{self.system}-noise{self.noise:g}"


@dataclass(frozen=True)
class Entry:
    """One model in one cell."""

    cell: Cell
    model: str

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(
                f"A model beyond the paper is one of {', '.join(MODELS)}; got {self.model!r}. "
                f"Choose among them."
            )

    @property
    def stem(self) -> str:
        """Name of the entry's file."""
        return f"{self.cell.stem}-{self.model.replace(' ', '_')}"


def stage_count(entries: Iterable[Entry]) -> int:
    """How often `run_entry` reports progress, for all of these."""
    return sum(
        1 + entry.cell.trials + (0 if entry.model in BASELINES else _FIT_STAGES)
        for entry in entries
    )


def run_entry(
    entry: Entry,
    *,
    config: Config | None = None,
    mlp: MLPConfig | None = None,
    case: Case | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """All columns of one model in one cell, as a JSON record with every error.

    Args:
        entry: which one.
        config: settings of our models instead of the cell's preset.
        mlp: settings of the neural ensemble.
        case: the system's protocol, if not that of `CASES`.
        progress: called as each stage begins.
    """
    began = time.perf_counter()
    cell, name = entry.cell, entry.model
    case = case or CASES[cell.system]
    config = config or Config.preset(cell.preset)

    def say(stage: str) -> None:
        progress(f"{cell.system} at {cell.noise:.1%} noise, {name}: {stage}")

    say("simulating")
    offline, trials = simulate(case, cell)
    found = None
    if name in BASELINES:
        predicted = _baseline(name, offline, trials, say)
    else:
        variants = _variants(name, offline, case, config, mlp, cell.seed, say)
        predicted = _predictions(name, variants, trials, say)
        found = case.judge(variants["approx"]) if name == "DGP" else None
    errors = {column: distances(trials, states).sum(axis=-1) for column, states in predicted}
    return {
        "cell": asdict(cell),
        "model": name,
        "versions": versions(),
        "seconds": round(time.perf_counter() - began, 1),
        "samples": len(offline.samples()),
        "found": found,
        "errors": {column: one.tolist() for column, one in errors.items()},
    }


def gather(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records of entries, put together to one for each cell, with means and their ratios."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        cells.setdefault(json.dumps(entry["cell"]), []).append(entry)
    return [_gathered(own) for own in cells.values()]


def _gathered(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """All entries of one cell as one record."""
    every = {name: np.asarray(e) for entry in entries for name, e in entry["errors"].items()}
    errors = {column: every[column] for column in COLUMNS if column in every}
    missing = {model: why for model, why in unavailable().items() if model not in errors}
    return {
        "cell": entries[0]["cell"],
        "versions": entries[0]["versions"],
        "seconds": {entry["model"]: entry["seconds"] for entry in entries},
        "samples": entries[0]["samples"],
        "columns": {column: statistics(found) for column, found in errors.items()},
        "skipped": missing,
        "ratios": dict(_ratios(errors)),
        "found": next((entry["found"] for entry in entries if entry["found"]), None),
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


def _variants(
    name: str,
    offline: Dataset,
    case: Case,
    config: Config,
    mlp: MLPConfig | None,
    seed: int,
    say: Progress,
) -> dict[str, Model]:
    """One of our models, fitted to offline data, with every constraint it is compared under."""
    if name == "GP":
        free = fit(offline, config=config, sparsify=False, project="none", seed=seed, progress=say)
        return {"none": free}
    if name == "MLP":
        networks = replace(config, dynamics=mlp or MLPConfig())
        return fit_variants("DGP", offline, {}, networks, seed, say)
    true = case.system.gamma if case.c else None
    return fit_variants("DGP", offline, {"true": true}, config, seed, say)


def _predictions(
    name: str, variants: dict[str, Model], trials: list[Trial], say: Progress
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Rollouts of the variants of one of our models, as columns NAME/variant."""
    predicted: dict[str, list[np.ndarray]] = {}
    for trial in _counted(trials, say):
        for variant, states in predict_trial(variants, trial).items():
            predicted.setdefault(f"{name}/{variant}", []).append(bounded(states))
    return ((column, states) for column, states in predicted.items() if column in COLUMNS)


def _baseline(
    name: str, offline: Dataset, trials: list[Trial], say: Progress
) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Rollouts of a baseline, fitted afresh for every trial."""
    predicted = []
    for trial in _counted(trials, say):
        field = BASELINES[name](offline, trial.online)
        predicted.append(roll_out(field, trial.test_starts, trial.test_controls, offline.dt))
    yield name, predicted


def _counted(trials: list[Trial], say: Progress) -> Iterator[Trial]:
    for i, trial in enumerate(trials):
        say(f"trial {i + 1} of {len(trials)}")
        yield trial


def _ratios(errors: dict[str, np.ndarray]) -> Iterator[tuple[str, float]]:
    """Of mean errors: below 1 means that the first is better."""
    for first, second in _RATIOS:
        if first in errors and second in errors and errors[second].mean() > 0:
            yield f"{first} / {second}", float(errors[first].mean() / errors[second].mean())


def summarise(family: str, directory: Path) -> Path:
    """Write DIR/FAMILY.json: all finished cells of a family, without the single errors."""
    found = sorted(cells_folder(directory).glob(f"{family}-*.json"))
    entries = (json.loads(path.read_text("utf-8")) for path in found)
    records = gather(entry for entry in entries if "model" in entry)  # older ones held whole cells
    for record in records:
        del record["errors"]
    order = list(CASES)
    records.sort(key=lambda r: (r["cell"]["noise"], order.index(r["cell"]["system"])))
    path = directory / f"{family}.json"
    summary = {"family": family, "cells": records}
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def cells_folder(directory: Path) -> Path:
    """Where the records of entries are kept, as STEM.json each."""
    return directory / "cells"

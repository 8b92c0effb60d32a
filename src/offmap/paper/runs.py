"""Run the cases of a study, here or anywhere, and gather what they found."""

import base64
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from offmap.config import Config, Preset
from offmap.model import Model, load
from offmap.paper.experiment import Result, Stage, distances, fit_variants, predict_trial
from offmap.paper.protocol import ROWS, Experiment, Row
from offmap.paper.study import AbstractStudy, Case, Fit, SimulatedStudy, cases
from offmap.types import Progress, silent

_FIT_STAGES = 4  # data; pseudometric, dynamics and constraint
_EXAMPLE = ROWS[1]  # the row whose first trial is drawn


def stage_count(some: Iterable[Case]) -> int:
    """How often `run_case` reports progress, if these cases are run in order by one worker."""
    some = list(some)
    fits = {case.fit for case in some}
    return _FIT_STAGES * len(fits) + sum(case.row is not None for case in some)


def run_case(case: Case, progress: Progress = silent) -> dict[str, Any]:
    """The record of one case: distances to the truth of every test, or the model in a text."""
    began = time.perf_counter()
    variants = _fitted(case.fit, progress)
    study, name = case.fit.study, case.fit.name
    if case.row is None:
        record: dict[str, Any] = {"model": _packed(variants["approx"].mean_only())}
    else:
        progress(f"{case.row.title}, {name}: trial {case.index + 1} of {study.trials}")
        trial = study.trial(case.row, case.index)
        states = predict_trial(variants, trial)
        apart = {f"{name}/{p}": distances([trial], [found])[0] for p, found in states.items()}
        record = {"distances": apart}
        if _is_example(case.row, case.index):
            record["states"] = {f"{name}/{p}": found for p, found in states.items()}
    return {"seconds": time.perf_counter() - began, **record}


_held: dict[Fit, dict[str, Model]] = {}


def _fitted(fit: Fit, progress: Progress) -> dict[str, Model]:
    """All variants of a model, kept until another is asked for.

    Only one model's factorised covariance is held at a time: the quadrotor's takes 5 GB.
    """
    if fit not in _held:
        _held.clear()
        study = fit.study
        progress(f"{fit.where} offline data, {fit.name}: data and their true constraint")
        offline = study.offline(fit.kind)
        _held[fit] = fit_variants(
            fit.name,
            offline,
            study.gammas(offline),
            study.config,
            study.seed,
            lambda stage: progress(f"{fit.where} {stage}"),
        )
    return _held[fit]


def run_study(study: AbstractStudy, progress: Progress = silent) -> Result:
    """Run all cases here, one after the other."""
    try:
        return gather(study, {name: run_case(c, progress) for name, c in cases(study).items()})
    finally:
        _held.clear()


def gather(study: AbstractStudy, records: Mapping[str, Any]) -> Result:
    """The result of a study from the records of all its cases, wherever they were run."""
    apart: dict[str, dict[str, list[np.ndarray]]] = {row.key: {} for row in ROWS}
    stages: dict[bool, Stage] = {}
    models: dict[bool | None, dict[str, Model]] = {kind: {} for kind in study.kinds}
    states: dict[str, np.ndarray] = {}
    seconds = 0.0
    for name, case in cases(study).items():
        record = records[name]
        seconds += record["seconds"]
        if case.row is None:
            models[case.fit.kind][case.fit.name] = _unpacked(record["model"])
            continue
        for column, found in record["distances"].items():
            apart[case.row.key].setdefault(column, []).append(np.asarray(found))
        states |= {c: np.asarray(found) for c, found in record.get("states", {}).items()}
    for kind, fitted in models.items():
        stage = Stage(fitted["DGP"].dataset, fitted)
        stages.update({ood: stage for ood in (False, True) if kind in (None, ood)})
    ordered = {row: {c: np.stack(found[c]) for c in study.columns} for row, found in apart.items()}
    return Result(
        study.experiment,
        study.title,
        study.seed,
        study.trials,
        seconds,
        {row: {c: d.sum(axis=-1) for c, d in cells.items()} for row, cells in ordered.items()},
        {row: {c: d.mean(axis=(0, 1)) for c, d in cells.items()} for row, cells in ordered.items()},
        stages,
        (study.trial(_EXAMPLE, 0), states),
    )


def _is_example(row: Row, index: int) -> bool:
    return row == _EXAMPLE and index == 0


def reproduce(
    experiment: Experiment,
    preset: Preset = "paper",
    *,
    config: Config | None = None,
    trials: int = 10,
    seed: int = 0,
    declare_angles: bool = True,
    progress: Progress = silent,
) -> Result:
    """Run the protocol: fit on offline data, fold in each online trajectory, roll out its tests.

    `declare_angles=False` does not tell which states are angles; the paper's preset never asks.
    """
    config = config or Config.preset(preset)
    study = SimulatedStudy(experiment, preset, config, trials, seed, declare_angles)
    return run_study(study, progress)


def _packed(model: Model) -> str:
    """A model file as text, for a record."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.offmap"
        model.save(path)
        return base64.b64encode(path.read_bytes()).decode("ascii")


def _unpacked(text: str) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.offmap"
        path.write_bytes(base64.b64decode(text))
        return load(path)

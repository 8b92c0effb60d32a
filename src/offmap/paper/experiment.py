"""Run a protocol: every variant on every row, with the statistics of the paper's tables."""

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from offmap.config import Config, Preset
from offmap.constraint import fit_constraint
from offmap.data import Dataset
from offmap.fitting import fit
from offmap.model import Model
from offmap.paper.protocol import ROWS, Experiment, Row, Trial
from offmap.rollout import state_errors
from offmap.structure import constrain
from offmap.types import Gamma, Progress, silent

COLUMNS = (
    "GP/none",
    "GP/ideal",
    "GP/approx",
    "GP/true",
    "DGP/none",
    "DGP/ideal",
    "DGP/approx",
    "DGP/true",
    "GP/offline",
    "DGP/offline",
)
"""Dynamics / projection. ideal: Γ learned from the true f; approx: from f̂; true: analytic Γ.

offline: as approx, without the online data, which should never be better off.
"""

_FIT_STAGES = 7  # pseudometric, dynamics and constraint of GP and DGP; the ideal constraint


@dataclass(frozen=True)
class Stage:
    """What was learned from one offline data set."""

    offline: Dataset
    models: dict[str, Model]
    """"GP" and "DGP", projected onto their own learned constraint; means only, without std."""


@dataclass(frozen=True)
class Result:
    """Errors of every variant in every row, and what is needed to draw them."""

    experiment: Experiment
    preset: str
    seed: int
    trials: int
    seconds: float
    errors: dict[str, dict[str, np.ndarray]]
    """Row key, then column, to (trials, tests) cumulative errors."""
    growth: dict[str, dict[str, np.ndarray]]
    """Row key, then column, to (T + 1,) distances to the truth, averaged over all rollouts."""
    stages: dict[bool, Stage]
    example: tuple[Trial, dict[str, np.ndarray]] = field(repr=False)
    """The first OOD η = 0 trial and its predicted states for each column."""

    def to_json(self) -> dict[str, Any]:
        """The record of design §3, with paired differences beside the means."""
        rows = {
            row: {column: statistics(errors) for column, errors in cells.items()}
            for row, cells in self.errors.items()
        }
        return {
            "system": self.experiment.system.name,
            "preset": self.preset,
            "seed": self.seed,
            "trials": self.trials,
            "versions": versions(),
            "seconds": round(self.seconds, 1),
            "rows": rows,
            "differences": {row: _differences(cells) for row, cells in self.errors.items()},
            "found": {
                ("ood" if ood else "id"): _found(stage) for ood, stage in self.stages.items()
            },
        }


def stage_count(trials: int, experiment: Experiment) -> int:
    """How often `reproduce` reports progress."""
    return _FIT_STAGES * len(_offline_kinds(experiment)) + 2 * len(ROWS) * trials


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
    if trials < 1:
        raise ValueError(f"An experiment needs at least one trial; got {trials}. Ask for 10.")
    began = time.perf_counter()
    config = config or Config.preset(preset)
    offline_key, trial_key = jax.random.split(jax.random.key(seed))
    stages = {}
    predictions: dict[str, list[dict[str, np.ndarray]]] = {row.key: [] for row in ROWS}
    trials_of = {
        row.key: [experiment.trial(jax.random.fold_in(trial_key, i), row) for i in range(trials)]
        for row in ROWS
    }
    for kind in _offline_kinds(experiment):
        rows = [row for row in ROWS if kind is None or row.out_of_distribution == kind]
        stage, predicted = _run_stage(
            experiment,
            experiment.offline(
                offline_key,
                out_of_distribution=bool(kind),
                angles=experiment.system.angles if declare_angles else (),
            ),
            "OOD" if kind else "ID",
            rows,
            trials_of,
            config,
            seed,
            progress,
        )
        predictions.update(predicted)
        stages.update({ood: stage for ood in (False, True) if kind in (None, ood)})
    apart = {
        row: {
            column: distances(trials_of[row], [p[column] for p in predicted]) for column in COLUMNS
        }
        for row, predicted in predictions.items()
    }
    return Result(
        experiment,
        preset if declare_angles else f"{preset}-undeclared",
        seed,
        trials,
        time.perf_counter() - began,
        {row: {c: d.sum(axis=-1) for c, d in cells.items()} for row, cells in apart.items()},
        {row: {c: d.mean(axis=(0, 1)) for c, d in cells.items()} for row, cells in apart.items()},
        stages,
        (trials_of["ood00"][0], predictions["ood00"][0]),
    )


def _offline_kinds(experiment: Experiment) -> tuple[bool | None, ...]:
    """Which offline data sets there are: ID and OOD, or None where all rows share one."""
    return (None,) if experiment.id_box == experiment.ood_offline_box else (False, True)


def _run_stage(
    experiment: Experiment,
    offline: Dataset,
    where: str,
    rows: list[Row],
    trials: dict[str, list[Trial]],
    config: Config,
    seed: int,
    progress: Progress,
) -> tuple[Stage, dict[str, list[dict[str, np.ndarray]]]]:
    """Fit to one offline data set and predict every test of the rows that use it.

    Only one model's factorised covariance is held at a time: the quadrotor's takes 5 GB.
    """
    progress(f"{where} offline data: constraint from the true dynamics")
    ideal = fit_constraint(
        experiment.system.f,
        offline.samples(),
        0,
        offline.state_names,
        key=jax.random.key(seed),
        config=config.constraint,
    )
    models: dict[str, Model] = {}
    predictions: dict[str, list[dict[str, np.ndarray]]] = {
        row.key: [{} for _ in trials[row.key]] for row in rows
    }
    gammas = {"ideal": ideal.gamma, "true": experiment.system.gamma}
    for name in ("GP", "DGP"):
        variants = fit_variants(
            name, offline, gammas, config, seed, lambda stage: progress(f"{where} {stage}")
        )
        for row in rows:
            for i, trial in enumerate(trials[row.key]):
                progress(f"{row.title}, {name}: trial {i + 1} of {len(trials[row.key])}")
                for projection, states in predict_trial(variants, trial).items():
                    predictions[row.key][i][f"{name}/{projection}"] = states
        models[name] = variants["approx"].mean_only()
    return Stage(offline, models), predictions


def fit_variants(
    name: str,
    offline: Dataset,
    gammas: Mapping[str, Gamma | None],
    config: Config,
    seed: int,
    progress: Progress,
) -> dict[str, Model]:
    """Dynamics "GP" or "DGP" that obey their own Γ ("approx"), none, and each of those given."""
    model = fit(
        offline,
        config=config,
        sparsify=name == "DGP",
        project="learned",
        seed=seed,
        progress=lambda stage: progress(f"offline data, {name}: {stage}"),
    )
    free = constrain(model, None)
    given = {label: constrain(free, gamma) for label, gamma in gammas.items()}
    return {"approx": model, "none": free, **given}


def predict_trial(variants: dict[str, Model], trial: Trial) -> dict[str, np.ndarray]:
    """Test rollouts of every variant after the online data; equal dynamics are updated once."""
    updated: dict[int, Model] = {}
    predicted = {}
    for projection, variant in variants.items():
        dynamics = variant.predictor.dynamics
        if id(dynamics) not in updated:
            model = updated[id(dynamics)] = variant.update(trial.online)
        else:
            shared = updated[id(dynamics)].predictor.dynamics
            predictor = eqx.tree_at(lambda p: p.dynamics, variant.predictor, shared)
            model = replace(variant, predictor=predictor)
        predicted[projection] = model.rollout(trial.test_starts, trial.test_controls)
    if "approx" in variants:
        predicted["offline"] = variants["approx"].rollout(trial.test_starts, trial.test_controls)
    return predicted


def distances(trials: list[Trial], states: list[np.ndarray]) -> np.ndarray:
    """‖x_true − x_pred‖ of each state (trials, tests, T + 1); summed over time it is eq. (loss)."""
    true = jnp.asarray(np.stack([trial.test_states for trial in trials]))
    return np.asarray(state_errors(true, jnp.asarray(np.stack(states))))


def statistics(errors: np.ndarray) -> dict[str, Any]:
    """Mean and spread over all rollouts, with a bootstrap 95 % interval of the mean."""
    return {
        "mean": float(errors.mean()),
        "std": float(errors.std()),
        "n": int(errors.size),
        "ci95": bootstrap_interval(errors),
    }


def bootstrap_interval(errors: np.ndarray, draws: int = 10_000) -> list[float]:
    """95 % interval of the mean, resampling trials: rollouts of one trial share their start."""
    means = errors.reshape(len(errors), -1).mean(axis=1)
    chosen = np.random.default_rng(0).integers(len(means), size=(draws, len(means)))
    return [float(bound) for bound in np.quantile(means[chosen].mean(axis=1), [0.025, 0.975])]


def _differences(cells: dict[str, np.ndarray]) -> dict[str, Any]:
    """Paired differences that the paper's claims are about: below 0 means the first is better."""
    pairs = [
        ("DGP/none", "GP/none"),
        ("DGP/approx", "GP/approx"),
        ("GP/approx", "GP/none"),
        ("DGP/approx", "DGP/none"),
        ("DGP/approx", "DGP/true"),
        ("DGP/approx", "DGP/ideal"),
        ("DGP/approx", "DGP/offline"),
    ]
    return {
        f"{first} − {second}": {
            "mean": float((cells[first] - cells[second]).mean()),
            "ci95": bootstrap_interval(cells[first] - cells[second]),
        }
        for first, second in pairs
        if first in cells and second in cells
    }


def _found(stage: Stage) -> dict[str, Any]:
    """What the DGP discovered, for the record."""
    model = stage.models["DGP"]
    assert model.pseudometric is not None
    return {
        "weights": model.pseudometric.input_weights,
        "kept": list(model.retained.dynamics),
        "kept_in_tangent_frame": list(model.retained.tangent or ()),
        "structure": model.choices.structure,
        "c": model.constraints.c,
        "singular_values": [float(value) for value in model.constraints.singular_values],
        "constraint_inputs": [list(names) for names in model.retained.constraint],
        "equations": [str(equation) for equation in model.constraints.equations],
    }


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    packages = ("offmap", "jax", "jaxlib", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: _version(name) for name in packages}}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"  # run from a checkout

"""Run a protocol: every variant on every row, with the statistics of the paper's tables."""

import platform
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offmap.config import Config, Preset
from offmap.constraint import fit_constraint
from offmap.data import Dataset
from offmap.model import Model, fit
from offmap.paper.protocol import ROWS, Experiment, Trial
from offmap.rollout import state_errors
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
)
"""Dynamics / projection. ideal: Γ learned from the true f; approx: from f̂; true: analytic Γ."""

_FIT_STAGES = 6  # GP: dynamics, constraint; DGP: pseudometric, dynamics, constraint; ideal


@dataclass(frozen=True)
class Stage:
    """Models fitted to one offline data set, ready to take online data."""

    offline: Dataset
    models: dict[str, Model]
    """"GP" and "DGP", projected onto their own learned constraint."""
    ideal: Gamma | None


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
    return _FIT_STAGES * len(_offline_kinds(experiment)) + len(ROWS) * trials


def reproduce(
    experiment: Experiment,
    preset: Preset = "paper",
    *,
    config: Config | None = None,
    trials: int = 10,
    seed: int = 0,
    progress: Progress = silent,
) -> Result:
    """Run the protocol: fit on offline data, fold in each online trajectory, roll out its tests."""
    if trials < 1:
        raise ValueError(f"An experiment needs at least one trial; got {trials}. Ask for 10.")
    began = time.perf_counter()
    config = config or Config.preset(preset)
    offline_key, trial_key = jax.random.split(jax.random.key(seed))
    stages = {
        ood: _fit_stage(experiment, offline_key, ood, config, seed, progress)
        for ood in _offline_kinds(experiment)
    }
    stages = {ood: stages.get(ood, next(iter(stages.values()))) for ood in (False, True)}
    errors: dict[str, dict[str, np.ndarray]] = {}
    growth: dict[str, dict[str, np.ndarray]] = {}
    example = None
    for row in ROWS:
        stage = stages[row.out_of_distribution]
        collected: dict[str, list[np.ndarray]] = {column: [] for column in COLUMNS}
        for i in range(trials):
            progress(f"{row.title}: trial {i + 1} of {trials}")
            trial = experiment.trial(jax.random.fold_in(trial_key, i), row)
            predicted = _predictions(experiment, stage, trial)
            for column, states in predicted.items():
                collected[column].append(_distances(trial, states))
            if i == 0 and row.key == "ood00":
                example = (trial, predicted)
        distances = {column: np.stack(values) for column, values in collected.items()}
        errors[row.key] = {column: values.sum(axis=-1) for column, values in distances.items()}
        growth[row.key] = {column: values.mean(axis=(0, 1)) for column, values in distances.items()}
    assert example is not None
    seconds = time.perf_counter() - began
    return Result(experiment, preset, seed, trials, seconds, errors, growth, stages, example)


def _offline_kinds(experiment: Experiment) -> tuple[bool, ...]:
    """Which offline data sets differ: the unicycle's ID and OOD rows share one."""
    return (False,) if experiment.id_box == experiment.ood_offline_box else (False, True)


def _fit_stage(
    experiment: Experiment,
    key: jax.Array,
    out_of_distribution: bool,
    config: Config,
    seed: int,
    progress: Progress,
) -> Stage:
    offline = experiment.offline(key, out_of_distribution=out_of_distribution)
    where = "OOD" if out_of_distribution else "ID"

    def fitted(name: str) -> Model:
        return fit(
            offline,
            config=config,
            sparsify=name == "DGP",
            project="learned",
            seed=seed,
            progress=lambda text: progress(f"{where} offline data, {name}: {text}"),
        )

    models = {name: fitted(name) for name in ("GP", "DGP")}
    progress(f"{where} offline data: constraint from the true dynamics")
    ideal = fit_constraint(
        experiment.system.f,
        offline.samples(),
        0,
        offline.state_names,
        key=jax.random.key(seed),
        config=config.constraint,
    )
    return Stage(offline, models, ideal.gamma)


def _predictions(experiment: Experiment, stage: Stage, trial: Trial) -> dict[str, np.ndarray]:
    predicted = {}
    for name, offline_model in stage.models.items():
        model = offline_model.update(trial.online)
        gammas = {
            "none": None,
            "ideal": stage.ideal,
            "approx": model.predictor.gamma,
            "true": experiment.system.gamma,
        }
        for projection, gamma in gammas.items():
            variant = model.with_constraint(gamma)
            predicted[f"{name}/{projection}"] = variant.rollout(
                trial.test_starts, trial.test_controls
            )
    return predicted


def _distances(trial: Trial, states: np.ndarray) -> np.ndarray:
    """‖x_true − x_pred‖ of each state of each test; their sum over time is eq. (loss)."""
    return np.asarray(state_errors(jnp.asarray(trial.test_states), jnp.asarray(states)))


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
    ]
    return {
        f"{first} − {second}": {
            "mean": float((cells[first] - cells[second]).mean()),
            "ci95": bootstrap_interval(cells[first] - cells[second]),
        }
        for first, second in pairs
    }


def _found(stage: Stage) -> dict[str, Any]:
    """What the DGP discovered, for the record."""
    model = stage.models["DGP"]
    assert model.pseudometric is not None
    return {
        "weights": dict(
            zip(model.pseudometric.names, map(float, model.pseudometric.weights), strict=True)
        ),
        "kept": list(model.retained.dynamics),
        "c": model.constraints.c,
        "singular_values": [float(value) for value in model.constraints.singular_values],
        "constraint_inputs": [list(names) for names in model.retained.constraint],
        "equations": [str(equation) for equation in model.constraints.equations],
    }


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    packages = ("offmap", "jax", "jaxlib", "numpy", "scipy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}

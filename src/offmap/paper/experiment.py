"""The variants of a model that the paper compares, and the statistics of its tables."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from offmap.config import Config
from offmap.data import Dataset
from offmap.fitting import fit
from offmap.model import Model
from offmap.paper.protocol import Experiment, Trial
from offmap.rollout import state_errors
from offmap.structure import constrain
from offmap.types import Gamma, Progress

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
    """Of all cases together, whoever ran them."""
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

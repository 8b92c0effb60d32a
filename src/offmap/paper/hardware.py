"""Score every variant on windows of real recordings, beside models that learn nothing."""

import time
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from offmap.config import Config, Preset
from offmap.data import Dataset, Run, Trajectory, history_names
from offmap.model import Model
from offmap.paper.ddr import IDEAL, hardware_config, noisy
from offmap.paper.experiment import distances, fit_variants, predict_trial, statistics, versions
from offmap.paper.protocol import Trial
from offmap.paper.recordings import DT, STATES, STEPS, Cut
from offmap.rollout import rollout
from offmap.types import Progress, silent

ROWS = {
    "id": "ID",
    "online": "after online",
    "ood00": "OOD η = 0",
    "ood05": "OOD η = .05",
    "ood10": "OOD η = .10",
}
"""Where the tests lie; η is noise added to the online states."""
NOISE = {"ood05": 0.05, "ood10": 0.10}
COLUMNS = tuple(
    f"{dynamics}/{projection}"
    for dynamics in ("GP", "DGP")
    for projection in ("none", "ideal", "approx", "offline")
)
_DRAWN = 8  # OOD windows kept for the figure
_CUTOFF_HZ = 1.0  # of the filter for noisy online states; commands change about twice a second


@dataclass(frozen=True)
class Scores:
    """Errors of every column in every row on recordings."""

    system: str
    preset: str
    seed: int
    trials: int
    seconds: float
    about: dict[str, Any]
    """What was read and how it was cut."""
    errors: dict[str, dict[str, np.ndarray]]
    """Row, then column, to one summed error per test window (mean over online trajectories)."""
    model: Model
    """The DGP with its own constraint."""
    example: tuple[np.ndarray, dict[str, np.ndarray]] = field(repr=False)
    """True states of some OOD windows, and what each column predicts."""

    def to_json(self) -> dict[str, Any]:
        """The record of design §3."""
        constraints = self.model.constraints
        return {
            "system": self.system,
            "preset": self.preset,
            "seed": self.seed,
            "trials": self.trials,
            "versions": versions(),
            "seconds": round(self.seconds, 1),
            "rows": {
                row: {column: statistics(errors[:, None]) for column, errors in cells.items()}
                for row, cells in self.errors.items()
            },
            "about": self.about,
            "found": {
                "kept": list(self.model.retained.dynamics),
                "kept_in_tangent_frame": list(self.model.retained.tangent or ()),
                "structure": self.model.choices.structure,
                "c": constraints.c,
                "singular_values": [float(value) for value in constraints.singular_values],
                "equations": [str(equation) for equation in constraints.equations],
            },
        }


def stage_count() -> int:
    """How often `score_recordings` reports progress."""
    return 2 * (3 + len(ROWS))


def score_recordings(
    cut: Cut,
    about: dict[str, Any],
    preset: Preset = "default",
    *,
    config: Config | None = None,
    trials: int = 8,
    seed: int = 0,
    history: int = 0,
    progress: Progress = silent,
) -> Scores:
    """Fit to the offline windows, fold in one online window at a time, predict every test."""
    if trials < 1:
        raise ValueError(f"An experiment needs at least one trial; got {trials}. Ask for 8.")
    began = time.perf_counter()
    config = config or hardware_config(preset)
    rng = np.random.default_rng([seed, 1])
    chosen = rng.permutation(len(cut.pairs))[:trials]
    online = [cut.pairs[i].cut(0, STEPS) for i in chosen]
    after = [cut.pairs[i].cut(STEPS, STEPS) for i in chosen]
    tests = {
        row: [
            windows_trial(
                noisy(run, NOISE.get(row, 0.0), rng, _CUTOFF_HZ),
                {"id": cut.inside, "online": [after[i]]}.get(row, cut.outside),
            )
            for i, run in enumerate(online)
        ]
        for row in ROWS
    }
    data = dataset(cut.offline, ("omega", "v"), history)
    errors: dict[str, dict[str, np.ndarray]] = {row: {} for row in ROWS}
    example: dict[str, np.ndarray] = {}
    for name in ("GP", "DGP"):
        variants = fit_variants(name, data, {"ideal": IDEAL.gamma}, config, seed, progress)
        model = variants["approx"]
        for row, row_trials in tests.items():
            progress(f"{ROWS[row]}, {name}: {len(row_trials)} online trajectories")
            predicted = [predict_trial(variants, trial) for trial in row_trials]
            for projection in predicted[0]:
                states = [p[projection] for p in predicted]
                errors[row][f"{name}/{projection}"] = _per_window(row, row_trials, states)
            if row == "ood00":
                example |= {f"{name}/{p}": states[:_DRAWN] for p, states in predicted[0].items()}
    for row, row_trials in tests.items():
        for column, predict in (("analytic", analytic), ("still", _still)):
            states = [predict(trial) for trial in row_trials]
            errors[row][column] = _per_window(row, row_trials, states)
    shown = tests["ood00"][0]
    return Scores(
        "ddr",
        preset,
        seed,
        len(online),
        time.perf_counter() - began,
        about,
        errors,
        model.mean_only(),
        (shown.test_states[:_DRAWN], example | {"analytic": analytic(shown)[:_DRAWN]}),
    )


def dataset(windows: list[Run], controls: tuple[str, ...], history: int) -> Dataset:
    """Windows as data to fit to."""
    return Dataset(
        [window.samples("offline") for window in windows],
        STATES,
        history_names(controls, history),
        angles=STATES[2:],
    )


def windows_trial(online: Trajectory, tests: list[Run]) -> Trial:
    """Online data, and windows to predict after it."""
    return Trial(
        online,
        np.stack([test.x[0] for test in tests]),
        np.stack([test.u for test in tests]),
        np.stack([test.x for test in tests]),
    )


def _per_window(row: str, trials: list[Trial], states: list[np.ndarray]) -> np.ndarray:
    """Summed error of each test window; windows that all trials share are averaged over trials."""
    errors = distances(trials, states).sum(axis=-1)
    return errors[:, 0] if row == "online" else errors.mean(axis=0)


def analytic(trial: Trial) -> np.ndarray:
    """The textbook's unicycle under the lagged commands."""
    controls = jnp.asarray(trial.test_controls[..., :2])  # the newest, where there is a history
    roll = jax.vmap(lambda x, u: rollout(IDEAL.f, x, u, DT, "rk4"))
    return np.asarray(roll(jnp.asarray(trial.test_starts), controls))


def _still(trial: Trial) -> np.ndarray:
    return np.repeat(trial.test_starts[:, None], STEPS + 1, axis=1)

"""How often the truth lies where a model says it may: coverage of central intervals.

    python benchmarks/calibration.py --seeds 30 --jobs 16
    python benchmarks/calibration.py --table

Each system is fitted with 1 % noise on all data, without online data, by the default preset. Tests
are the noise-free rollouts of the paper's ID and OOD rows: x' in one step against `predict`'s
standard deviation, states of rollouts against `rollout(…, samples=S)`. Errors within one fit are
alike, so that only coverage over many fits (seeds) says something; standard errors are over fits.
Every system has starts, controls and noise of its own in every seed.
What a model says is exact, and is (px' = vx, to round-off), is not counted.

Every system and seed is a file of the folder --cells: a run goes on where an earlier one was ended,
runs on several machines put their files together, and --table makes the table of those there are.
Where there are none, it is the table of benchmarks/calibration.json, which is kept.
--models keeps the fits, which take far longer than what is measured on them.
"""

import argparse
import json
import time
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from cells import answers
from scipy.stats import norm

import offmap
from offmap.paper.cases import CASES, Case, noise_adder
from offmap.paper.protocol import ROWS

LEVELS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
SHOWN = (0.5, 0.9, 0.95)
SYSTEMS = ("unicycle", "tanh", "tanh0", "slip", "bicycle", "trailer", "disk", "quadrotor")
FEW = 150  # flights of two steps from which the quadrotor is learned
KINDS = ("one step", "rollout")
PLACES = {"ID": ROWS[0], "OOD": ROWS[1]}
KEPT = Path(__file__).with_name("calibration.json")
TRIALS, SAMPLES = 4, 39  # every level is a rank of 40
EVERY = 10  # steps between the states that are judged
_ROUND_OFF = 1e-9  # of the spread of x': smaller errors are none


def case_of(name: str) -> Case:
    """The system with its protocol; few samples for the quadrotor, so that there is doubt.

    ID tests start in the box of the data.
    """
    experiment = CASES[name].experiment
    experiment = replace(experiment, id_box=experiment.ood_offline_box)
    if name == "quadrotor":
        experiment = replace(experiment, offline_trajectories=FEW)
    return replace(CASES[name], experiment=experiment)


@dataclass(frozen=True)
class Cell:
    """One system and seed, and how it is measured."""

    system: str
    seed: int
    noise: float
    models: Path | None = None
    """Folder of fitted models."""
    trials: int = TRIALS
    samples: int = SAMPLES

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.system}-{self.seed}-noise{self.noise:g}-{self.trials}x{self.samples}"

    @property
    def own(self) -> int:
        """A number for each system: those of one seed share neither data nor noise."""
        return zlib.crc32(self.system.encode())


def noisy(cell: Cell) -> offmap.Dataset:
    """Offline data with noise on all that is measured."""
    case = case_of(cell.system)
    key, angles = jax.random.fold_in(jax.random.key(cell.seed), cell.own), case.system.angles
    offline = case.experiment.offline(key, out_of_distribution=True, angles=angles)
    measured = noise_adder(offline, cell.noise)
    rng = np.random.default_rng([cell.seed, cell.own])
    logs = [measured(trajectory, rng) for trajectory in offline.trajectories]
    return offmap.Dataset(logs, offline.state_names, offline.control_names, angles)


def coverage(model: offmap.Model, cell: Cell, place: str) -> dict[str, list[float]]:
    """Share of components within central intervals of each level, in one step and in rollouts."""
    case, samples = case_of(cell.system), cell.samples
    key = jax.random.fold_in(jax.random.key(1000 + cell.seed), cell.own)
    tests = [case.experiment.trial(k, PLACES[place]) for k in jax.random.split(key, cell.trials)]
    states = np.concatenate([test.test_states for test in tests])
    controls = np.concatenate([test.test_controls for test in tests])
    x = states[:, :-1:EVERY].reshape(-1, states.shape[-1])
    u = controls[:, ::EVERY].reshape(-1, controls.shape[-1])
    mean, std = model.predict(x, u, return_std=True)
    error = np.abs(mean - np.asarray(jax.vmap(case.system.f)(jnp.asarray(x), jnp.asarray(u))))
    floor = _ROUND_OFF * model.dataset.samples().xdot.std(axis=0)
    drawn = model.rollout(states[:, 0], controls, samples=samples, seed=cell.seed)
    drawn, truth = drawn[:, :, EVERY::EVERY], states[:, EVERY::EVERY]
    # Where the truth ranks among the draws: uniform if they are as far apart as they should be.
    rank = (np.sum(drawn < truth[None], axis=0) + 0.5) / (samples + 1)
    round_off = _ROUND_OFF * model.dataset.samples().x.std(axis=0)
    away = np.abs(drawn - truth[None]).max(axis=0) > round_off
    doubted = (std > floor) | (error > floor)
    scaled = (error / np.maximum(std, 1e-300))[doubted]
    return {
        "one step": [float(np.mean(scaled <= norm.ppf(0.5 + q / 2))) for q in LEVELS],
        "rollout": [float(np.mean(np.abs(rank - 0.5)[away] <= q / 2)) for q in LEVELS],
    }


def fitted(cell: Cell) -> offmap.Model:
    """The model of one cell, read from the folder where an earlier run left it."""
    path = cell.models and cell.models / f"{cell.system}-{cell.seed}-noise{cell.noise:g}.offmap"
    if path is not None and path.exists():
        return offmap.load(path)
    model = offmap.fit(noisy(cell), seed=cell.seed)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    return model


def judge(cell: Cell) -> dict:
    """Fit one system and measure all coverages."""
    began = time.perf_counter()
    model = fitted(cell)
    after = time.perf_counter()
    found = {place: coverage(model, cell, place) for place in PLACES}
    return {
        "system": cell.system,
        "seed": cell.seed,
        "structure": model.choices.used or "none",
        "kernel": model.choices.tangent_kernel or model.choices.kernel,
        "coverage": found,
        "seconds": [round(after - began, 1), round(time.perf_counter() - after, 1)],
    }


def mean_coverage(records: list[dict], name: str, place: str, kind: str) -> np.ndarray:
    """Of one system, or of all for the name "all", with its standard error (2, levels)."""
    each = [r["coverage"][place][kind] for r in records if name in ("all", r["system"])]
    mean = np.mean(each, axis=0)
    error = np.std(each, axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else mean * np.nan
    return np.stack([mean, error])


def summary(records: list[dict]) -> dict:
    """Mean coverage and standard error for each system, place, kind and level."""
    return {
        name: {
            place: {
                kind: dict(zip(("mean", "error"), found.round(4).tolist(), strict=True))
                for kind in KINDS
                for found in [mean_coverage(records, name, place, kind)]
            }
            for place in PLACES
        }
        for name in [*dict.fromkeys(r["system"] for r in records), "all"]
    }


def record(records: list[dict]) -> str:
    """JSON of all records and of what they say together, a line for each."""
    lines = ",\n".join(json.dumps(one) for one in records)
    systems = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in summary(records).items())
    head = f'"levels": {json.dumps(LEVELS)},\n"summary": {{\n{systems}}}'
    return f'{{{head},\n"records": [\n{lines}]}}\n'


def table(records: list[dict]) -> str:
    """Coverage in per cent of 50, 90 and 95 % intervals, each with its standard error."""
    at = [LEVELS.index(q) for q in SHOWN]
    lines = [
        "| | fits | one step, ID | one step, OOD | rollout, ID | rollout, OOD |",
        "|---|---|---|---|---|---|",
    ]
    for name in [*dict.fromkeys(r["system"] for r in records), "all"]:
        count = sum(name in ("all", r["system"]) for r in records)
        cells = [
            " / ".join(f"{100 * m:.0f} ± {100 * e:.0f}" for m, e in found[:, at].T)
            for kind in KINDS
            for place in PLACES
            for found in [mean_coverage(records, name, place, kind)]
        ]
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(records: list[dict], path: Path) -> None:
    """Coverage against level, one line for each system."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), sharey=True, layout="constrained")
    panels = [(kind, place) for kind in KINDS for place in PLACES]
    levels = 100 * np.array(LEVELS)
    for ax, (kind, place) in zip(axes, panels, strict=True):
        ax.fill_between([0, 100], [-10, 90], [10, 110], color="0.92", lw=0)
        ax.plot([0, 100], [0, 100], color="0.5", lw=1)
        for name in dict.fromkeys(r["system"] for r in records):
            covered, error = 100 * mean_coverage(records, name, place, kind)
            ax.errorbar(
                levels, covered, error, marker="o", ms=3, lw=1.2, elinewidth=0.6, label=name
            )
        ax.set(title=f"{kind}, {place}", xlabel="level [%]", xlim=(0, 100), ylim=(0, 102))
    axes[0].set_ylabel("truth within the interval [%]")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside right center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def cells_of(arguments: argparse.Namespace) -> list[Cell]:
    """Seed by seed, so that a run that is ended has about as many of each system."""
    how = (arguments.noise, arguments.models, arguments.trials, arguments.samples)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return [Cell(name, seed, *how) for seed in seeds for name in arguments.systems]


def main() -> None:
    """Measure, save every record, print the table and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table", action="store_true", help="measure nothing more")
    parser.add_argument("--models", type=Path, help="folder of fitted models")
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--cells", type=Path, default=Path("results/calibration"))
    parser.add_argument("--out", type=Path, default=Path("results/calibration.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/calibration.png"))
    arguments = parser.parse_args()
    records = answers(judge, cells_of(arguments), arguments)
    if arguments.table:
        records = records or json.loads(KEPT.read_text())["records"]
    else:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(record(records))
    print(table(records))
    draw(records, arguments.figure)


if __name__ == "__main__":
    main()

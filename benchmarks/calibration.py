"""How often the truth lies where a model says it may: coverage of central intervals.

    python benchmarks/calibration.py --seeds 3

Each system is fitted with 1 % noise on all data, without online data, by the default preset. Tests
are the noise-free rollouts of the paper's ID and OOD rows: x' in one step against `predict`'s
standard deviation, states of rollouts against `rollout(…, samples=S)`. Errors within one fit are
alike, so that only coverage over many fits (seeds) says something; standard errors are over seeds.
What a model says is exact, and is (px' = vx, to round-off), is not counted. A run goes on where an
earlier one with the same settings and the same --out stopped; --models keeps the fits, which take
far longer than what is measured on them.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
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


def noisy(case: Case, noise: float, seed: int) -> offmap.Dataset:
    """Offline data with noise on all that is measured."""
    angles = case.system.angles
    offline = case.experiment.offline(jax.random.key(seed), out_of_distribution=True, angles=angles)
    measured, rng = noise_adder(offline, noise), np.random.default_rng(seed)
    logs = [measured(trajectory, rng) for trajectory in offline.trajectories]
    return offmap.Dataset(logs, offline.state_names, offline.control_names, angles)


def coverage(model: offmap.Model, case: Case, place: str, trials: int, samples: int, seed: int):
    """Share of components within central intervals of each level, in one step and in rollouts."""
    keys = jax.random.split(jax.random.key(1000 + seed), trials)
    tests = [case.experiment.trial(key, PLACES[place]) for key in keys]
    states = np.concatenate([test.test_states for test in tests])
    controls = np.concatenate([test.test_controls for test in tests])
    x = states[:, :-1:EVERY].reshape(-1, states.shape[-1])
    u = controls[:, ::EVERY].reshape(-1, controls.shape[-1])
    mean, std = model.predict(x, u, return_std=True)
    error = np.abs(mean - np.asarray(jax.vmap(case.system.f)(jnp.asarray(x), jnp.asarray(u))))
    floor = _ROUND_OFF * model.dataset.samples().xdot.std(axis=0)
    drawn = model.rollout(states[:, 0], controls, samples=samples, seed=seed)[:, :, EVERY::EVERY]
    truth = states[:, EVERY::EVERY]
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


def fitted(name: str, seed: int, noise: float, folder: Path | None) -> offmap.Model:
    """The model of one system and seed, read from the folder where an earlier run left it."""
    path = None if folder is None else folder / f"{name}-{seed}-{noise:g}.offmap"
    if path is not None and path.exists():
        return offmap.load(path)
    model = offmap.fit(noisy(case_of(name), noise, seed), seed=seed)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        model.save(path)
    return model


def settings(arguments: argparse.Namespace) -> dict:
    """What a record depends on, besides its system and seed."""
    return {name: getattr(arguments, name) for name in ("noise", "trials", "samples")}


def judge(name: str, seed: int, arguments: argparse.Namespace) -> dict:
    """Fit one system and measure all coverages."""
    began, case = time.perf_counter(), case_of(name)
    model = fitted(name, seed, arguments.noise, arguments.models)
    found = {
        place: coverage(model, case, place, arguments.trials, arguments.samples, seed)
        for place in PLACES
    }
    kernel = model.choices.tangent_kernel or model.choices.kernel
    return {
        "system": name,
        "seed": seed,
        "settings": settings(arguments),
        "structure": model.choices.used or "none",
        "kernel": kernel,
        "coverage": found,
        "seconds": round(time.perf_counter() - began, 1),
    }


def mean_coverage(records: list[dict], name: str, place: str, kind: str) -> np.ndarray:
    """Of one system, or of all for the name "all", with its standard error over seeds (2, levels).

    Seeds count as independent; the systems of one seed do not, as some of them share their noise.
    """
    own = [r for r in records if name in ("all", r["system"])]
    seeds = dict.fromkeys(r["seed"] for r in own)
    each = [
        np.mean([r["coverage"][place][kind] for r in own if r["seed"] == seed], axis=0)
        for seed in seeds
    ]
    mean = np.mean([r["coverage"][place][kind] for r in own], axis=0)
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


def main() -> None:
    """Measure, save every record, print the table and draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--models", type=Path, help="folder of fitted models")
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--samples", type=int, default=79, help="every level is a rank of 80")
    parser.add_argument("--out", type=Path, default=Path("results/calibration.json"))
    parser.add_argument("--figure", type=Path, default=Path("docs/figures/calibration.png"))
    arguments = parser.parse_args()
    records: list[dict] = []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    if arguments.out.exists():
        before = json.loads(arguments.out.read_text())["records"]
        records = [r for r in before if r["settings"] == settings(arguments)]
    done = {(r["system"], r["seed"]) for r in records}
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for name in arguments.systems:
            if (name, seed) in done:
                continue
            records.append(judge(name, seed, arguments))
            print(json.dumps(records[-1]), flush=True)
            found = {"summary": summary(records), "levels": LEVELS, "records": records}
            arguments.out.write_text(json.dumps(found, indent=1))
    print(table(records))
    draw(records, arguments.figure)


if __name__ == "__main__":
    main()

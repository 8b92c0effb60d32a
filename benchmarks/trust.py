"""Does trust know where a model errs? Rank correlation with errors on the quadrotor's OOD rows.

    python benchmarks/trust.py --seeds 3

Models are those of benchmarks/calibration.py (1 % noise on all data, default preset) and a plain
GP of the retained inputs from the same data (DGP/none), which errs more. Queries are the states and
controls of the OOD tests. Beside trust: the distance to the nearest sample over all inputs in units
of their spread, and the model's own standard deviation. A model that errs alike everywhere leaves
nothing to rank: so also how much larger its errors are out of distribution than in it.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import calibration
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import offmap

NAME = "quadrotor"


def queries(
    seed: int, trials: int, place: str = "OOD"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, controls and true derivatives of the tests."""
    case = calibration.case_of(NAME)
    keys = jax.random.split(jax.random.key(1000 + seed), trials)
    tests = [case.experiment.trial(key, calibration.PLACES[place]) for key in keys]
    x = np.concatenate([t.test_states[:, : -1 : calibration.EVERY] for t in tests])
    u = np.concatenate([t.test_controls[:, :: calibration.EVERY] for t in tests])
    x, u = x.reshape(-1, x.shape[-1]), u.reshape(-1, u.shape[-1])
    return x, u, np.asarray(jax.vmap(case.system.f)(jnp.asarray(x), jnp.asarray(u)))


def judge(model: offmap.Model, seed: int, trials: int) -> dict[str, float]:
    """Spearman's rank correlation with the error of x', in units of its spread."""
    x, u, true = queries(seed, trials)
    samples = model.dataset.samples()
    mean, std = model.predict(x, u, return_std=True)
    unit = samples.xdot.std(axis=0)
    error = np.sqrt(np.mean(((mean - true) / unit) ** 2, axis=1))
    at, by, there = queries(seed, trials, "ID")
    inside = np.sqrt(np.mean(((model.predict(at, by) - there) / unit) ** 2, axis=1))
    seen, asked = (np.concatenate(pair, axis=1) for pair in ((samples.x, samples.u), (x, u)))
    spread = seen.std(axis=0)
    raw = [np.min(np.sum(((seen - z) / spread) ** 2, axis=1)) for z in asked]
    scores = {
        "trust": -np.asarray(model.trust(x, u)),
        "raw distance": np.array(raw),
        "standard deviation": np.mean((std / unit) ** 2, axis=1),
    }
    found = {name: float(spearmanr(score, error).statistic) for name, score in scores.items()}
    return {
        **found,
        "error, OOD over ID": float(np.median(error) / np.median(inside)),
        "median trust": float(np.median(model.trust(x, u))),
    }


def plain(model: offmap.Model) -> offmap.Model:
    """A GP with bumps on the same inputs and no constraint: the paper's DGP/none."""
    config = replace(offmap.Config.preset("paper"), project="none")
    return offmap.fit(model.dataset, config=config, seed=model.seed)


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--models", type=Path, help="folder of fitted models")
    parser.add_argument("--out", type=Path, default=Path("results/trust.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    records = []
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        default = calibration.fitted(
            calibration.Cell(NAME, seed, arguments.noise, arguments.models)
        )
        for name, model in (("default", default), ("DGP/none", plain(default))):
            found = judge(model, seed, arguments.trials)
            records.append({"seed": seed, "model": name, "structure": model.choices.used, **found})
            print(json.dumps(records[-1]), flush=True)
            arguments.out.write_text(json.dumps(records, indent=1))
    for name in ("default", "DGP/none"):
        own = [r for r in records if r["model"] == name]
        columns = [c for c in own[0] if c not in ("seed", "model", "structure")]
        means = ", ".join(f"{c} {np.mean([r[c] for r in own]):.2f}" for c in columns)
        print(f"{name}: {means}")


if __name__ == "__main__":
    main()

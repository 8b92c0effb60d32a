"""Does trust know where a model errs? Rank correlation with errors on the quadrotor's OOD rows.

    python benchmarks/trust.py --seeds 3

Models are those of benchmarks/calibration.py (1 % noise on all data, default preset), the paper's
method (DGP/approx) and its GP of the retained inputs without a constraint (DGP/none) from the same
data, which err more. Queries are the states and controls of the OOD tests. Beside trust: the
distance to the nearest sample over all inputs in units of their spread, and the model's own
standard deviation. A model that errs alike everywhere leaves nothing to rank: so also how much
larger its errors are out of distribution than in it, and how well the standard deviation would rank
them if the truth were drawn from the model's posterior. Nothing that does not know it ranks better.
"""

import argparse
import json
from pathlib import Path

import calibration
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import offmap

NAME = "quadrotor"
DRAWS = 50


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
    fields = model.draw(DRAWS)
    drawn = np.asarray(jax.jit(lambda x, u: _fields_at(fields, x, u))(x, u))
    apart = np.mean(((drawn - mean) / unit) ** 2, axis=2)
    most = [spearmanr(scores["standard deviation"], own).statistic for own in apart]
    return {
        **found,
        "most there is": float(np.mean(most)),
        "error, OOD over ID": float(np.median(error) / np.median(inside)),
        "median trust": float(np.median(model.trust(x, u))),
    }


def _fields_at(fields, x, u):
    """Every field drawn at every query."""
    return jax.vmap(lambda i: jax.vmap(fields[i])(x, u))(jnp.arange(DRAWS))


def papers(model: offmap.Model) -> dict[str, offmap.Model]:
    """The paper's method on the same data, and its GP of the retained inputs alone."""
    approx = offmap.fit(model.dataset, preset="paper", seed=model.seed)
    return {"paper preset": approx, "DGP/none": approx.with_constraint(None)}


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
        for name, model in {"default": default, **papers(default)}.items():
            found = judge(model, seed, arguments.trials)
            records.append({"seed": seed, "model": name, "structure": model.choices.used, **found})
            print(json.dumps(records[-1]), flush=True)
            arguments.out.write_text(json.dumps(records, indent=1))
    for name in ("default", "paper preset", "DGP/none"):
        own = [r for r in records if r["model"] == name]
        columns = {
            c: [r[c] for r in own] for c in own[0] if c not in ("seed", "model", "structure")
        }
        means = (f"{c} {np.mean(v):.2f} ({min(v):.2f} to {max(v):.2f})" for c, v in columns.items())
        print(f"{name}: {', '.join(means)}")


if __name__ == "__main__":
    main()

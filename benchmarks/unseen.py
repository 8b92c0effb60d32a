"""Systems that nothing was built on: what the default preset finds there, and what it predicts.

    python benchmarks/unseen.py --group blind --noise 0 0.01 --jobs 2
    python benchmarks/unseen.py --table

Each system runs the protocol of `offmap reproduce beyond`: rollouts of 100 steps out of
distribution, with noise on all data. Beside the learned constraint: none, the true one, a plain GP
with one length scale for each input, and standing still. A case that was run is a file of the
folder --cells; --table makes the table of those there are.
"""

import argparse
import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from cells import add_options, records
from unseen_systems import AGAIN, BLIND, LOOKED_AT

import offmap
from offmap.paper.baselines import BASELINES, bounded, roll_out
from offmap.paper.beyond import simulate
from offmap.paper.cases import right_rows
from offmap.paper.experiment import distances
from offmap.structure import constrain

SYSTEMS = {**LOOKED_AT, **BLIND, **AGAIN}
GROUPS = {"looked-at": LOOKED_AT, "blind": BLIND, "again": AGAIN, "all": SYSTEMS}
COLUMNS = ("approx", "none", "true", "ARD-GP", "still")


@dataclass(frozen=True)
class Cell:
    """One system at one noise level."""

    system: str
    noise: float
    seed: int
    trials: int = 5
    declare_angles: bool = True

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.system.replace(' ', '-')}-noise{self.noise:g}-seed{self.seed}"


def judge(cell: Cell) -> dict:
    """Fit one system, and predict every test with each model."""
    case = SYSTEMS[cell.system]
    offline, trials = simulate(case, cell)
    began = time.perf_counter()
    model = offmap.fit(offline, seed=cell.seed)
    seconds = time.perf_counter() - began
    models = {"approx": model, "none": model.with_constraint(None)}
    models["true"] = constrain(model, case.system.gamma) if case.c else models["none"]
    errors = {}
    for column, one in models.items():
        after = [one.update(trial.online) for trial in trials]
        states = [
            m.rollout(t.test_starts, t.test_controls) for m, t in zip(after, trials, strict=True)
        ]
        errors[column] = _mean(trials, states)
    states = [
        roll_out(BASELINES["ARD-GP"](offline, t.online), t.test_starts, t.test_controls, offline.dt)
        for t in trials
    ]
    errors["ARD-GP"] = _mean(trials, states)
    errors["still"] = _mean(
        trials, [np.repeat(t.test_states[:, :1], t.test_states.shape[1], 1) for t in trials]
    )
    return {
        "system": cell.system,
        "noise": cell.noise,
        "seed": cell.seed,
        "seconds": round(seconds, 1),
        "errors": errors,
        "found": case.judge(model),
    }


def _mean(trials: list, states: list[np.ndarray]) -> float:
    return float(distances(trials, [bounded(one) for one in states]).sum(axis=-1).mean())


def check(name: str) -> float:
    """By how much motions of a system break the constraint it is said to have, at most."""
    case = SYSTEMS[name]
    samples = case.experiment.offline(jax.random.key(0), out_of_distribution=True).samples()
    xdot = jax.vmap(case.system.f)(jnp.asarray(samples.x), jnp.asarray(samples.u))
    gamma = jax.vmap(case.system.gamma)(jnp.asarray(samples.x))
    motion = jnp.concatenate([xdot, jnp.ones((len(xdot), 1))], axis=1)
    return float(jnp.max(jnp.abs(jnp.einsum("pcq,pq->pc", gamma, motion)), initial=0.0))


def table(cases: list[dict]) -> str:
    """One line for each case."""
    lines = [
        "| | noise | rows found, of | right | structure | " + " | ".join(COLUMNS) + " | fit [s] |",
        "|---" * (len(COLUMNS) + 6) + "|",
    ]
    for r in cases:
        found, errors = r["found"], r["errors"]
        right = "yes" if right_rows(found) else "no"
        rows = f"{found['c']}, {found['c_true']}"
        cells = " | ".join(f"{errors[column]:.2g}" for column in COLUMNS)
        lines.append(
            f"| {r['system']} | {r['noise']:.0%} | {rows} | {right} | {found['used'] or 'none'} | "
            f"{cells} | {r['seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run what has not been run, save every record and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--group", choices=GROUPS, default="all")
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.01])
    parser.add_argument("--seed", type=int, default=0)
    add_options(parser, "unseen")
    arguments = parser.parse_args()
    wanted = [
        Cell(name, noise, arguments.seed)
        for name in GROUPS[arguments.group]
        for noise in arguments.noise
    ]
    print(table(records(judge, wanted, arguments)))


if __name__ == "__main__":
    main()

"""Logs that hold states alone: what is learned from them, and how far off predictions are.

    python benchmarks/states.py --noise 0 0.001 0.01 --jobs 2
    python benchmarks/states.py --table

Robots move in continuous time under commands that are held for a while, as real ones do; their
states are logged with noise, in shares of the spread of each, and no derivatives. Errors are those
of rollouts of 100 steps out of distribution, summed over steps, beside the size of what is
predicted. Columns: the default preset; the same where forward differences stand for derivatives at
the first state of each step and Euler's steps are taken, which is what most tools do; the same with
the true derivatives beside the noisy states, which no log has; and standing still.
"""

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from cells import add_options, records
from dots import ORACLE, OTHERS, OURS, draw

import offmap
from offmap.paper.baselines import bounded
from offmap.paper.cases import CASES, right_rows
from offmap.rollout import rollout

SYSTEMS = ("unicycle", "tanh0", "slip", "bicycle", "trailer", "disk", "quadrotor")
COLUMNS = ("default", "unprojected", "forward", "measured", "still")
_DRAWN = {
    "default": ("offmap", OURS),
    "measured": ("the same, told the true derivatives", ORACLE),
    "forward": ("forward differences, Euler", OTHERS[0]),
}
_FINE = 20  # steps of the simulation within one that is logged
_LOGS, _STEPS = 20, 50
_TESTS, _TEST_STEPS, _TEST_HOLD = 10, 100, 10
_DEFAULT = offmap.Config.preset("default")
_CONFIGS = {
    "default": _DEFAULT,
    "forward": replace(
        _DEFAULT, derivatives="forward", integrator="euler", hold_out="samples", timing=(0, 0)
    ),
    "measured": replace(_DEFAULT, timing=(0, 0)),
}


@dataclass(frozen=True)
class Cell:
    """One system, its noise, and how many steps commands are held."""

    system: str
    noise: float
    hold: int
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.system}-noise{self.noise:g}-hold{self.hold}-seed{self.seed}"


def judge(cell: Cell) -> dict:
    """Fit one system from its states in every way, and roll out the tests."""
    case = CASES[cell.system]
    experiment, system = case.experiment, case.system
    rng = np.random.default_rng(cell.seed)

    def drives(box, count: int, steps: int, hold: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.asarray(box.low), np.asarray(box.high)
        x0 = jax.vmap(system.normalise)(jnp.asarray(rng.uniform(low, high, (count, len(low)))))
        low, high = np.asarray(system.controls.low), np.asarray(system.controls.high)
        held = rng.uniform(low, high, (count, -(-steps // hold), len(low)))
        u = np.repeat(held, hold, axis=1)[:, :steps]

        def follow(x, u):
            fine = jnp.repeat(u, _FINE, axis=0)
            return rollout(system.f, x, fine, system.dt / _FINE, "rk4")[::_FINE]

        return np.asarray(jax.jit(jax.vmap(follow))(x0, u)), u

    x, u = drives(experiment.ood_offline_box, _LOGS, _STEPS, cell.hold)
    true, test_controls = drives(experiment.ood_online_box, _TESTS, _TEST_STEPS, _TEST_HOLD)
    seen = x + cell.noise * x.reshape(-1, x.shape[-1]).std(axis=0) * rng.normal(size=x.shape)
    rates = np.asarray(jax.vmap(jax.vmap(system.f))(x[:, :-1], u))

    def error(states: np.ndarray) -> float:
        return float(np.linalg.norm(bounded(states) - true, axis=-1).sum(axis=-1).mean())

    errors, found, seconds = {}, {}, 0.0
    for column, config in _CONFIGS.items():
        logs = [
            offmap.Trajectory(
                seen[i], u[i], dt=system.dt, xdot=rates[i] if column == "measured" else None
            )
            for i in range(_LOGS)
        ]
        data = offmap.Dataset(logs, system.state_names, system.control_names, system.angles)
        began = time.perf_counter()
        model = offmap.fit(data, config=config, seed=cell.seed)
        if column == "default":
            seconds = time.perf_counter() - began
            errors["unprojected"] = error(
                model.with_constraint(None).rollout(true[:, 0], test_controls)
            )
        errors[column] = error(model.rollout(true[:, 0], test_controls))
        found[column] = case.judge(model)
    errors["still"] = error(np.repeat(true[:, :1], _TEST_STEPS + 1, axis=1))
    return {
        "system": cell.system,
        "noise": cell.noise,
        "hold": cell.hold,
        "seed": cell.seed,
        "seconds": round(seconds, 1),
        "errors": errors,
        "found": found,
    }


def table(cases: list[dict]) -> str:
    """One line for each system, noise and time of holding; medians over seeds."""
    lines = [
        "| | noise | held | right laws | " + " | ".join(COLUMNS) + " | fit [s] |",
        "|---" * (len(COLUMNS) + 5) + "|",
    ]
    keys = dict.fromkeys((r["system"], r["noise"], r["hold"]) for r in cases)
    for key in keys:
        some = [r for r in cases if (r["system"], r["noise"], r["hold"]) == key]
        right = sum(right_rows(r["found"]["default"]) for r in some)
        cells = " | ".join(f"{np.median([r['errors'][c] for r in some]):.2g}" for c in COLUMNS)
        seconds = np.median([r["seconds"] for r in some])
        lines.append(
            f"| {key[0]} | {key[1]:.1%} | {key[2]} | {right} of {len(some)} | {cells} | "
            f"{seconds:.0f} |"
        )
    return "\n".join(lines)


def figure(cases: list[dict], path: Path) -> None:
    """Errors over those of standing still."""

    def error(system: str, noise: float, column: str) -> list[float]:
        some = [r["errors"] for r in cases if (r["system"], r["noise"]) == (system, noise)]
        return [errors[column] / errors["still"] for errors in some]

    noises = sorted({r["noise"] for r in cases})
    draw(path, SYSTEMS, noises, _DRAWN, error, "rollout error ÷ standing still", "noise on states")


def main() -> None:
    """Run what has not been run, save every record and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.001, 0.01])
    parser.add_argument("--hold", nargs="+", type=int, default=[5], help="steps of a command")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--figure", type=Path, help="also draw the table into this file")
    add_options(parser, "states")
    arguments = parser.parse_args()
    wanted = [
        Cell(system, noise, hold, seed)
        for seed in arguments.seeds
        for system in arguments.systems
        for noise in arguments.noise
        for hold in arguments.hold
    ]
    cases = records(judge, wanted, arguments)
    print(table(cases))
    if arguments.figure is not None:
        figure(cases, arguments.figure)


if __name__ == "__main__":
    main()

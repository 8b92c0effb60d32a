"""How often the right structure is found: inputs, number of constraints, rows, tangent inputs.

    python benchmarks/discovery.py --systems unicycle bicycle --noise 0 0.001 0.01 --seeds 10

Noise is on all data: states and derivatives, relative to their spread.
"""

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import offmap
from offmap import systems
from offmap.constraint.angle import largest_angle
from offmap.paper import cases
from offmap.rollout import rollout

# System, inputs the dynamics depend on, and those left in the tangent frame (None: not judged).
CASES = {name: (case.system, case.inputs, case.in_frame) for name, case in cases.CASES.items()}


def dataset(system: systems.System, noise: float, seed: int, declared: bool) -> offmap.Dataset:
    """Twenty drives of 25 steps (the quadrotor: 500 of 2), noise on everything that is measured."""
    count, steps = (500, 2) if system.name == "quadrotor" else (20, 25)
    reach = (10.0, 10.0) + (1.05,) * (system.n - 2)
    box = systems.Box(tuple(-r for r in reach), reach)
    start, control = jax.random.split(jax.random.key(seed))
    x0 = jax.vmap(system.normalise)(box.sample(start, count))
    u = system.controls.sample(control, count, steps)
    x = jax.vmap(lambda x, u: rollout(system.f, x, u, system.dt))(x0, u)[:, :-1]
    xdot = np.asarray(jax.vmap(jax.vmap(system.f))(x, u))
    x, rng = np.asarray(x), np.random.default_rng(seed)
    x = x + noise * x.std(axis=(0, 1)) * rng.normal(size=x.shape)
    xdot = xdot + noise * xdot.std(axis=(0, 1)) * rng.normal(size=xdot.shape)
    logs = [offmap.Trajectory(x[i], u[i], dt=system.dt, xdot=xdot[i]) for i in range(count)]
    angles = system.angles if declared else ()
    return offmap.Dataset(logs, system.state_names, system.control_names, angles)


def angle_to_truth(model: offmap.Model, system: systems.System) -> float:
    """Largest angle between learned and true normal spaces at states of and around the data."""
    points = np.random.default_rng(0).uniform(-1.5, 1.5, size=(200, system.n))
    x = jax.vmap(system.normalise)(jnp.asarray(points))
    true = np.asarray(jax.vmap(system.gamma)(x))
    return largest_angle(model.constraints.gamma(np.asarray(x))[:, :, :-1], true[:, :, :-1])


def judge(name: str, noise: float, seed: int, declared: bool) -> dict:
    """Fit the default preset and compare with what is true."""
    system, inputs, in_frame = CASES[name]
    model = offmap.fit(dataset(system, noise, seed, declared), seed=seed)
    c = system.gamma(jnp.zeros(system.n)).shape[0]
    right_c = model.constraints.c == c
    tangent = model.retained.tangent
    return {
        "c": model.constraints.c,
        "right_c": right_c,
        "angle": angle_to_truth(model, system) if right_c and c else None,
        "inputs": set(model.retained.dynamics) == inputs,
        "tangent": None if in_frame is None or tangent is None else set(tangent) == in_frame,
        "kept": model.retained.dynamics,
        "kept_tangent": tangent,
        "structure": model.choices.structure,
    }


def main() -> None:
    """Print one line per case and save every judgement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", nargs="+", default=list(CASES))
    parser.add_argument("--noise", nargs="+", type=float, default=[0.0, 0.001, 0.01])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--undeclared", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/discovery.json"))
    arguments = parser.parse_args()
    records = []
    for name in arguments.systems:
        for noise in arguments.noise:
            found = [
                judge(name, noise, seed, not arguments.undeclared)
                for seed in range(arguments.seeds)
            ]
            rows = sum(r["right_c"] and (r["angle"] is None or r["angle"] <= 1e-3) for r in found)
            judged = [r["tangent"] for r in found if r["tangent"] is not None]
            print(
                f"{name:10s} noise {noise:<6g} right c {sum(r['right_c'] for r in found)}, "
                f"right rows {rows}, inputs {sum(r['inputs'] for r in found)} of {len(found)}; "
                f"tangent inputs {sum(judged)} of {len(judged)}; worst angle "
                f"{max((r['angle'] or 0.0) for r in found):.1e}",
                flush=True,
            )
            records.append({"system": name, "noise": noise, "seeds": found})
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            arguments.out.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()

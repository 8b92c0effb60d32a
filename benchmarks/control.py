"""What a model is worth to a controller: cost on the true robot against an oracle, and solve time.

    python benchmarks/control.py

MPPI with its defaults (1,000 samples, 30 steps) parks and tracks with a unicycle and flies a figure
eight with a planar quadrotor, all outside the data, through the truth, the default preset and a
plain GP of all inputs (GP/none). Solve times are medians over the loop, CPU times means over all
threads; GPyTorch, if installed, rolls out the same number of plans through an exact GP of the same
data. The differential drive (`--robots ddr`) runs in MuJoCo, of which a solve would
take three million steps: its oracle is the unicycle with the motors' lag and delay known.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import offmap
from offmap.control import MPPI
from offmap.paper.ddr import DDR, IDEAL, Session, hardware_config
from offmap.systems import planar_quadrotor, unicycle
from offmap.systems.diff_drive import DiffDrive, Ride

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import tasks

STARTS = ((40.0, 30.0, 2.5), (-30.0, 20.0, -2.0), (25.0, -40.0, 3.0))


def differential_drive() -> tasks.Task:
    """Three fifths of a circle of 80 cm at 12 cm/s, away from the data, to headings none has."""
    steps, dt = 120, 0.2
    angle = 0.5 + 0.15 * dt * np.arange(1, steps + 31)
    points = 0.8 * np.stack([np.sin(angle) - np.sin(0.5), np.cos(0.5) - np.cos(angle)], axis=1)

    def cost(x, u, point):
        return 100 * jnp.sum((x[:2] - point) ** 2) + 0.01 * jnp.sum(u**2)

    low, high = IDEAL.controls.low, IDEAL.controls.high
    start = np.array([1.5, -1.0])
    points = points + start
    return tasks.Task("circle", IDEAL, (*start, 0.5), points, cost, low, high, steps, dt)


def ride(task: tasks.Task, f: Any, robot: DiffDrive) -> tasks.Run:
    """The task on the simulated robot under MPPI through f; None: the unicycle with its lag."""
    lag, real = robot.delay + robot.motor_lag, Ride(robot, np.array(task.start))
    share = -np.expm1(-task.dt / lag)
    actual = np.zeros(2)  # what the motors do by now, for all the oracle knows

    def lagging(x, u):  # one Euler step of it is exact in the lag
        motion = jnp.stack([x[4] * jnp.cos(x[2]), x[4] * jnp.sin(x[2]), x[3]])
        return jnp.concatenate([motion, (u - x[3:]) * share / task.dt])

    controller = MPPI(f or lagging, task.cost, low=task.low, high=task.high, dt=task.dt)
    plan = controller.start()

    def act(x: np.ndarray, k: int) -> np.ndarray:
        nonlocal plan
        state = x if f is not None else np.concatenate([x, actual])
        u, plan = controller.solve(state, plan, task.targets[k : k + task.horizon])
        return u

    def move(_, u):
        nonlocal actual
        actual = actual + share * (np.asarray(u) - actual)
        return real.hold(np.asarray(u), task.dt)

    return tasks.drive(task, act, move)


def differential_drive_fields() -> dict[str, Any]:
    """The oracle, the default preset and a plain GP, from ten recorded drives."""
    data = Session(DDR, DiffDrive(), seed=0).offline()
    plain = replace(hardware_config("paper"), sparsify=False, project="none")
    return {
        "truth": None,
        "default": offmap.fit(data, config=hardware_config("default")),
        "GP/none": offmap.fit(data, config=plain),
    }


def learned(data: offmap.Dataset, truth: Any) -> dict[str, Any]:
    """The truth, the default preset and a plain GP."""
    return {"truth": truth, "default": tasks.learn(data), "GP/none": tasks.plain_gp(data)}


TASKS: dict[str, Callable[[], list[tasks.Task]]] = {
    "unicycle": lambda: [*(tasks.parking(start) for start in STARTS), tasks.path_tracking()],
    "quadrotor": lambda: [tasks.figure_eight()],
    "ddr": lambda: [differential_drive()],
}
FIELDS: dict[str, Callable[[], dict[str, Any]]] = {
    "unicycle": lambda: learned(tasks.unicycle_logs(), unicycle().f),
    "quadrotor": lambda: learned(tasks.quadrotor_logs(), planar_quadrotor().f),
    "ddr": differential_drive_fields,
}
RUNNERS: dict[str, Callable[[tasks.Task, Any], tasks.Run]] = {
    "unicycle": tasks.mppi,
    "quadrotor": tasks.mppi,
    "ddr": lambda task, f: ride(task, f, DiffDrive()),
}


def rollouts_in_gpytorch(data, samples: int, steps: int) -> float | None:
    """Median seconds for `samples` plans of `steps` through an exact GP; None: not installed."""
    if importlib.util.find_spec("gpytorch") is None:
        return None
    import gpytorch
    import torch

    class ExactGPs(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            shape = torch.Size([y.shape[0]])
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
            rbf = gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[-1], batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=shape)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    known, n = data.samples(), data.n
    z = torch.tensor(np.concatenate([known.x, known.u], axis=1))
    y = torch.tensor(known.xdot.T.copy())
    shape = torch.Size([n])
    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=shape).double()
    model = ExactGPs(z.expand(n, -1, -1), y, likelihood).double().eval()
    x0, u = torch.tensor(known.x[0]), torch.tensor(known.u[0])
    times = []
    with torch.no_grad(), gpytorch.settings.skip_posterior_variances():
        for _ in range(5):
            began, x = time.perf_counter(), x0.expand(samples, -1)
            for _ in range(steps):
                inputs = torch.cat([x, u.expand(samples, -1)], dim=1)
                x = x + data.dt * model(inputs.expand(n, -1, -1)).mean.T
            times.append(time.perf_counter() - began)
    return float(np.median(times))


def main() -> None:
    """Fit, drive, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robots", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--out", type=Path, default=Path("results/control.json"))
    arguments = parser.parse_args()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    print(
        f"{jax.device_count()} {jax.default_backend()} device, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}"
    )
    records: list[dict[str, Any]] = []
    for robot in arguments.robots:
        fields = FIELDS[robot]()
        for task in TASKS[robot]():
            runs = {name: RUNNERS[robot](task, f) for name, f in fields.items()}
            for name, run in runs.items():
                record = {
                    "robot": robot,
                    "task": task.name,
                    "start": task.start,
                    "dynamics": name,
                    "cost": run.cost,
                    "over_oracle": run.cost / runs["truth"].cost,
                    "solve_ms": 1e3 * run.solve,
                    "cpu_ms": 1e3 * run.cpu,
                    "load": os.getloadavg()[0],
                }
                records.append(record)
                print(
                    f"{robot:10s} {task.name:8s} {name:8s} cost {run.cost:9.1f}  "
                    f"{record['over_oracle']:6.2f} x oracle  solve {record['solve_ms']:7.1f} ms, "
                    f"CPU {record['cpu_ms']:.1f} ms",
                    flush=True,
                )
            arguments.out.write_text(json.dumps(records, indent=1))
        if robot == "unicycle":
            theirs = rollouts_in_gpytorch(tasks.unicycle_logs(), 1000, 30)
            if theirs is None:
                print("GPyTorch is not installed: no ratio of solve times")
            else:
                own = [r for r in records if (r["robot"], r["dynamics"]) == (robot, "default")]
                ours = np.median([r["solve_ms"] for r in own])
                print(f"GPyTorch {1e3 * theirs:.0f} ms, {1e3 * theirs / ours:.1f} x ours")
                records.append({"gpytorch_ms": 1e3 * theirs, "ratio": 1e3 * theirs / ours})
                arguments.out.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()

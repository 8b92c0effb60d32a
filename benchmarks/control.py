"""What a model is worth to a controller: cost on the true robot against an oracle, and solve time.

    python benchmarks/control.py

MPPI with its defaults (1,000 samples, 30 steps) parks and tracks with a unicycle and flies a figure
eight with a planar quadrotor, all outside the data, through the truth, the default preset and a
plain GP of all inputs (GP/none). Solve times are medians over the loop; GPyTorch, if installed,
rolls out the same number of plans through an exact GP of the same data.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
import tasks

STARTS = ((40.0, 30.0, 2.5), (-30.0, 20.0, -2.0), (25.0, -40.0, 3.0))
TASKS = {
    "unicycle": [*(tasks.parking(start) for start in STARTS), tasks.path_tracking()],
    "quadrotor": [tasks.figure_eight()],
}
LOGS = {"unicycle": tasks.unicycle_logs, "quadrotor": tasks.quadrotor_logs}


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
    records = []
    for robot in arguments.robots:
        data = LOGS[robot]()
        fields = {
            "truth": TASKS[robot][0].system.f,
            "default": tasks.learn(data),
            "GP/none": tasks.plain_gp(data),
        }
        for task in TASKS[robot]:
            runs = {name: tasks.mppi(task, f) for name, f in fields.items()}
            for name, run in runs.items():
                record = {
                    "robot": robot,
                    "task": task.name,
                    "start": task.start,
                    "dynamics": name,
                    "cost": run.cost,
                    "over_oracle": run.cost / runs["truth"].cost,
                    "solve_ms": 1e3 * run.solve,
                    "load": os.getloadavg()[0],
                }
                records.append(record)
                print(
                    f"{robot:10s} {task.name:8s} {name:8s} cost {run.cost:9.1f}  "
                    f"{record['over_oracle']:6.2f} x oracle  solve {record['solve_ms']:7.1f} ms",
                    flush=True,
                )
            arguments.out.write_text(json.dumps(records, indent=1))
        if robot == "unicycle":
            theirs = rollouts_in_gpytorch(data, 1000, 30)
            if theirs is None:
                print("GPyTorch is not installed: no ratio of solve times")
            else:
                ours = np.median([r["solve_ms"] for r in records if r["dynamics"] == "default"])
                print(f"GPyTorch {1e3 * theirs:.0f} ms, {1e3 * theirs / ours:.1f} x ours")
                records.append({"gpytorch_ms": 1e3 * theirs, "ratio": 1e3 * theirs / ours})
                arguments.out.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()

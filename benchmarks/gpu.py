"""What one GPU does with the exact GP: likelihood with gradient, memory, rollouts.

    python benchmarks/gpu.py --out results/gpu.json

Times are medians of repeated calls after compilation, in double precision. Beside ours: the
factorisation alone, plain automatic differentiation through it, and GPyTorch where installed.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import offmap  # noqa: F401  (switches JAX to double precision)
from offmap.dynamics import Dynamics
from offmap.gp.expansion import Scaling
from offmap.gp.kernels import RBF, kernel_named
from offmap.gp.likelihood import log_marginal_likelihood, noisy_covariance
from offmap.gp.posterior import IndependentGPs
from offmap.pseudometric import Reduction
from offmap.rollout import rollout

INPUTS = 8
OUTPUTS = 6


def seconds(call, repeats: int = 5) -> dict:
    """Median and least time of a call, and that of the first, which compiles."""
    began = time.perf_counter()
    jax.block_until_ready(call())
    first, times = time.perf_counter() - began, []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return {"median_s": float(np.median(times)), "least_s": min(times), "first_s": first}


def data(count: int) -> tuple[jax.Array, jax.Array]:
    """Random inputs and a smooth output."""
    x = jax.random.normal(jax.random.key(0), (count, INPUTS))
    return x, jnp.sin(x[:, 0]) + x[:, 1] * x[:, 2]


def likelihood(count: int) -> dict:
    """Likelihood and gradient with respect to length scales, variance and noise."""
    x, y = data(count)
    parameters = kernel_named("rbf", INPUTS), jnp.log(jnp.array(1e-2))

    def ours(parameters):
        kernel, log_noise = parameters
        return log_marginal_likelihood(kernel, jnp.exp(log_noise), x, y)

    compiled = jax.jit(jax.value_and_grad(ours))
    return seconds(lambda: compiled(parameters))


def by_autodiff(count: int) -> dict:
    """The same by differentiating through the factorisation."""
    x, y = data(count)
    parameters = kernel_named("rbf", INPUTS), jnp.log(jnp.array(1e-2))

    def plain(parameters):
        kernel, log_noise = parameters
        L = jnp.linalg.cholesky(noisy_covariance(kernel, jnp.exp(log_noise), x))
        half = jax.scipy.linalg.solve_triangular(L, y, lower=True)
        return -0.5 * half @ half - jnp.sum(jnp.log(jnp.diag(L)))

    compiled = jax.jit(jax.value_and_grad(plain))
    return seconds(lambda: compiled(parameters))


def factorisation(count: int) -> dict:
    """The Cholesky factorisation alone."""
    x, _ = data(count)
    K = noisy_covariance(kernel_named("rbf", INPUTS), jnp.array(1e-2), x)
    compiled = jax.jit(jnp.linalg.cholesky)
    return seconds(lambda: compiled(K))


def gpytorch(count: int) -> dict:
    """GPyTorch's exact likelihood and gradient by factorisation."""
    try:
        import gpytorch
        import torch
    except ImportError as error:
        return {"skipped": str(error)}
    if not torch.cuda.is_available():
        return {"skipped": "torch sees no GPU"}
    x, y = (torch.tensor(np.asarray(a), device="cuda") for a in data(count))

    class Exact(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ZeroMean()
            base = gpytorch.kernels.RBFKernel(ard_num_dims=INPUTS)
            self.kernel = gpytorch.kernels.ScaleKernel(base)

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    noise = gpytorch.likelihoods.GaussianLikelihood().double().cuda()
    model = Exact(noise).double().cuda()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(noise, model)
    model.train(), noise.train()

    def call():
        model.zero_grad()
        with gpytorch.settings.fast_computations(False, False, False):
            (-objective(model(x), y)).backward()
        torch.cuda.synchronize()

    try:
        return seconds(call)
    except torch.OutOfMemoryError:
        return {"skipped": "out of memory beside JAX; set XLA_PYTHON_CLIENT_PREALLOCATE=false"}


def rollouts(samples: int, count: int, steps: int, at_once: int) -> dict:
    """Concurrent rollouts of a model of many samples: kernel evaluations per second."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(samples, INPUTS)))
    kernel = RBF(jnp.zeros((INPUTS,)), jnp.zeros(()))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * OUTPUTS), kernel)
    nothing = (jnp.zeros((0, 0)),) * OUTPUTS, jnp.zeros((OUTPUTS, 0, 0)), jnp.zeros((OUTPUTS, 0, 0))
    weights = jnp.asarray(rng.normal(size=(OUTPUTS, samples)) / samples)
    scaling = Scaling(jnp.zeros(INPUTS), jnp.ones(INPUTS), jnp.zeros(OUTPUTS), jnp.ones(OUTPUTS))
    gps = IndependentGPs(stacked, scaling, x, weights, weights, weights, *nothing)
    dynamics = Dynamics(Reduction.everything(tuple(f"i{k}" for k in range(INPUTS))), gps)
    starts = jnp.asarray(rng.normal(size=(count, OUTPUTS)))
    controls = jnp.asarray(rng.normal(size=(count, steps, INPUTS - OUTPUTS)))

    @jax.jit
    def run(starts, controls):
        def one(pair):
            return rollout(dynamics, *pair, 0.01)[-1]

        return jax.lax.map(one, (starts, controls), batch_size=at_once)

    found = seconds(lambda: run(starts, controls), repeats=2)
    evaluations = float(samples) * count * steps * OUTPUTS
    return {**found, "kernel_evaluations_per_s": evaluations / found["least_s"]}


def main() -> None:
    """Run what the sizes ask for, print it and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[10_050, 20_000, 40_000])
    parser.add_argument("--peers", type=int, default=10_050, help="largest size for the others")
    parser.add_argument("--rollouts", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=Path("results/gpu.json"))
    arguments = parser.parse_args()
    device = jax.devices()[0]
    record: dict = {"device": f"{device.device_kind} ({device.platform})", "jax": jax.__version__}
    for count in arguments.sizes:
        jobs = {"likelihood and gradient": likelihood}
        if count <= arguments.peers:
            jobs |= {
                "Cholesky alone": factorisation,
                "autodiff through Cholesky": by_autodiff,
                "GPyTorch, exact": gpytorch,
            }
        for name, job in jobs.items():
            record[f"{name}, N = {count}"] = found = job(count)
            print(f"{name}, N = {count}: {found}", flush=True)
    statistics = device.memory_stats() or {}
    record["peak_bytes"] = statistics.get("peak_bytes_in_use")
    for samples in (525, 10_050):
        found = rollouts(samples, arguments.rollouts, 100, arguments.at_once)
        record[f"{arguments.rollouts} rollouts x 100 steps, {samples} samples"] = found
        print(f"rollouts, {samples} samples: {found}", flush=True)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The machine's own limits, measured where the bench runs: product, memory, exponential."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from offmap.bench.timing import cores, in_new_process, timed


def machine_limits(quick: bool) -> dict[str, Any]:
    """Limits on one core and on all, each measured in a process of its own."""
    job = {"job": "limits", "quick": quick}
    found: dict[str, Any] = {"cores": cores(), "all": in_new_process(job)}
    if hasattr(os, "sched_setaffinity"):
        found["one"] = in_new_process(job, only_core=True)
    else:
        found["one_skipped"] = "this system cannot bind a process to a core"
    return found


def exp_seconds(limits: dict[str, Any]) -> float:
    """Seconds for one exponential with all cores at work, by the faster of XLA and NumPy."""
    alone = limits.get("one", limits["all"])["exp_ns"]
    shared = min(limits["all"]["exp_ns"]["xla"], *(ns / limits["cores"] for ns in alone.values()))
    return 1e-9 * shared


def measure(quick: bool) -> dict[str, Any]:
    """The limits of this process: GFLOP/s of a double-precision product, GB/s, ns an exp."""
    import jax
    import jax.numpy as jnp

    rounds = 5 if quick else 15
    rng = np.random.default_rng(0)
    size = 768 if quick else 1024
    factor = rng.normal(size=(size, size))
    product, factor_there = jax.jit(lambda a: a @ a), jnp.asarray(factor)
    flops = 2 * size**3

    values = rng.uniform(-20, 0, 2**20)
    exp, values_there = jax.jit(jnp.exp), jnp.asarray(values)
    block, out = values[: 2**14], np.empty(2**14)

    long = np.ones(2**23 if quick else 2**24)
    target = np.empty_like(long)
    there = [jnp.asarray(long)]
    negative = jax.jit(lambda v: -v, donate_argnums=0)  # in place: no fresh pages to be mapped

    def negate() -> None:
        there[0] = negative(there[0]).block_until_ready()

    moved = 2 * long.nbytes  # read and written
    return {
        "product_gflops": {
            "xla": flops / _least(lambda: product(factor_there).block_until_ready(), rounds) / 1e9,
            "numpy": flops / _least(lambda: factor @ factor, rounds) / 1e9,
        },
        "memory_gbs": {
            "xla": moved / _least(negate, rounds) / 1e9,
            "numpy": moved / _least(lambda: np.copyto(target, long), rounds) / 1e9,
        },
        "exp_ns": {
            "xla": 1e9
            * _least(lambda: exp(values_there).block_until_ready(), 4 * rounds)
            / values.size,
            "numpy": 1e9 * _least(lambda: np.exp(block, out=out), 40 * rounds) / block.size,
        },
    }


def _least(job: Callable[[], Any], rounds: int) -> float:
    """The fewest seconds of several calls after a first one: what the machine can do."""
    job()
    return min(timed(job)[0] for _ in range(rounds))

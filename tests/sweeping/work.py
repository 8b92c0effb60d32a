"""Functions for the workers of a sweep, which import them by name."""

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from threadpoolctl import threadpool_info


class Job(NamedTuple):
    """A case that leaves a trace each time it is run."""

    log: str
    number: int
    seconds: float = 0.0
    crashes: int = 0
    workers: int = 1
    """How many have to be at work before this one goes on."""


def square(job: Job) -> dict[str, Any]:
    """number², after as many crashes as the case asks for."""
    line = f"{job.number} {os.getpid()}\n"
    with Path(job.log).open("a") as file:  # one short line is written in one piece
        file.write(line)
    while len({pid for _, pid in trace(job.log)}) < job.workers:
        time.sleep(0.05)
    time.sleep(job.seconds)
    runs = [ran for ran, _ in trace(job.log)].count(job.number)
    if runs <= job.crashes:
        os._exit(1)
    return {"square": job.number**2, "third": job.number / 3}


def trace(log: str | Path) -> list[tuple[int, int]]:
    """Which case was run in which process, in order."""
    path = Path(log)
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(number), int(pid)) for number, pid in map(str.split, lines)]


def refuse(number: int) -> int:
    """Fails on 3."""
    if number == 3:
        raise ValueError("three is refused")
    return number


def look(job: Job) -> dict[str, Any]:
    """The square, and how the process is set up to compute."""
    answer = square(job)
    jnp.linalg.inv(jnp.eye(2))  # loads BLAS
    blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    settings = {
        "blas": blas,
        "cache": jax.config.jax_compilation_cache_dir,
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "float": str(jnp.zeros(1).dtype),
    }
    return {"answer": answer, "settings": settings}

"""Fair clocks: rounds in which everyone takes a turn, and jobs in processes of their own."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

MIN_COMPILE_SECONDS = "0"  # what the command line keeps in its cache


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of one call, and its answer."""
    begin = time.perf_counter()
    answer = job()
    return time.perf_counter() - begin, answer


def clocked(job: Callable[[], Any], calls: int = 1) -> Callable[[], float]:
    """The job as one that answers with its seconds: the median of several calls."""
    return lambda: float(np.median([timed(job)[0] for _ in range(calls)]))


def interleaved(
    jobs: Mapping[str, Callable[[], float]], rounds: int, *, budget: float = 60.0
) -> dict[str, float]:
    """The fewest seconds of every job over several rounds; each job answers with its seconds.

    All take their turn in each round, so that a busy neighbour slows all alike. BLAS and OpenMP,
    which most peers run on, may use one thread in the first round, all cores in the next, and so
    on: the better of both counts. Whoever has used up the budget of seconds sits out what follows.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    spent = dict.fromkeys(jobs, 0.0)
    for number in range(rounds):
        with ThreadpoolController().limit(limits=cores() if number % 2 else 1):
            for name, job in jobs.items():
                if number == 0 or spent[name] < budget:
                    begun = time.perf_counter()
                    seconds[name].append(job())
                    spent[name] += time.perf_counter() - begun
    return {name: min(taken) for name, taken in seconds.items()}


def in_new_process(
    job: Mapping[str, Any], *, cache: Path | None = None, only_core: bool = False
) -> dict[str, Any]:
    """What `offmap.bench.worker` answers to a job, in an interpreter that has compiled nothing.

    Args:
        job: see the worker.
        cache: folder of the persistent compilation cache; None: none.
        only_core: let it use one core only.
    """
    environment = dict(os.environ)
    for name in ("JAX_COMPILATION_CACHE_DIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment.pop(name, None)
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = MIN_COMPILE_SECONDS
    command = [sys.executable, "-m", "offmap.bench.worker", json.dumps({**job, "core": only_core})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [
            line for line in done.stderr.splitlines() if re.match(r"[\w.]+(Error|Exception)", line)
        ]
        last = (said or [f"exit code {done.returncode}"])[-1]
        raise ValueError(
            f"A job of the bench must finish; {job['job']} did not: {last}. If it ran out of "
            f"memory, leave it out with --only."
        )
    return json.loads(done.stdout.strip().splitlines()[-1])

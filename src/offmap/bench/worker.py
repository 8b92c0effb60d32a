"""A job of the bench in a process of its own: python -m offmap.bench.worker '{"job": …}'.

Prints one line of JSON. Jobs: {"job": "fit", "system", "samples", "preset", "save"} and
{"job": "limits", "quick"}; with "core": true the process keeps to one core.
"""

import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Do the job."""
    if job["core"]:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if job["job"] == "limits":
        from offmap.bench.limits import measure

        return measure(job["quick"])
    return _fit(job)


def _fit(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds by stage and peak memory of one fit; with "save", also the model file."""
    from threadpoolctl import threadpool_limits

    from offmap.bench.problems import problem
    from offmap.fitting import fit

    threadpool_limits(1, "blas")  # as the command line does
    dataset = problem(job["system"], job["samples"]).dataset
    dataset.samples()
    stages: list[tuple[str, float]] = []
    before = _peak_megabytes()
    begin, worked = time.perf_counter(), time.process_time()
    model = fit(
        dataset,
        job["preset"],
        progress=lambda stage: stages.append((stage, time.perf_counter())),
    )
    end, worked = time.perf_counter(), time.process_time() - worked
    if job.get("save"):
        model.save(job["save"])
    ends = [instant for _, instant in stages[1:]] + [end]
    return {
        "seconds": end - begin,
        "cpu_seconds": worked,
        "stages": {
            stage.partition(":")[0]: last - first
            for (stage, first), last in zip(stages, ends, strict=True)
        },
        "peak_mb": _peak_megabytes(),
        "peak_before_mb": before,
    }


def _peak_megabytes() -> float:
    """Of this process; what the system counts as such may begin with its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return int(found[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    print(json.dumps(answer(json.loads(sys.argv[1]))))

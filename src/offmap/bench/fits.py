"""How long a fit takes, beside the peers' training, and how time and memory grow with the data."""

from collections.abc import Callable
from functools import partial
from typing import Any

from offmap.bench.bench import Bench
from offmap.bench.metrics import Limit, Metric, Outcome, growth_exponent
from offmap.bench.problems import problem
from offmap.bench.timing import clocked, interleaved

GROWTH_SIZES = (1_000, 10_000, 100_000, 1_000_000)
_LONG = 120.0  # seconds beyond which compilation no longer matters, and a fit is not repeated


def fits(bench: Bench) -> list[Outcome]:
    """The whole pipeline on the 525-point unicycle, against training the dynamics alone.

    Ours runs in fresh processes with a warm compilation cache; the very first one is cold.
    """
    data = problem("unicycle", 525)
    runs: dict[str, list[dict[str, Any]]] = {}
    first = {}

    def again(preset: str) -> float:
        runs.setdefault(preset, []).append(bench.fit("unicycle", 525, preset))
        return runs[preset][-1]["seconds"]

    for preset in ("default", "paper"):
        first[preset] = bench.first_fit("unicycle", 525, preset)["seconds"]
    bench.progress("fit: ours with a warm cache, peers in turn")
    jobs: dict[str, Callable[[], float]] = {preset: partial(again, preset) for preset in first}
    jobs |= {peer.name: clocked(partial(bench.train, peer, data)) for peer in bench.peers}
    seconds = interleaved(jobs, 2, budget=20.0 if bench.quick else 90.0)
    peers = {peer.name: seconds[peer.name] for peer in bench.peers}
    return [
        Outcome(
            Metric(f"fit/unicycle-525/{preset}", "s", "lower", 0.5),
            seconds[preset],
            peers,
            first=first[preset],
            details={"runs": runs[preset]},
        )
        for preset in first
    ]


def growth(bench: Bench, sizes: tuple[int, ...] = GROWTH_SIZES) -> list[Outcome]:
    """Seconds and peak memory of the default fit of a unicycle with more and more samples."""
    runs = []
    for samples in sizes:
        cold = bench.first_fit("unicycle", samples, "default")
        run = cold if cold["seconds"] > _LONG else bench.fit("unicycle", samples, "default")
        runs.append({"samples": samples, "first_seconds": cold["seconds"], **run})
    return growth_outcomes(runs)


def growth_outcomes(runs: list[dict[str, Any]]) -> list[Outcome]:
    """By which factor cost grows from the smallest size to the largest, against the data's factor.

    The exponent is fitted above 10,000 samples where there are two sizes there, as the cost of
    small fits is mostly fixed.
    """
    large = [run for run in runs if run["samples"] >= 10_000]
    fitted = large if len(large) > 1 else runs
    counts = [run["samples"] for run in fitted]
    return [
        Outcome(
            Metric(f"growth/unicycle-{counts[0]}-{counts[-1]}/{name}", "×", "lower", 0.5),
            fitted[-1][key] / fitted[0][key],
            limit=Limit(counts[-1] / counts[0], "growth in proportion to the data"),
            details={
                "exponent": growth_exponent(counts, [run[key] for run in fitted]),
                "runs": runs,
            },
        )
        for name, key in (("seconds", "seconds"), ("memory", "peak_mb"))
    ]

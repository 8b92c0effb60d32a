"""How long predictions take: one point from NumPy, and many rollouts together."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from offmap.bench.bench import Bench
from offmap.bench.limits import exp_seconds
from offmap.bench.metrics import Limit, Metric, Outcome
from offmap.bench.problems import HORIZON, problem
from offmap.bench.timing import clocked, interleaved, timed

_PRESETS = ("default", "paper")


def predict(bench: Bench) -> list[Outcome]:
    """One point, all outputs, projection included, NumPy in and out, at 525 samples.

    The limit is a compiled program that does nothing, called the same way.
    """
    data = problem("unicycle", 525)
    state, control = np.array([1.0, -2.0, 0.4]), np.array([0.1, 0.8])
    together = np.concatenate([state, control])[None]
    models = {preset: bench.model("unicycle", 525, preset) for preset in _PRESETS}
    peers = bench.trained(data)
    nothing = jax.jit(lambda x, u: x)
    jobs: dict[str, Callable[[], np.ndarray]] = {
        preset: partial(model.predict, state, control) for preset, model in models.items()
    }
    first = {preset: timed(job)[0] for preset, job in jobs.items()}
    jobs |= {"nothing": lambda: np.asarray(nothing(state, control))}
    jobs |= {peer.name: partial(peer.predict, together) for peer in peers}
    bench.progress("predict: one point, many times")
    for job in jobs.values():
        job()
    calls = 100 if bench.quick else 300
    seconds = interleaved(
        {name: clocked(job, calls) for name, job in jobs.items()}, 2 * bench.rounds
    )
    micro = {name: 1e6 * taken for name, taken in seconds.items()}
    return [
        Outcome(
            Metric(f"predict/unicycle-525/{preset}", "µs", "lower", 0.5),
            micro[preset],
            {peer.name: micro[peer.name] for peer in peers},
            Limit(micro["nothing"], "a compiled program that does nothing"),
            first[preset],
        )
        for preset in models
    ]


def rollouts(bench: Bench) -> list[Outcome]:
    """1,000 rollouts of 100 steps, at 525 samples and 3 outputs and at 2,000 samples and 6.

    The limit is the time of as many exponentials as an exact GP of every output evaluates.
    """
    outcomes = _rollouts(bench, "unicycle", 525, _PRESETS)
    return outcomes if bench.quick else outcomes + _rollouts(bench, "quadrotor", 2000, _PRESETS)


def _rollouts(bench: Bench, system: str, samples: int, presets: tuple[str, ...]) -> list[Outcome]:
    data = problem(system, samples)
    dt = data.dataset.dt
    least = data.kernel_values * exp_seconds(bench.limits)
    models = {preset: bench.model(system, samples, preset) for preset in presets}
    peers = bench.trained(data)
    bench.progress(f"rollouts: {len(data.starts)} × {HORIZON} steps, {system}, {samples} samples")
    jobs: dict[str, Callable[[], np.ndarray]] = {
        preset: partial(model.rollout, data.starts, data.controls)
        for preset, model in models.items()
    }
    first = {preset: timed(job)[0] for preset, job in jobs.items()}
    jobs |= {peer.name: partial(peer.rollouts, data.starts, data.controls, dt) for peer in peers}
    seconds = interleaved(
        {name: clocked(job) for name, job in jobs.items()}, bench.rounds, budget=30.0
    )
    return [
        Outcome(
            Metric(f"rollouts/{system}-{samples}/{preset}", "s", "lower", 0.5),
            seconds[preset],
            {peer.name: seconds[peer.name] for peer in peers},
            Limit(least, f"{data.kernel_values:.2g} exponentials on all cores"),
            first[preset],
        )
        for preset in models
    ]

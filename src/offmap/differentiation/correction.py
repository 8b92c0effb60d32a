"""What learned dynamics say of steps: what differences miss, and how to integrate along them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from offmap.data import Dataset, Trajectory, half_way, local_slopes
from offmap.differentiation.stretches import in_stretches
from offmap.dynamics import Dynamics
from offmap.rollout import Integrator, rollout, step
from offmap.types import VectorField

_STEPS = 500  # of which integrators are compared
_CLOSER = 0.8  # error of one step by RK4 beside that of Euler's, for RK4 to be the right one
_LONG = 10  # steps of the runs that are compared where one step does not tell,
_LEAST_RUNS = 12  # of which there must be so many,
_CHANCE = 2.0  # and so many standard errors between them
_SUBSTEPS = 4  # of a step, where it is followed through the dynamics
_ROUND_OFF = 1e-9
_NEGLIGIBLE = 0.1  # of the noise


def corrected(dataset: Dataset, world: Dynamics, before: Dataset) -> Dataset | None:
    """Half-way differences freed of what curved motion within a step adds to them, if f̂ is right.

    With the step followed through f̂ from its first state, that is the difference of its two ends
    over dt, less f̂ half-way between the states. None where that is far below the noise, or nothing
    was told from states. `before` is the data as logged.
    """
    told = [logged.xdot is None for logged in before]
    if len(before) != len(dataset) or not any(told):  # cut into stretches, since they are noisy
        return None
    plain = [half_way(logged, dataset.angle_indices) for logged in before if logged.xdot is None]
    curved, xdot = (
        curvature(plain, world),
        np.concatenate([log.xdot for log in plain if log.xdot is not None]),
    )
    noise = world.regressor.noise_level() * xdot.std(axis=0)
    if np.all(np.sqrt(np.mean(curved**2, axis=0)) <= _NEGLIGIBLE * noise):
        return None
    parts = iter(np.split(xdot - curved, np.cumsum([log.T for log in plain])[:-1]))
    logs = [
        replace(log, xdot=next(parts)) if open else log
        for log, open in zip(dataset, told, strict=True)
    ]
    return replace(dataset, trajectories=tuple(logs))


def curvature(plain: Sequence[Trajectory], f: VectorField) -> Float[np.ndarray, "T n"]:
    """What curved motion within a step adds to half-way differences, in each step of the logs."""
    start, u, middle = (
        np.concatenate(parts)
        for parts in zip(*((_starts(log), log.u, log.middle) for log in plain), strict=True)
    )
    return np.asarray(_curved(f, start, middle, u, np.float64(plain[0].dt)))


def kept_of(
    dataset: Dataset, told: Sequence[Trajectory | None], source: str
) -> tuple[Trajectory, ...]:
    """Trajectories that could be smoothed; of further sources, which have noise of their own, all.

    Those that are too short to smooth have half-way differences.
    """
    angles = dataset.angle_indices
    return tuple(
        log or half_way(logged, angles)
        for logged, log in zip(dataset, told, strict=True)
        if log is not None or logged.source != source
    )


def refined(
    dataset: Dataset,
    predict: Callable[[np.ndarray, np.ndarray], np.ndarray],
    bandwidth: float,
    source: str,
) -> Dataset:
    """Noisy data as logged, with derivatives told once it is known what to expect.

    Only what `predict` leaves of the states is smoothed, so that nothing is lost of motion that is
    faster than the smoothing.
    """
    angles = dataset.angle_indices
    plain = [half_way(log, angles, bandwidth) for log in dataset if log.xdot is None]
    middle, u = (
        np.concatenate(parts) for parts in zip(*((log.middle, log.u) for log in plain), strict=True)
    )
    expected = iter(np.split(predict(middle, u), np.cumsum([log.T for log in plain])[:-1]))
    told = [
        log if log.xdot is not None else local_slopes(log, bandwidth, angles, next(expected))
        for log in dataset
    ]
    kept = kept_of(dataset, told, source)
    return in_stretches(replace(dataset, trajectories=kept), source)


def _starts(log: Trajectory) -> Float[np.ndarray, "T n"]:
    """First states of half-way differences, in the same turn as those."""
    assert log.middle is not None and log.xdot is not None
    return log.middle - log.xdot * log.dt / 2


@eqx.filter_jit
def _curved(f, x, middle, u, dt):
    def one(x, middle, u):
        end = x
        for _ in range(_SUBSTEPS):
            end = step(f, end, u, dt / _SUBSTEPS, "rk4")
        return (end - x) / dt - f(middle, u)

    return jax.vmap(one)(x, middle, u)


def integrator_of(world: Dynamics, dataset: Dataset, primary: int) -> Integrator:
    """Whether measured derivatives lead from state to state by Euler's steps or in continuous time.

    Euler's, unless RK4 along f̂, or the mean of two derivatives in a row, is clearly closer: in one
    step, or where states are noisy in many.
    """
    logs = [log for log in dataset if log.source == dataset.sources[primary]]
    if any(log.middle is not None for log in logs):
        return "rk4"
    parts = [_steps(log) for log in logs if log.xdot is not None and len(log.x) > 2]
    if not parts:
        return "euler"
    x, after, u, xdot, following = (np.concatenate(each) for each in zip(*parts, strict=True))
    every = max(1, len(x) // _STEPS)
    x, after, u, xdot, following = (a[::every] for a in (x, after, u, xdot, following))
    moved = after - x
    angles = list(dataset.angle_indices)
    moved[:, angles] = np.arctan2(np.sin(moved[:, angles]), np.cos(moved[:, angles]))
    size = np.sqrt(np.mean(moved**2, axis=0))
    dt = dataset.dt

    def off(increment: np.ndarray) -> float:
        error = (increment - moved) / np.where(size > 0, size, 1.0)
        return float(np.sqrt(np.mean(error**2)))

    if off(dt * xdot) <= _ROUND_OFF:
        return "euler"
    mean = off(dt * (xdot + following) / 2) < _CLOSER * off(dt * xdot)
    by_euler, by_rk4 = (
        off(np.asarray(_increments(world, x, u, dt, name))) for name in ("euler", "rk4")
    )
    if mean or by_rk4 < _CLOSER * by_euler:
        return "rk4"
    return "rk4" if _rk4_is_closer_in_the_long_run(world, logs, dataset) else "euler"


def _steps(log: Trajectory) -> tuple[np.ndarray, ...]:
    """Of each step the first state and the next, its control, and the derivatives at both."""
    assert log.xdot is not None
    count = min(len(log.x), len(log.xdot), log.T) - 1
    return (
        log.x[:count],
        log.x[1 : count + 1],
        log.u[:count],
        log.xdot[:count],
        log.xdot[1 : count + 1],
    )


def _rk4_is_closer_in_the_long_run(
    world: Dynamics, logs: list[Trajectory], dataset: Dataset
) -> bool:
    """Whether states some steps later are nearer to RK4's along f̂ than to Euler's: a t-test."""
    parts = [
        (log.x[a], log.u[a : a + _LONG], log.x[a + _LONG])
        for log in logs
        for a in range(0, min(len(log.x) - 1, log.T) - _LONG + 1, _LONG)
    ]
    if len(parts) < _LEAST_RUNS:
        return False
    x, u, after = (np.stack(each) for each in zip(*parts[:_STEPS], strict=True))
    angles = list(dataset.angle_indices)

    def off(name: Integrator) -> np.ndarray:
        error = np.asarray(_ends(world, x, u, np.float64(dataset.dt), name)) - after
        error[:, angles] = np.arctan2(np.sin(error[:, angles]), np.cos(error[:, angles]))
        return error**2

    by_euler, by_rk4 = off("euler"), off("rk4")
    size = np.mean(by_euler, axis=0)
    gain = np.sum((by_euler - by_rk4) / np.where(size > 0, size, 1.0), axis=1)
    return bool(gain.mean() > _CHANCE * gain.std(ddof=1) / np.sqrt(len(gain)))


@eqx.filter_jit
def _ends(f, x, u, dt, integrator):
    return jax.vmap(lambda x, u: rollout(f, x, u, dt, integrator)[-1])(x, u)


@eqx.filter_jit
def _increments(f, x, u, dt, integrator):
    return jax.vmap(lambda x, u: step(f, x, u, dt, integrator) - x)(x, u)

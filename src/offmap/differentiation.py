"""From logged states to derivatives: what the data say about noise, time and likeness of errors.

Logs hold states, seldom derivatives, and differences of states stand in for them in different ways:

- forward: at the first state of a step; exact if a simulator took Euler steps of dt.
- middle: half-way between two states, for motion in continuous time. What is left over, of second
  order in dt, is told by the dynamics themselves (`corrected`).
- smooth: where states are noisy, by local cubics; differences alternate in sign there.

Which of these the data are is told from how well plain functions and Gaussian processes predict
them. The same tells whether errors of neighbouring samples are alike, as on recorded robots: whole
drives must then be held out where choices are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from offmap.calls import at_each
from offmap.config import Config, Derivatives
from offmap.data import (
    Dataset,
    Samples,
    Trajectory,
    commands_in_time,
    half_way,
    local_slopes,
    slope_bandwidth,
)
from offmap.data.lag import unexplained
from offmap.dynamics import Dynamics
from offmap.features import Features
from offmap.gp import GPConfig, fit_gps
from offmap.gp.selection import folds_of
from offmap.rollout import Integrator, step

_POINTS = 400  # samples that are looked at
_HYPER_POINTS = 300  # by which the Gaussian process is fitted
_STRETCH = 40  # samples of a drive that are left out together
_FOLDS = 5
_ROWS = 5  # samples for each unknown of least squares
_EXACT = 1e-8  # share of the variance of x' that plain functions leave of exact data, and less
_CLEARLY = 25.0  # ratio of such shares that tells forward from half-way differences
_NOISY = 0.02  # error between samples, as a share of the spread, that is worth smoothing
_REAL = 0.05  # and one that no simulation without noise has
_ALTERNATE = -0.2  # correlation of neighbours' errors, below which differences of noise are seen
_ALIKE = 0.5  # and above which errors of neighbours are alike,
_LOST = 0.3  # if so much of x' is not predicted in drives left out,
_WORSE = 1.5  # so many times as much as between samples
_KEPT = 0.7  # share of the samples that smoothing must keep
_DRIVES = 12  # of which long recordings are cut to have at least so many stretches,
_SHORTEST, _LONGEST = 20, 50  # steps of each
_TIMES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # steps of delay and width that are tried,
_SLOW = 0.6  # up to so many seconds
_SOME_GAIN = 0.95  # most of what is unexplained that another timing may leave
_STEPS = 500  # of which integrators are compared
_CLOSER = 0.8  # error of one step by RK4 beside that of Euler's, for RK4 to be the right one
_SUBSTEPS = 4  # of a step, where it is followed through the dynamics
_ROUND_OFF = 1e-9
_NEGLIGIBLE = 0.1  # of the noise


@dataclass(frozen=True)
class Look:
    """Errors of a Gaussian process, as shares of the spread of x', and how neighbours' compare."""

    between: float
    """On samples between others."""
    alternate: float
    """Correlation of neighbours' errors there."""
    outside: float
    """In drives left out."""
    alike: float
    """Correlation of neighbours' errors there."""

    @property
    def of_differenced_noise(self) -> bool:
        """Whether states are noisy: an error of one of them is in two differences, both ways."""
        return self.between > _NOISY and self.alternate < _ALTERNATE

    @property
    def of_like_errors(self) -> bool:
        """Whether neighbouring samples have errors in common that inputs do not explain."""
        far = self.outside > _LOST and self.outside > _WORSE * self.between
        return far and self.alike > _ALIKE


def differentiated(
    dataset: Dataset, primary: int, key: Array, config: Config
) -> Iterator[tuple[Dataset, Config]]:
    """The data with derivatives, and the settings with what they left to the data.

    In order of preference, if it hangs on what else is found which of two ways is right.
    """
    ways, look = _ways(dataset, primary, key, config)
    for way in ways:
        found, bandwidth = _by(way, dataset, config.bandwidth)
        way = "forward" if bandwidth is None and way == "smooth" else way
        hold_out = config.hold_out
        if hold_out == "auto":
            alike = way == "smooth" or (look is not None and look.of_like_errors)
            hold_out = "trajectories" if alike else "samples"
            found = _in_stretches(found, primary) if alike else found
        timing = config.timing
        if timing is None:
            asked = hold_out == "trajectories" and not dataset.history
            timing = _timing(found, primary) if asked else (0, 0)
        if timing != (0, 0):
            logs = tuple(commands_in_time(log, *timing) for log in found)
            found = replace(found, trajectories=logs)
        integrator = config.integrator
        if integrator == "auto" and _is_open(dataset, primary):
            integrator = "euler" if way == "forward" else "rk4"
        settled = replace(
            config,
            derivatives=way,
            bandwidth=bandwidth,
            hold_out=hold_out,
            timing=timing,
            integrator=integrator,
        )
        yield found, settled


def like(trajectory: Trajectory, config: Config, angles: tuple[int, ...]) -> Trajectory:
    """A further trajectory with derivatives told as those of the data were."""
    if trajectory.xdot is None and config.derivatives in ("middle", "smooth"):
        smoothed = None
        if config.bandwidth is not None:
            smoothed = local_slopes(trajectory, config.bandwidth, angles)
        trajectory = smoothed or half_way(trajectory, angles)
    return commands_in_time(trajectory, *(config.timing or (0, 0)))


def _ways(
    dataset: Dataset, primary: int, key: Array, config: Config
) -> tuple[tuple[Derivatives, ...], Look | None]:
    """How derivatives may be told, and a look at what they are like if it takes one."""
    told = config.derivatives != "auto" or not _is_open(dataset, primary)
    given: tuple[Derivatives, ...] = ("forward",)
    if config.derivatives != "auto":
        given = (config.derivatives,)
    if told and config.hold_out != "auto":
        return given, None
    early = _left_by_plain_functions(dataset, primary)
    if early <= _EXACT:
        return given, None
    if not told:
        midway = _left_by_plain_functions(_by("middle", dataset, None)[0], primary)
        if max(early, midway) > _CLEARLY * min(early, midway):
            return ("forward" if early < midway else "middle",), None
    look = look_at(dataset, primary, key, config)
    if told:
        return given, look
    if look.of_differenced_noise:
        return ("smooth",), look
    return ("middle",) if look.between > _REAL else ("forward", "middle"), look


def _is_open(dataset: Dataset, primary: int) -> bool:
    """Whether derivatives of the primary source have to be told from states."""
    own = (log for log in dataset if log.source == dataset.sources[primary])
    return any(log.xdot is None for log in own)


def _by(
    way: Derivatives, dataset: Dataset, bandwidth: float | None
) -> tuple[Dataset, float | None]:
    """The data with derivatives told in a way, and the bandwidth where that was by smoothing.

    Trajectories with measured derivatives are left as they are. Data that are too short to smooth
    are as well.
    """
    angles = dataset.angle_indices
    if way == "middle":
        logs = (half_way(log, angles) if log.xdot is None else log for log in dataset)
        return replace(dataset, trajectories=tuple(logs)), None
    if way != "smooth":
        return dataset, None
    bandwidth = bandwidth or slope_bandwidth([log for log in dataset if log.xdot is None], angles)
    if bandwidth is None:
        return dataset, None
    smoothed = [
        local_slopes(log, bandwidth, angles) if log.xdot is None else log for log in dataset
    ]
    kept = tuple(log for log in smoothed if log is not None)
    if sum(log.T for log in kept) < _KEPT * sum(log.T for log in dataset):
        return dataset, None
    return replace(dataset, trajectories=kept), bandwidth


def _left_by_plain_functions(dataset: Dataset, primary: int) -> float:
    """Share of the variance of x' that {1, x, sin x, cos x} ⊗ {1, u} leaves; 1 for few samples."""
    samples = dataset.samples()
    own = np.flatnonzero(samples.source == primary)
    own = own[:: max(1, len(own) // 2000)]
    angles = dataset.angle_indices or tuple(range(dataset.n))
    for turning in (angles, dataset.angle_indices):
        unknowns = (1 + dataset.n + len(turning)) * (1 + dataset.m)
        if len(own) >= _ROWS * unknowns:
            x, u, xdot = samples.x[own], samples.u[own], samples.xdot[own]
            return float(unexplained(x, turning, [u], xdot)[0])
    return 1.0


def _timing(dataset: Dataset, primary: int) -> tuple[int, int]:
    """Delay and width of the commands that best explain derivatives, in steps.

    A derivative that stands for half a second is not due to the command of one step, nor is one
    that follows its command by two steps. Regressed on that, the gain of every actuator comes out
    too small. (0, 0) where nothing else leaves clearly less.
    """
    logs = [
        log for log in dataset if log.source == dataset.sources[primary] and log.xdot is not None
    ]
    steps = [k for k in _TIMES if k * dataset.dt <= _SLOW]
    own = replace(dataset, trajectories=tuple(logs))
    samples = own.samples()
    rows = np.arange(0, len(samples), max(1, len(samples) // 2000))

    def left(delay: int, width: int) -> float:
        moved = [commands_in_time(log, delay, width) for log in logs]
        u = replace(own, trajectories=tuple(moved)).samples().u
        x, xdot = samples.x[rows], samples.xdot[rows]
        return float(unexplained(x, dataset.angle_indices, [u[rows]], xdot)[0])

    found = {(delay, width): left(delay, width) for delay in steps for width in steps}
    at_once = {key: share for key, share in found.items() if key[0] == 0}
    best = min(at_once, key=lambda key: at_once[key])
    later = min(found, key=lambda key: found[key])
    best = later if found[later] < _SOME_GAIN * found[best] else best
    return best if found[best] < _SOME_GAIN * found[0, 0] else (0, 0)


def look_at(dataset: Dataset, primary: int, key: Array, config: Config) -> Look:
    """How a Gaussian process of all inputs errs, between samples and in drives left out."""
    samples = dataset.samples()
    drives = _drives(samples, primary)
    rows, groups = _some(drives, key)
    z = np.concatenate([samples.x, samples.u], axis=1)[rows]
    if config.embed_angles and dataset.angles:
        z = np.asarray(at_each(Features(dataset.input_names, dataset.angle_indices), z))
    z, y = z[:, np.ptp(z, axis=0) > 0], samples.xdot[rows]
    y = (y - y.mean(axis=0)) / np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0)
    neighbours = (np.diff(rows) == 1) & (np.diff(groups) == 0)
    order = np.asarray(jax.random.permutation(key, len(rows)))
    between, alternate = _errors(z, y, order % _FOLDS, neighbours, key)
    outside, alike = _errors(z, y, groups % _FOLDS, neighbours, key)
    return Look(between, alternate, outside, alike)


def _errors(
    z: np.ndarray, y: np.ndarray, fold: np.ndarray, neighbours: np.ndarray, key: Array
) -> tuple[float, float]:
    """Root mean square error of folds left out in turn, and the correlation of neighbours'."""
    error, gps = np.zeros_like(y), None
    codes = np.unique(fold)
    if len(codes) == 1:
        return 0.0, 0.0
    for one in folds_of([fold == code for code in codes]):
        if gps is None:
            source = np.zeros(len(one.inside), dtype=int)
            config = GPConfig(hyper_points=_HYPER_POINTS)
            gps = fit_gps(z[one.inside], y[one.inside], source, key=key, config=config)
        refitted = gps.conditioned(z[one.inside], y[one.inside])
        mean = np.asarray(at_each(refitted, jnp.asarray(z[one.outside])))
        error[one.out] = y[one.out] - mean[: one.count]
    first, second = error[:-1][neighbours], error[1:][neighbours]
    power = 0.5 * np.sum(first**2 + second**2)
    together = float(np.sum(first * second) / power) if power > 0 else 0.0
    return float(np.sqrt(np.mean(error**2))), together


def _drives(samples: Samples, primary: int) -> list[np.ndarray]:
    """Rows of the primary source, by stretches of each trajectory."""
    own = np.flatnonzero(samples.source == primary)
    ends = np.flatnonzero(np.diff(samples.trajectory[own])) + 1
    logs = np.split(own, ends)
    return [
        part for log in logs for part in np.array_split(log, max(1, round(len(log) / _STRETCH)))
    ]


def _some(drives: list[np.ndarray], key: Array) -> tuple[np.ndarray, np.ndarray]:
    """Rows of some drives, in order of time within each, and the number of the drive of each."""
    chosen: list[np.ndarray] = []
    for i in np.asarray(jax.random.permutation(key, len(drives))):
        if sum(map(len, chosen)) >= _POINTS:
            break
        chosen.append(drives[i])
    return np.concatenate(chosen), np.repeat(range(len(chosen)), [len(rows) for rows in chosen])


def _in_stretches(dataset: Dataset, primary: int) -> Dataset:
    """The data with long trajectories cut, where there are too few to hold some out."""
    own = [log for log in dataset if log.source == dataset.sources[primary]]
    if len(own) >= _DRIVES:
        return dataset
    steps = int(np.clip(sum(log.T for log in own) // _DRIVES, _SHORTEST, _LONGEST))
    parts = [part for log in dataset for part in _cut(log, steps)]
    return replace(dataset, trajectories=tuple(parts))


def _cut(log: Trajectory, steps: int) -> list[Trajectory]:
    ends = np.linspace(0, log.T, max(1, log.T // steps) + 1).astype(int)
    rest = ("xdot", "middle", "seen")
    parts = []
    for a, b in pairwise(ends):
        own = {name: getattr(log, name) for name in rest}
        own = {name: None if rows is None else rows[a:b] for name, rows in own.items()}
        parts.append(replace(log, x=log.x[a : b + 1], u=log.u[a:b], **own))
    return parts


def corrected(dataset: Dataset, world: Dynamics, before: Dataset) -> Dataset | None:
    """Half-way differences freed of what curved motion within a step adds to them, if f̂ is right.

    With the step followed through f̂ from its first state, that is the difference of its two ends
    over dt, less f̂ half-way between the states. None where that is far below the noise. `before` is
    the data as logged.
    """
    if len(before) != len(dataset):  # cut into stretches, since they are noisy
        return None
    told = [logged.xdot is None for logged in before]
    plain = [half_way(logged, dataset.angle_indices) for logged in before if logged.xdot is None]
    start, u, middle, xdot = (
        np.concatenate(parts)
        for parts in zip(
            *((_starts(log), log.u, log.middle, log.xdot) for log in plain), strict=True
        )
    )
    curved = np.asarray(_curved(world, start, middle, u, np.float64(dataset.dt)))
    noise = world.regressor.noise_level() * xdot.std(axis=0)
    if np.all(np.sqrt(np.mean(curved**2, axis=0)) <= _NEGLIGIBLE * noise):
        return None
    right = xdot - curved
    parts = iter(np.split(right, np.cumsum([log.T for log in plain])[:-1]))
    logs = [
        replace(log, xdot=next(parts)) if open else log
        for log, open in zip(dataset, told, strict=True)
    ]
    return replace(dataset, trajectories=tuple(logs))


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

    Euler's, unless RK4 along f̂, or the mean of two derivatives in a row, is clearly closer.
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
    return "rk4" if mean or by_rk4 < _CLOSER * by_euler else "euler"


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


@eqx.filter_jit
def _increments(f, x, u, dt, integrator):
    return jax.vmap(lambda x, u: step(f, x, u, dt, integrator) - x)(x, u)

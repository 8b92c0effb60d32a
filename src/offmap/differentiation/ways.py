"""Which way to tell derivatives from states, and what is then held out where choices are made."""

from dataclasses import replace

import numpy as np
from jaxtyping import Array

from offmap.calls import at_each
from offmap.config import Config, Derivatives
from offmap.data import (
    Dataset,
    Trajectory,
    commands_in_time,
    half_way,
    local_slopes,
    slope_bandwidth,
)
from offmap.data.lag import unexplained
from offmap.differentiation.correction import curvature, kept_of
from offmap.differentiation.look import Look, look_at
from offmap.differentiation.stretches import in_stretches, several
from offmap.differentiation.timing import best_timing
from offmap.types import VectorField

_ROWS = 5  # samples for each unknown of least squares,
_POINTS = 2000  # and of them in all
_EXACT = 1e-8  # share of the variance of x' that plain functions leave of exact data, and less
_CLEARLY = 25.0  # ratio of such shares that tells forward from half-way differences
_REAL = 0.05  # error between samples, as a share of the spread, that no exact data have
_ROUGH = 0.3  # error between samples, as a share of the spread, that learning can do with at first
_KEPT = 0.7  # share of the samples that smoothing must keep


def differentiated(
    dataset: Dataset, primary: int, key: Array, config: Config
) -> list[tuple[Dataset, Config]]:
    """The data with derivatives, and the settings with what they left to the data.

    In order of preference, where it hangs on what else is found which of two ways is right.
    """
    source = dataset.sources[primary]
    ways, look = _ways(dataset, primary, key, config)
    settled = []
    for way in ways:
        found, bandwidth = _by(way, dataset, source, config.bandwidth)
        if way == "smooth" and bandwidth is None:
            way, found = _unsmoothed(dataset, primary, config)
        hold_out = config.hold_out
        if hold_out == "auto":
            alike = way == "smooth" or (look is not None and look.of_like_errors)
            cut = in_stretches(found, source) if alike else found
            alike = alike and several(cut, source)
            hold_out, found = ("trajectories", cut) if alike else ("samples", found)
        timing = config.timing
        if timing is None:
            asked = hold_out == "trajectories" and not dataset.history
            timing = best_timing(_differenced(found), source) if asked else (0, 0)
        if way == "smooth" and timing == (0, 0) and look is not None and look.between < _ROUGH:
            found = _by("middle", dataset, source)[0]  # to begin with: see `refined`
            hold_out = "samples" if config.hold_out == "auto" else hold_out
        if timing != (0, 0):
            logs = tuple(commands_in_time(log, *timing) for log in _differenced(found))
            found = replace(found, trajectories=logs)
        integrator = config.integrator
        if integrator == "auto" and _is_open(dataset, primary):
            integrator = "euler" if way == "forward" else "rk4"
        own = replace(
            config,
            derivatives=way,
            bandwidth=bandwidth,
            hold_out=hold_out,
            timing=timing,
            integrator=integrator,
        )
        settled.append((found, own))
    return settled


def like(
    trajectory: Trajectory,
    config: Config,
    angles: tuple[int, ...],
    f: VectorField,
) -> Trajectory:
    """A further trajectory with derivatives told as those of the data were.

    Args:
        trajectory: As it was logged.
        config: Settings, which say how.
        angles: State columns in radians.
        f: The learned dynamics, which say what to expect.
    """
    if trajectory.xdot is None and config.derivatives in ("middle", "smooth"):
        told = half_way(trajectory, angles, config.bandwidth)
        assert told.middle is not None and told.xdot is not None
        if config.bandwidth is not None:
            at_once = config.timing == (0, 0)
            expected = np.asarray(at_each(f, told.middle, told.u)) if at_once else None
            told = local_slopes(trajectory, config.bandwidth, angles, expected) or told
        elif config.timing == (0, 0):
            told = replace(told, xdot=told.xdot - curvature([told], f))
        trajectory = told
    timing = config.timing or (0, 0)
    if timing != (0, 0):
        trajectory = _with_differences(trajectory, angles)
    return commands_in_time(trajectory, *timing)


def _ways(
    dataset: Dataset, primary: int, key: Array, config: Config
) -> tuple[tuple[Derivatives, ...], Look | None]:
    """How derivatives may be told, and a look at what they are like if it takes one."""
    told = config.derivatives != "auto" or not _is_open(dataset, primary)
    given: tuple[Derivatives, ...] = ("forward",)
    if config.derivatives != "auto":
        given = (config.derivatives,)
    elif told and any(log.xdot is None for log in dataset):  # of a further source
        other = next(log.source for log in dataset if log.xdot is None)
        given = (_closer_difference(dataset, dataset.sources.index(other))[0],)
    if told and config.hold_out != "auto":
        return given, None
    early = _left_by_plain_functions(dataset, primary)
    if early <= _EXACT:
        return given, None
    if not told:
        halves = _by("middle", dataset, dataset.sources[primary])[0]
        midway = _left_by_plain_functions(halves, primary)
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
    way: Derivatives, dataset: Dataset, source: str, bandwidth: float | None = None
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
    open = [log for log in dataset if log.xdot is None]
    if bandwidth is None and open:
        bandwidth = slope_bandwidth(open, angles)
    if bandwidth is None or not open:
        return dataset, None
    smoothed = [
        local_slopes(log, bandwidth, angles) if log.xdot is None else log for log in dataset
    ]
    kept = kept_of(dataset, smoothed, source)
    if sum(log.T for log in kept) < _KEPT * sum(log.T for log in dataset):
        return dataset, None
    return replace(dataset, trajectories=kept), bandwidth


def _closer_difference(dataset: Dataset, primary: int) -> tuple[Derivatives, Dataset]:
    """Forward or half-way differences: those of which plain functions leave less."""
    told: dict[Derivatives, Dataset] = {
        way: _by(way, dataset, dataset.sources[primary])[0] for way in ("forward", "middle")
    }
    way = min(told, key=lambda way: _left_by_plain_functions(told[way], primary))
    return way, told[way]


def _unsmoothed(dataset: Dataset, primary: int, config: Config) -> tuple[Derivatives, Dataset]:
    """What is done where smoothing would leave too little, unless it was asked for."""
    if config.derivatives == "smooth" and any(log.xdot is None for log in dataset):
        raise ValueError(
            f'derivatives="smooth" takes trajectories of more than a few windows; those given have '
            f"{max(log.T for log in dataset)} steps at most, and bandwidth={config.bandwidth}. "
            f'Give longer ones, another bandwidth, or derivatives="auto".'
        )
    return _closer_difference(dataset, primary)


def _differenced(dataset: Dataset) -> Dataset:
    """The data with forward differences where derivatives were not told otherwise."""
    logs = tuple(_with_differences(log, dataset.angle_indices) for log in dataset)
    return replace(dataset, trajectories=logs)


def _with_differences(log: Trajectory, angles: tuple[int, ...]) -> Trajectory:
    if log.xdot is not None:
        return log
    _, u, xdot = log.samples(angles)
    return replace(log, x=log.x[: len(u) + 1], u=u, xdot=xdot)


def _left_by_plain_functions(dataset: Dataset, primary: int) -> float:
    """Share of the variance of x' that {1, x, sin x, cos x} ⊗ {1, u} leaves; 1 for few samples."""
    samples = dataset.samples()
    own = np.flatnonzero(samples.source == primary)
    own = own[:: max(1, len(own) // _POINTS)]
    angles = dataset.angle_indices or tuple(range(dataset.n))
    for turning in (angles, dataset.angle_indices):
        unknowns = (1 + dataset.n + len(turning)) * (1 + dataset.m)
        if len(own) >= _ROWS * unknowns:
            x, u, xdot = samples.x[own], samples.u[own], samples.xdot[own]
            return float(unexplained(x, turning, [u], xdot)[0])
    return 1.0

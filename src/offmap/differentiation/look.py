"""A look at samples through a Gaussian process: is it noise, and do neighbours share errors?"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from offmap.calls import at_each
from offmap.config import Config
from offmap.data import Dataset, Samples
from offmap.features import Features
from offmap.gp import GPConfig, fit_gps
from offmap.gp.selection import folds_of

_POINTS = 400  # samples that are looked at
_HYPER_POINTS = 300  # by which the Gaussian process is fitted
_ROUNDING = 1e-9  # of its size: a velocity that varies by less is constant
_STRETCH = 40  # samples of a drive that are left out together
_FOLDS = 5
_NOISY = 0.02  # error between samples, as a share of the spread, that is worth smoothing
_ALTERNATE = -0.2  # correlation of neighbours' errors, below which differences of noise are seen
_ALIKE = 0.5  # and above which errors of neighbours are alike,
_LOST = 0.3  # if so much of x' is not predicted in drives left out


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
        return self.outside > _LOST and self.alike > _ALIKE


def look_at(dataset: Dataset, primary: int, key: Array, config: Config) -> Look:
    """How a Gaussian process of all inputs errs, between samples and in drives left out."""
    samples = dataset.samples()
    drives = _drives(samples, primary)
    rows, groups = _some(drives, key)
    z = np.concatenate([samples.x, samples.u], axis=1)[rows]
    if config.embed_angles and dataset.angles:
        z = np.asarray(at_each(Features(dataset.input_names, dataset.angle_indices), z))
    z, y = z[:, np.ptp(z, axis=0) > 0], samples.xdot[rows]
    y = y[:, y.std(axis=0) > _ROUNDING * np.abs(y).max(axis=0)]
    if y.shape[1] == 0:
        return Look(0.0, 0.0, 0.0, 0.0)
    y = (y - y.mean(axis=0)) / y.std(axis=0)
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

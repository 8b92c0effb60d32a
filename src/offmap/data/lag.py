"""By how much motion follows its command: which past command explains the derivative best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from offmap.data.dataset import Dataset

_RIDGE = 1e-6
_ROUNDING = 1e-9
_POINTS = 2000
_STEPS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)  # lags that are compared, in samples
_LONGEST = 0.5  # seconds
_ROWS = 10  # for each unknown of the regression; with fewer, chance differences are large


@dataclass(frozen=True)
class Lag:
    """The lag at which past commands explain the motion best."""

    steps: int
    seconds: float
    left: float
    """Share of the variance of x' that commands at this lag leave unexplained."""
    left_at_once: float
    """The share that commands without lag leave."""


def command_lag(dataset: Dataset) -> Lag | None:
    """The lag of a dataset, in whole samples; None where there are too few of them to tell."""
    lags = [k for k in _STEPS if k * dataset.dt <= _LONGEST] or [0]
    samples, longest = dataset.samples(), lags[-1]
    runs = [np.flatnonzero(samples.trajectory == code) for code in range(len(dataset))]
    rows = np.concatenate([run[longest:] for run in runs])
    rows = rows[:: max(1, len(rows) // _POINTS)]
    x, targets = samples.x[rows], samples.xdot[rows]
    unknowns = (1 + dataset.n + len(dataset.angles)) * (1 + dataset.m)
    if len(rows) < _ROWS * unknowns:
        return None
    left = unexplained(x, dataset.angle_indices, [samples.u[rows - k] for k in lags], targets)
    best = int(np.argmin(left))
    return Lag(lags[best], lags[best] * dataset.dt, float(left[best]), float(left[0]))


def unexplained(
    x: Float[np.ndarray, "N n"],
    angles: Sequence[int],
    commands: Sequence[Float[np.ndarray, "N m"]],
    targets: Float[np.ndarray, "N p"],
) -> Float[np.ndarray, " L"]:
    """Share of the targets' variance left by {1, x, sin a, cos a} ⊗ {1, u}, for each of L commands.

    Equally many terms for each, so that the shares can be compared.
    """
    features = state_features(x, angles)
    designs = (features[:, :, None] * _with_one(u)[:, None] for u in commands)
    return np.array([residual(design.reshape(len(x), -1), targets) for design in designs])


def state_features(x: Float[np.ndarray, "N n"], angles: Sequence[int]) -> np.ndarray:
    """1, the states in units of their spread, and sine and cosine of those that are angles."""
    scaled = (x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-12)
    plain = [column for k, column in enumerate(scaled.T) if k not in angles]
    turned = [function(x[:, k]) for k in angles for function in (np.sin, np.cos)]
    return np.stack([np.ones(len(x)), *plain, *turned], axis=1)


def residual(design: np.ndarray, targets: np.ndarray) -> float:
    """Share of the targets' variance that a ridge regression leaves, averaged over columns.

    Columns that are constant but for rounding have none.
    """
    targets = targets[:, targets.std(axis=0) > _ROUNDING * np.abs(targets).max(axis=0)]
    if targets.shape[1] == 0:
        return 0.0
    gram = design.T @ design + _RIDGE * len(design) * np.eye(design.shape[1])
    left = targets - design @ np.linalg.solve(gram, design.T @ targets)
    return float(np.mean((left / targets.std(axis=0)) ** 2))


def _with_one(u: np.ndarray) -> np.ndarray:
    spread = u.std(axis=0)
    varies = spread > 1e-6 * np.abs(u).max(axis=0)  # the rest is rounding
    scaled = np.where(varies, (u - u.mean(axis=0)) / np.where(varies, spread, 1.0), 0.0)
    return np.concatenate([np.ones((len(u), 1)), scaled], axis=1)

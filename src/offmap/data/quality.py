"""What a dataset will make hard to learn, said before or after a fit."""

import numpy as np
from jaxtyping import Float

from offmap.data.dataset import Dataset
from offmap.data.lag import command_lag
from offmap.data.trajectory import Trajectory

_STILL = 0.3  # share of samples without motion that is worth a word
_REST = 1e-6  # of the largest speed: no motion
_ALIGNED = 0.999  # correlation of two inputs whose effects cannot be told apart
_FEW = 4  # levels of a control that show little of what it does
_NEAR = 0.01  # of the spread of the data: trajectories closer than this are repeats
_MOST_COMPARED = 200
_LAG_GAIN = 0.2  # share of what commands leave unexplained that a lag must explain
_LAG_EFFECT = 0.01  # and of the whole variance of x'


def quality_warnings(dataset: Dataset, history: int = 0) -> list[str]:
    """Sentences on little excitation, lag and near-duplicate trajectories; none if all is well.

    A lag that a `history` of so many past commands covers is none.
    """
    samples = dataset.samples()
    inputs = np.concatenate([samples.x, samples.u], axis=1)
    return [
        *_standstill(samples.xdot),
        *_few_levels(samples.u, dataset.control_names),
        *_aligned(inputs, dataset.input_names),
        *_lagging(dataset, history),
        *_repeated(dataset),
    ]


def _standstill(xdot: Float[np.ndarray, "N n"]) -> list[str]:
    speed = np.abs(xdot / np.maximum(np.abs(xdot).max(axis=0), 1e-300)).max(axis=1)
    share = float(np.mean(speed < _REST))
    if share < _STILL:
        return []
    return [f"little excitation: nothing moves in {share:.0%} of the samples; cut standstill out"]


def _few_levels(u: Float[np.ndarray, "N m"], names: tuple[str, ...]) -> list[str]:
    found = []
    for name, column in zip(names, u.T, strict=True):
        levels = len(np.unique(np.round(column, 12)))
        if levels < _FEW:
            found.append(
                f"little excitation: {name!r} takes only {levels} different values; vary it more"
            )
    return found


def _aligned(inputs: Float[np.ndarray, "N d"], names: tuple[str, ...]) -> list[str]:
    varying = np.flatnonzero(inputs.std(axis=0) > 0)
    correlation = np.abs(np.atleast_2d(np.corrcoef(inputs[:, varying].T)))
    pairs = np.argwhere(np.triu(correlation > _ALIGNED, 1))
    return [
        f"little excitation: {names[varying[i]]!r} and {names[varying[j]]!r} always vary together "
        f"(correlation {correlation[i, j]:.4f}); their effects cannot be told apart"
        for i, j in pairs
    ]


def _lagging(dataset: Dataset, history: int) -> list[str]:
    """Whether commands of a while ago explain the motion far better than those of now."""
    lag = None if dataset.history else command_lag(dataset)
    if lag is None or lag.steps <= history:
        return []
    gain = lag.left_at_once - lag.left
    if gain < _LAG_GAIN * lag.left_at_once or gain < _LAG_EFFECT:
        return []
    return [
        f"lag: motion follows its command by about {lag.seconds:.2g} s (least squares on commands "
        f"of then leaves {lag.left:.0%} of the variance of x', on those of now "
        f"{lag.left_at_once:.0%}); shift the commands, or fit with history={lag.steps} "
        f"(--history {lag.steps})"
    ]


def _repeated(dataset: Dataset) -> list[str]:
    """Pairs of trajectories that stay close throughout, states and controls alike."""
    samples = dataset.samples()
    spread = np.concatenate([samples.x.std(axis=0), samples.u.std(axis=0)])
    spread = np.where(spread > 0, spread, 1.0)
    rows = [_rows(log) / spread for log in dataset.trajectories[:_MOST_COMPARED]]
    near = [
        (i, j)
        for j, second in enumerate(rows)
        for i, first in enumerate(rows[:j])
        if np.abs(first[0] - second[0]).max() < _NEAR and _distance(first, second) < _NEAR
    ]
    if not near:
        return []
    i, j = near[0]
    return [
        f"near-duplicate trajectories: {len(near)} pairs stay within {_NEAR:.0%} of the data's "
        f"spread, such as {i} and {j}; they add little, and make held-out errors look too good"
    ]


def _rows(log: Trajectory) -> np.ndarray:
    count = min(len(log.x), len(log.u))
    return np.concatenate([log.x[:count], log.u[:count]], axis=1)


def _distance(first: np.ndarray, second: np.ndarray) -> float:
    count = min(len(first), len(second))
    return float(np.sqrt(np.mean((first[:count] - second[:count]) ** 2)))

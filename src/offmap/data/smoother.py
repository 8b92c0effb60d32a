"""One smoother for irregular samples: values and derivatives of local cubics."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

_TERMS = 4  # a cubic: with a quadratic, the bandwidth best for values would bias the slopes
_CANDIDATES = 14
_WIDEST = 12.0  # times the narrowest half-width
_TARGETS = 1500  # samples at which a bandwidth is judged
_BLOCK = 4096  # times fitted at once, which bounds memory


class Smoothed(NamedTuple):
    """What a local cubic says at each time asked."""

    value: Float[np.ndarray, "T k"]
    slope: Float[np.ndarray, "T k"]
    known: Bool[np.ndarray, " T"]
    """False where too few samples are near: values and slopes there are NaN."""


def local_cubic(
    time: Float[np.ndarray, " N"],
    values: Float[np.ndarray, "N k"],
    at: Float[np.ndarray, " T"],
    bandwidth: float,
    hole: float = 0.0,
) -> Smoothed:
    """Fit a cubic around each time to the samples within ±bandwidth, nearer ones weighing more.

    Args:
        time: Increasing sample times.
        values: Samples, one row each; angles unwrapped.
        at: Times at which value and slope are wanted.
        bandwidth: Half-width of the window in seconds; weights are tricube.
        hole: Samples within ±hole of the time asked are left out, for cross-validation.
    """
    parts = [
        _fit_block(time, values, at[i : i + _BLOCK], bandwidth, hole)
        for i in range(0, len(at), _BLOCK)
    ]
    return Smoothed(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _fit_block(
    time: np.ndarray, values: np.ndarray, at: np.ndarray, bandwidth: float, hole: float
) -> Smoothed:
    first = np.searchsorted(time, at - bandwidth)
    last = np.searchsorted(time, at + bandwidth)
    width = max(int((last - first).max(initial=0)), 1)
    index = first[:, None] + np.arange(width)
    inside = index < last[:, None]
    index = np.minimum(index, len(time) - 1)
    away = (time[index] - at[:, None]) / bandwidth
    inside &= np.abs(away) * bandwidth >= hole
    weight = np.where(inside, np.clip(1 - np.abs(away) ** 3, 0, None) ** 3, 0.0)
    # Both sides must be seen: at an edge a polynomial extrapolates, and its slope is worthless.
    sides = ((weight > 0) & (away <= 0)).sum(axis=1), ((weight > 0) & (away >= 0)).sum(axis=1)
    known = (sides[0] >= 2) & (sides[1] >= 2) & ((weight > 0).sum(axis=1) > _TERMS)
    powers = away[:, :, None] ** np.arange(_TERMS)
    weighted = np.swapaxes(weight[:, :, None] * powers, 1, 2)
    gram = weighted @ powers
    gram[~known] = np.eye(_TERMS)
    level = values[first.clip(max=len(values) - 1)]  # keeps digits where values are large
    moment = weighted @ (values[index] - level[:, None])
    coefficients = np.linalg.solve(gram + 1e-12 * np.eye(_TERMS), moment)
    coefficients[~known] = np.nan
    return Smoothed(coefficients[:, 0] + level, coefficients[:, 1] / bandwidth, known)


def widest_bandwidth(interval: float, dt: float) -> float:
    """The widest half-width that is tried for samples so far apart, and steps of dt."""
    return _WIDEST * (dt + 3.0 * interval)


def choose_bandwidth(
    time: Float[np.ndarray, " N"], values: Float[np.ndarray, "N k"], dt: float
) -> float:
    """The half-width that best predicts samples from those at least dt away.

    Leaving out single samples would follow noise that is alike in neighbouring samples, as that of
    motion capture is; a hole of one step to either side asks for slopes that hold over a step, and
    for nothing faster than steps of dt could show. One bandwidth serves all columns.
    """
    interval = float(np.median(np.diff(time)))
    hole = dt
    candidates = np.geomspace(hole + 3.0 * interval, widest_bandwidth(interval, dt), _CANDIDATES)
    stride = max(1, len(time) // _TARGETS)
    targets = np.arange(stride // 2, len(time), stride)
    guesses = [local_cubic(time, values, time[targets], h, hole) for h in candidates]
    # Every candidate is judged at the same samples, by absolute errors: outliers weigh little.
    common = np.all([guess.known for guess in guesses], axis=0)
    if common.sum() < 30:
        raise ValueError(
            f"A bandwidth is chosen from at least 30 samples with neighbours within "
            f"{candidates[-1]:.3g} s; found {int(common.sum())} in {len(time)} samples about "
            f"{interval:.3g} s apart. Give `bandwidth`, or a longer recording."
        )
    truth = values[targets][common]
    errors = np.array([np.mean(np.abs(guess.value[common] - truth), axis=0) for guess in guesses])
    errors = errors[:, errors.max(axis=0) > 0]
    score = np.log(np.maximum(errors, 1e-300)).sum(axis=1)
    return float(candidates[int(np.argmin(score))])

"""Which states are angles, where nobody said so: those whose sine and cosine extrapolate."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from offmap.gp.selection import edge_points

_BETTER = 4.0  # factor by which errors at the edge must fall, over all outputs together
_THAN_SQUARES = 1.1  # and by which they must be lower than with the state and its square
_FLOOR = 1e-6  # errors below this share of the outputs' spread leave nothing to improve
_RIDGE = 1e-10


def find_angles(
    x: Float[np.ndarray, "N n"],
    u: Float[np.ndarray, "N m"],
    outputs: Float[np.ndarray, "N p"],
    *,
    groups: np.ndarray | None = None,
) -> tuple[int, ...]:
    """States of which x' = f(x, u) sees sine and cosine, by least squares on the data's middle.

    The velocity is fitted on (1, x) ⊗ (1, u), once with each state as it is and once as (sin, cos),
    and judged at the held-out edge. The state that lowers the errors most is taken to be an angle,
    as long as they fall by a factor that no accident gives; then the search goes on with the rest.
    A state that moves little has a sine like itself and is left alone, as nothing is lost by that;
    so is one whose square does as well as a cosine, such as a part of a quaternion.
    """
    edge = edge_points(np.concatenate([x, u], axis=1), groups)
    moving = [i for i in range(x.shape[1]) if x[:, i].std() > 0]
    found: tuple[int, ...] = ()
    before = _log_errors(x, u, outputs, edge, found)
    while len(found) < len(moving):
        trials = {
            i: _log_errors(x, u, outputs, edge, (*found, i)) for i in moving if i not in found
        }
        best = min(trials, key=lambda i: trials[i])
        squared = _log_errors(x, u, outputs, edge, found, (best,))
        if min(before - np.log(_BETTER), squared - np.log(_THAN_SQUARES)) < trials[best]:
            break
        found, before = (*found, best), trials[best]
    return tuple(sorted(found))


def _log_errors(
    x: np.ndarray,
    u: np.ndarray,
    outputs: np.ndarray,
    edge: np.ndarray,
    angles: Sequence[int],
    squares: Sequence[int] = (),
) -> float:
    """Sum over the outputs of the logarithm of the root mean square error at the edge."""
    terms = _terms(x, u, angles, squares)
    size = np.sqrt(np.mean(terms**2, axis=0))
    terms = terms / np.where(size > 0, size, 1.0)
    inner = terms[~edge]
    gram = inner.T @ inner + _RIDGE * len(inner) * np.eye(terms.shape[1])
    weights = np.linalg.solve(gram, inner.T @ outputs[~edge])
    spread = outputs.std(axis=0)
    error = (terms[edge] @ weights - outputs[edge]) / np.where(spread > 0, spread, 1.0)
    return float(np.sum(np.log(np.maximum(np.sqrt(np.mean(error**2, axis=0)), _FLOOR))))


def _terms(
    x: np.ndarray, u: np.ndarray, angles: Sequence[int], squares: Sequence[int]
) -> np.ndarray:
    plain = [i for i in range(x.shape[1]) if i not in angles]
    turned, squared = x[:, list(angles)], x[:, list(squares)] ** 2
    ones = np.ones((len(x), 1))
    states = np.concatenate([ones, x[:, plain], np.sin(turned), np.cos(turned), squared], axis=1)
    controls = np.concatenate([ones, u], axis=1)
    return (states[:, :, None] * controls[:, None, :]).reshape(len(x), -1)
